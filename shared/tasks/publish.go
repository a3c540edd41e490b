package tasks

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/shared/events"
)

// Publish is the function that delivers events.
const Publish = "publish"

// ofStream is a task for a delivery queue.
func ofStream(s events.DeliveryQueue, suffix string, at time.Time) errand {
	endpoint := digestOf(s.Endpoint)[:16] // its name may have characters that a task's name must not have
	return errand{
		function: Publish, digest: s.Submitter.Digest(), suffix: endpoint + "-" + suffix,
		body: map[string]any{"submitter": string(s.Submitter), "endpoint": s.Endpoint}, at: at,
	}
}

// Publish implements [events.TaskEnqueuer]. The task is due at the end of that second and named by it, so that
// calls within one second make one task.
func (t *Tasks) Publish(ctx context.Context, s events.DeliveryQueue, at time.Time) error {
	at = at.Truncate(time.Second).Add(time.Second)
	return t.create(ctx, ofStream(s, fmt.Sprintf("p-%d", at.Unix()), at))
}

// RescuePublish implements [events.TaskEnqueuer], as EnqueueTakeover does for submitters.
func (t *Tasks) RescuePublish(ctx context.Context, s events.DeliveryQueue, met events.AcquireResult) error {
	suffix := fmt.Sprintf("d-%d-%d", met.Token, met.ExpiresAt.UnixMicro())
	return t.create(ctx, ofStream(s, suffix, met.FreeAt.Add(rescueMargin)))
}

// PublishTest enqueues a task that sends an operator's test event to the endpoint.
func (t *Tasks) PublishTest(ctx context.Context, endpoint string, test int64) error {
	return t.create(ctx, errand{
		function: Publish, digest: digestOf(endpoint), suffix: fmt.Sprintf("t-%d", test), body: map[string]any{"endpoint": endpoint, "test": test},
	})
}

// SweepPublish enqueues a task for a delivery queue on behalf of a sweep that began at this time. The
// task is named by that minute. made reports whether it is new.
func (t *Tasks) SweepPublish(ctx context.Context, s events.DeliveryQueue, began time.Time) (made bool, err error) {
	return t.add(ctx, ofStream(s, fmt.Sprintf("s-%d", began.Unix()/60), time.Time{}))
}

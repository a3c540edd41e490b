package sweeps

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/shared/events"
	eventlog "github.com/fencepost/fencepost/shared/store/events"
)

// maxDeletedEvents is the most old events that one sweep deletes in one commit.
const maxDeletedEvents = 5000

// sweepEvents finds events whose tasks were lost, and deletes old ones.
func (a *Server) sweepEvents(ctx context.Context, out *sweepResponse) error {
	if len(a.Endpoints) == 0 {
		return nil
	}
	stored := eventlog.New(a.Store)
	failures := []error{stored.NumberEvents(ctx, a.Endpoints)}
	found, began, err := stored.OverdueStreams(ctx, a.Endpoints, a.Grace, a.Batch)
	out.Events = len(found)
	failures = append(failures, err, enqueueEach(ctx, out, work{"publish", "streams"}, found, func(s events.DeliveryQueue) (bool, error) { return a.Tasks.SweepPublish(ctx, s, began) }))
	for ctx.Err() == nil {
		n, err := stored.ForgetEvents(ctx, a.Endpoints, a.EventsKeep, maxDeletedEvents)
		failures = append(failures, err)
		if err != nil || n < maxDeletedEvents {
			break
		}
	}
	return errors.Join(failures...)
}

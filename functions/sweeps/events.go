package sweeps

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/events"
	eventlog "github.com/fencepost/fencepost/shared/store/events"
)

// maxDeletedEvents is the most old events that one sweep deletes in one commit.
const maxDeletedEvents = 5000

// sweepEvents finds events whose tasks were lost, and deletes old ones.
func (a *Server) sweepEvents(ctx context.Context, out *sweepResponse) error {
	if len(a.Events.Endpoints) == 0 {
		return nil
	}
	stored := eventlog.New(a.Store)
	failures := []error{stored.NumberEvents(ctx, a.Events.Endpoints)}
	found, began, err := stored.OverdueStreams(ctx, a.Events.Endpoints, a.Grace, a.Batch)
	out.Events = len(found)
	var enqueued atomic.Int64
	failed, first := serve.MakeTasks(ctx, found, func(s events.DeliveryQueue) error {
		made, err := a.Tasks.SweepPublish(ctx, s, began)
		if made {
			enqueued.Add(1)
		}
		return err
	})
	out.Enqueued += int(enqueued.Load())
	failures = append(failures, err)
	if failed > 0 {
		failures = append(failures, fmt.Errorf("no publish task for %d of %d delivery queues: %w", failed, len(found), first))
	}
	for ctx.Err() == nil {
		n, err := stored.ForgetEvents(ctx, a.EventsKeep, maxDeletedEvents)
		failures = append(failures, err)
		if err != nil || n < maxDeletedEvents {
			break
		}
	}
	return errors.Join(failures...)
}

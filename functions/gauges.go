package functions

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/shared/telemetry"
)

// gauge shows what waits. Only the sweep does: each minute, from one process.
func (a *App) gauge(ctx context.Context) error {
	b, err := a.store.Backlog(ctx)
	if err != nil {
		return err
	}
	telemetry.QueueDepth.Record(ctx, int64(b.Queued))
	telemetry.QueueFullness.Record(ctx, float64(b.Fullest)/float64(a.config.Queue.MaxPerSubmitter))
	telemetry.InFlightAge.Record(ctx, int64(b.OldestHeld/time.Second))
	telemetry.ProtectSubmitters.Record(ctx, int64(b.Protected))
	telemetry.StuckTransactions.Record(ctx, int64(b.Stuck))
	telemetry.ReceiptBacklog.Record(ctx, int64(b.NoReceipt))
	if len(a.receivers) == 0 {
		return nil
	}
	waiting, err := a.store.EventBacklogs(ctx, a.receivers)
	for _, w := range waiting {
		telemetry.EventBacklog.Record(ctx, int64(w.Streams), telemetry.Receiver(w.Receiver))
		telemetry.EventAge.Record(ctx, int64(w.Oldest/time.Second), telemetry.Receiver(w.Receiver))
	}
	return err
}

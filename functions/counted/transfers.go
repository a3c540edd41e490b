package counted

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Transfers is the store of transfers. It counts each state that a write of this process has
// put a transfer into. A write whose answer was lost is not counted.
type Transfers struct{ *transfers.Store }

// labels are those of each state: made once, because each transfer enters five.
var labels = func() map[transfer.State]metric.MeasurementOption {
	all := make(map[transfer.State]metric.MeasurementOption)
	for _, s := range transfer.States() {
		all[s] = telemetry.State(s.String())
	}
	return all
}()

func count(ctx context.Context, states ...transfer.State) {
	for _, s := range states {
		telemetry.Transfers.Add(ctx, 1, labels[s])
	}
}

// Create implements [transfer.Store].
func (c Transfers) Create(ctx context.Context, r transfer.Request, terms transfer.Terms) (transfer.Created, error) {
	created, err := c.Store.Create(ctx, r, terms)
	if err == nil && created.New {
		count(ctx, transfer.Init)
	}
	return created, err
}

// Start implements [transfer.Store].
func (c Transfers) Start(ctx context.Context, reqID string, initTimeout time.Duration) (transfer.TransitionResult, error) {
	moved, err := c.Store.Start(ctx, reqID, initTimeout)
	switch {
	case err != nil || !moved.Done:
	case moved.Now.Reason == transfer.Expired:
		count(ctx, transfer.Failed)
	default:
		count(ctx, transfer.SourcePending)
	}
	return moved, err
}

// Move implements [transfer.Store].
func (c Transfers) Move(ctx context.Context, m transfer.Transition) (transfer.TransitionResult, error) {
	moved, err := c.Store.Move(ctx, m)
	if err == nil && moved.Done {
		count(ctx, m.Path[1:]...)
	}
	return moved, err
}

// Postpone implements [transfer.Store].
func (c Transfers) Postpone(ctx context.Context, p transfer.Postponement) (transfer.TransitionResult, error) {
	moved, err := c.Store.Postpone(ctx, p)
	if err == nil && moved.Done && p.State == transfer.Compensating {
		telemetry.RefundFailures.Add(ctx, 1)
	}
	return moved, err
}

// Cancel implements [transfer.ActionStore].
func (c Transfers) Cancel(ctx context.Context, o transfer.RequestedAction) (transfer.TransitionResult, error) {
	moved, err := c.Store.Cancel(ctx, o)
	if err == nil && moved.Done {
		count(ctx, transfer.Failed)
	}
	return moved, err
}

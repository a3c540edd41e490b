package transfer

import (
	"context"
	"errors"
	"fmt"
)

// Errors of what operators ask for. Nothing was changed, and nothing was recorded.
var (
	ErrTooLate          = errors.New("only a transfer in INIT can be cancelled")
	ErrRestored         = errors.New("the transfer may have gone on after the backup that was restored: it is driven, not cancelled")
	ErrNothingToResolve = errors.New("the transfer does not wait for the answer to that operation")
)

// Cancel ends a transfer that has not begun: FAILED/CANCELLED. The error wraps
// [ErrTooLate] in every other state, except that a transfer which was cancelled
// before is returned as it is, and [ErrRestored] where INIT does not prove that
// nothing was called. Any other error is unknown.
func (c *Coordinator) Cancel(ctx context.Context, o Order) (Transfer, error) {
	t, err := c.book.Load(ctx, o.ReqID)
	if err != nil {
		return Transfer{}, fmt.Errorf("cancel transfer %s: %w", o.ReqID, err)
	}
	done, err := c.write(ctx, &t, func(ctx context.Context) (Moved, error) { return c.orders.Cancel(ctx, o) })
	switch {
	case err != nil:
		return t, err
	case t.Foreign:
		return t, fmt.Errorf("cancel transfer %s: %w", o.ReqID, ErrForeign)
	case t.State == Failed && t.Reason == Cancelled:
		return t, nil
	case t.State == Init && done: // the cancel got no answer and did not happen
		return t, fmt.Errorf("cancel transfer %s: it did not reach the database", o.ReqID)
	case t.State == Init:
		return t, fmt.Errorf("cancel transfer %s: %w", o.ReqID, ErrRestored)
	}
	return t, fmt.Errorf("cancel transfer %s in %s: %w", o.ReqID, t.State, ErrTooLate)
}

// Resolve has the ledger say what it has stored for op, or store that it refuses
// it for ever; then the transfer goes on by its ordinary edges. No operator sets a
// state. Who asked, and why, is on record before the ledger is asked. The error
// wraps [ErrNothingToResolve] where the transfer waits for another answer or for
// none; the transfer is returned as it is then.
func (c *Coordinator) Resolve(ctx context.Context, o Order, op Op) (Transfer, error) {
	t, err := c.book.Load(ctx, o.ReqID)
	switch {
	case err != nil:
		return Transfer{}, fmt.Errorf("resolve transfer %s: %w", o.ReqID, err)
	case t.Foreign:
		return t, fmt.Errorf("resolve transfer %s: %w", o.ReqID, ErrForeign)
	case op == "" || t.State.Asks() != op:
		return t, fmt.Errorf("resolve %s of transfer %s in %s: %w", op, o.ReqID, t.State, ErrNothingToResolve)
	case c.ledger(t, op) == nil:
		return t, fmt.Errorf("resolve %s of transfer %s: no ledger for type %d here", op, o.ReqID, t.Type)
	}
	number, err := c.orders.Record(ctx, o, op)
	if err != nil {
		return t, fmt.Errorf("record resolve of transfer %s: %w", o.ReqID, err)
	}
	outcome := c.resolve(ctx, t, op)
	c.logResolved(ctx, t, o, op, outcome)
	if err := c.orders.Answer(context.WithoutCancel(ctx), number, outcome); err != nil {
		c.log.WarnContext(ctx, "the answer to a resolve is not on record", append(attrs(t), "error", err.Error())...)
	}
	goOn, err := c.settle(ctx, &t, op, outcome)
	if err != nil || !goOn {
		return t, err
	}
	return c.drive(ctx, t)
}

func (c *Coordinator) resolve(ctx context.Context, t Transfer, op Op) Outcome {
	ctx, cancel := context.WithTimeout(ctx, c.rules.CallTimeout)
	defer cancel()
	return c.ledger(t, op).Resolve(ctx, op, t.Call())
}

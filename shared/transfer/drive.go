package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// maxIterations bounds the iterations of one drive. A transfer needs five at most; the others are
// for writes that got no answer.
const maxIterations = 10

// writeTimeout bounds a write. The read after a write whose answer was lost has the same bound.
const writeTimeout = 5 * time.Second

// drive continues from t, which was read from a committed row.
func (c *Coordinator) drive(ctx context.Context, t Transfer) (Transfer, error) {
	if c.ledger(t, Withdraw) == nil || c.ledger(t, Deposit) == nil {
		return t, fmt.Errorf("drive transfer %s: no ledger for type %d here", t.ReqID, t.Type)
	}
	for range maxIterations {
		if t.State.Terminal() || c.Stopping != nil && c.Stopping() {
			return t, nil
		}
		if t.Foreign { // an operator must accept the database before its rows count
			return t, fmt.Errorf("drive transfer %s: %w", t.ReqID, ErrForeign)
		}
		goOn, err := c.step(ctx, &t)
		if err != nil || !goOn && !t.Foreign {
			return t, err
		}
	}
	return t, fmt.Errorf("drive transfer %s: still in %s after %d iterations", t.ReqID, t.State, maxIterations)
}

// step makes at most one call and one write, as t's state demands. Afterwards t is the row as
// read. goOn reports whether there is more to do now.
func (c *Coordinator) step(ctx context.Context, t *Transfer) (goOn bool, err error) {
	switch t.State {
	case Init:
		c.reach("beginning")
		defer c.reach("begun")
		goOn, err = c.write(ctx, t, func(ctx context.Context) (TransitionResult, error) {
			return c.book.Start(ctx, t.ReqID, c.rules.InitTimeout)
		})
		if err == nil && !goOn && t.State == Init && !t.Foreign {
			c.log.WarnContext(ctx, "a payout does not begin while a halt is open for it, its asset is suspended, or its payer is in PROTECT, suspended, or not the coordinator's alone; the sweep tries again", attrs(*t)...)
		}
		return goOn, err
	case SourceDone:
		c.reach("advancing")
		defer c.reach("advanced")
		return c.move(ctx, t, Transition{ReqID: t.ReqID, Path: []State{SourceDone, TargetPending}})
	}
	op := t.State.AwaitedOp()
	if op == "" {
		return false, fmt.Errorf("drive transfer %s: %s is no state of the table", t.ReqID, t.State)
	}
	return c.settle(ctx, t, op, c.call(ctx, *t, op))
}

// call calls the ledger. The state that allows the call was read from a committed row, so the row
// already says that the call may have been made.
func (c *Coordinator) call(ctx context.Context, t Transfer, op Op) Outcome {
	ctx, cancel := context.WithTimeout(ctx, c.rules.CallTimeout)
	defer cancel()
	c.reach(string(op) + ".calling")
	defer c.reach(string(op) + ".called")
	call, ok := ledgerCalls[op]
	if !ok {
		return Outcome{Err: fmt.Errorf("no ledger has the operation %q", op)} // it decides nothing
	}
	return call(c.ledger(t, op), ctx, t.Call())
}

var ledgerCalls = map[Op]func(Ledger, context.Context, Call) Outcome{Withdraw: Ledger.Withdraw, Deposit: Ledger.Deposit, Refund: Ledger.Refund}

func (c *Coordinator) move(ctx context.Context, t *Transfer, m Transition) (goOn bool, err error) {
	if err := Legal(m.Path); err != nil {
		return false, fmt.Errorf("transfer %s: %w", t.ReqID, err)
	}
	return c.write(ctx, t, func(ctx context.Context) (TransitionResult, error) { return c.book.Move(ctx, m) })
}

// write makes one write. It does not stop when the caller's request ends, because the ledger's
// answer must be recorded. If another worker wrote first, that worker continues and this one
// stops.
//
// A write whose COMMIT got no answer may or may not have happened, so no call may depend on it.
// The row is read again, and the next iteration continues from the stored state. If the commit was
// still under way, the next compare-and-set waits for it and fails.
func (c *Coordinator) write(ctx context.Context, t *Transfer, send func(context.Context) (TransitionResult, error)) (goOn bool, err error) {
	ctx = context.WithoutCancel(ctx)
	from := *t
	moved, err := bounded(ctx, send)
	if err != nil {
		c.log.WarnContext(ctx, "a write got no answer: reading back", append(attrs(from), "error", err.Error())...)
		now, readErr := bounded(ctx, func(ctx context.Context) (Transfer, error) { return c.book.Load(ctx, from.ReqID) })
		if readErr != nil {
			return false, fmt.Errorf("move transfer %s: %w", from.ReqID, errors.Join(err, readErr))
		}
		moved = TransitionResult{Done: true, Now: now}
	}
	*t = moved.Now
	if t.State != from.State {
		c.logMoved(ctx, from, *t, moved.Done)
	}
	return moved.Done, nil
}

func bounded[T any](ctx context.Context, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return do(ctx)
}

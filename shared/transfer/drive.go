package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// roundsMost bounds the rounds of one drive: each transfer needs five at most, the
// rest is for writes that got no answer.
const roundsMost = 10

// writeTimeout bounds a write and, once more, the reading back of one whose answer
// was lost.
const writeTimeout = 5 * time.Second

// drive goes on from t as it was read from a committed row.
func (c *Coordinator) drive(ctx context.Context, t Transfer) (Transfer, error) {
	if c.ledger(t, Withdraw) == nil || c.ledger(t, Deposit) == nil {
		return t, fmt.Errorf("drive transfer %s: no ledger for type %d here", t.ReqID, t.Type)
	}
	for range roundsMost {
		if t.State.Terminal() || c.Stopping != nil && c.Stopping() {
			return t, nil
		}
		if t.Foreign { // no row is believed before a person has accepted the database
			return t, fmt.Errorf("drive transfer %s: %w", t.ReqID, ErrForeign)
		}
		goOn, err := c.step(ctx, &t)
		if err != nil || !goOn && !t.Foreign {
			return t, err
		}
	}
	return t, fmt.Errorf("drive transfer %s: still in %s after %d rounds", t.ReqID, t.State, roundsMost)
}

// step does what is due in t's state: at most one call, and one write, after which
// t is what was read from the row. goOn says that there is more to do now.
func (c *Coordinator) step(ctx context.Context, t *Transfer) (goOn bool, err error) {
	switch t.State {
	case Init:
		c.pass("beginning")
		defer c.pass("begun")
		goOn, err = c.write(ctx, t, func(ctx context.Context) (Moved, error) {
			return c.book.Start(ctx, t.ReqID, c.rules.InitTimeout)
		})
		if err == nil && !goOn && t.State == Init && !t.Foreign {
			c.log.WarnContext(ctx, "a payout does not begin while a halt is open for it, its asset is suspended, or its payer is in PROTECT, suspended, or not the coordinator's alone; the sweep tries again", attrs(*t)...)
		}
		return goOn, err
	case SourceDone:
		c.pass("advancing")
		defer c.pass("advanced")
		return c.move(ctx, t, Move{ReqID: t.ReqID, Path: []State{SourceDone, TargetPending}})
	}
	op := t.State.Asks()
	if op == "" {
		return false, fmt.Errorf("drive transfer %s: %s is no state of the table", t.ReqID, t.State)
	}
	return c.settle(ctx, t, op, c.call(ctx, *t, op))
}

// call asks the ledger. It is only made from a state that was read from a committed
// row, so the row says that the call may have been made.
func (c *Coordinator) call(ctx context.Context, t Transfer, op Op) Outcome {
	ctx, cancel := context.WithTimeout(ctx, c.rules.CallTimeout)
	defer cancel()
	c.pass(string(op) + ".calling")
	defer c.pass(string(op) + ".called")
	ledger := c.ledger(t, op)
	switch op {
	case Withdraw:
		return ledger.Withdraw(ctx, t.Call())
	case Deposit:
		return ledger.Deposit(ctx, t.Call())
	case Refund:
		return ledger.Refund(ctx, t.Call())
	}
	return Outcome{Err: fmt.Errorf("no ledger does %q", op)}
}

func (c *Coordinator) move(ctx context.Context, t *Transfer, m Move) (goOn bool, err error) {
	if err := Legal(m.Path); err != nil {
		return false, fmt.Errorf("transfer %s: %w", t.ReqID, err)
	}
	return c.write(ctx, t, func(ctx context.Context) (Moved, error) { return c.book.Move(ctx, m) })
}

// write makes one write, which does not end with the caller's request: an answer
// that was got is worth recording. Where it was lost to another worker's, that
// worker goes on and this one stops.
//
// A write whose COMMIT got no answer may have happened or not, and nothing may
// stand on either. The row is read back, and the next round goes on from there,
// whichever it is: if the commit was still on its way, the next compare-and-set
// waits for it and loses.
func (c *Coordinator) write(ctx context.Context, t *Transfer, send func(context.Context) (Moved, error)) (goOn bool, err error) {
	ctx = context.WithoutCancel(ctx)
	from := *t
	moved, err := bounded(ctx, send)
	if err != nil {
		c.log.WarnContext(ctx, "a write got no answer: reading back", append(attrs(from), "error", err.Error())...)
		now, readErr := bounded(ctx, func(ctx context.Context) (Transfer, error) { return c.book.Load(ctx, from.ReqID) })
		if readErr != nil {
			return false, fmt.Errorf("move transfer %s: %w", from.ReqID, errors.Join(err, readErr))
		}
		moved = Moved{Done: true, Now: now}
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

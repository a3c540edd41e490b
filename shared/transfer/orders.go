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
	ErrNotForgotten     = errors.New("the ledger has not forgotten the operation")
	ErrEvidence         = errors.New("the evidence does not say so")
	ErrNothingToResolve = errors.New("the transfer does not wait for the answer to that operation")
)

// ErrForgotten reports that the ledger may have forgotten the operation. The attempt is
// on record, and the transfer stays where it is.
var ErrForgotten = errors.New("the ledger may have forgotten the operation")

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
//
// A ledger that may have forgotten the operation refuses nothing: the error wraps
// [ErrForgotten]. Then the order has a Word. It must be proved, by the line that it
// names or by [Coordinator.Proof], else the error wraps [ErrEvidence]. It is
// [ErrNotForgotten] where the ledger answers without a word.
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
	if o.Word != nil {
		if err := c.prove(ctx, t, op, *o.Word); err != nil {
			return t, fmt.Errorf("resolve %s of transfer %s: %w", op, o.ReqID, err)
		}
	}
	number, err := c.orders.Record(ctx, o, op)
	if err != nil {
		return t, fmt.Errorf("record resolve of transfer %s: %w", o.ReqID, err)
	}
	outcome := c.resolve(ctx, t, op, o.Word)
	c.logResolved(ctx, t, o, op, outcome)
	if err := c.orders.Answer(context.WithoutCancel(ctx), number, outcome); err != nil {
		c.log.WarnContext(ctx, "the answer to a resolve is not on record", append(attrs(t), "error", err.Error())...)
	}
	objection := c.objection(t, op, outcome)
	if objection != nil && o.Word != nil { // the word was not taken, and says nothing of the transfer
		return t, fmt.Errorf("resolve %s of transfer %s: %w", op, o.ReqID, objection)
	}
	goOn, err := c.settle(ctx, &t, op, outcome)
	switch {
	case err != nil:
		return t, err
	case objection != nil:
		return t, fmt.Errorf("resolve %s of transfer %s: %w", op, o.ReqID, objection)
	case !goOn:
		return t, nil
	}
	return c.drive(ctx, t)
}

// objection is why a ledger that forgets came to no answer; nil: for another cause.
func (c *Coordinator) objection(t Transfer, op Op, o Outcome) error {
	if forgetful, ok := c.ledger(t, op).(Forgetful); ok && o.Verdict == Unknown {
		return forgetful.Objection(o)
	}
	return nil
}

// prove checks an operator's word before anything is recorded. A line is for the
// ledger to check: it has the journal. That a refund was not applied no line says: what
// the ledger checks is the line of the withdrawal.
func (c *Coordinator) prove(ctx context.Context, t Transfer, op Op, w Word) error {
	if ledger, ok := c.ledger(t, op).(Forgetful); !ok || !ledger.Forgot(t.LastUnknown) {
		return ErrNotForgotten
	}
	if w.Line != 0 && (op != Refund || w.Applied) {
		return nil
	}
	if c.Proof == nil {
		return fmt.Errorf("%w: no check of conservation here", ErrEvidence)
	}
	applied, err := c.Proof(ctx, t, op)
	if err == nil && applied != w.Applied {
		err = ErrEvidence
	}
	return err
}

func (c *Coordinator) resolve(ctx context.Context, t Transfer, op Op, w *Word) Outcome {
	ctx, cancel := context.WithTimeout(ctx, c.rules.CallTimeout)
	defer cancel()
	if w != nil {
		return c.ledger(t, op).(Forgetful).Record(ctx, op, t.Call(), *w)
	}
	return c.ledger(t, op).Resolve(ctx, op, t.Call())
}

package transfer

import (
	"context"
	"errors"
	"fmt"
)

// Errors of operators' orders. Nothing was changed and nothing was recorded.
var (
	ErrTooLate          = errors.New("only a transfer in INIT can be cancelled")
	ErrRestored         = errors.New("the transfer may have gone on after the backup that was restored: it is driven, not cancelled")
	ErrNotForgotten     = errors.New("the ledger has not forgotten the operation")
	ErrEvidence         = errors.New("the evidence does not prove the stated result")
	ErrNothingToResolve = errors.New("the transfer does not wait for the answer to that operation")
)

// ErrForgotten reports that the ledger may have forgotten the operation. The attempt is recorded,
// and the transfer stays in its state.
var ErrForgotten = errors.New("the ledger may have forgotten the operation")

// Cancel ends a transfer that has not begun: FAILED/CANCELLED. A transfer that was cancelled
// before is returned without an error. In any other state the error wraps [ErrTooLate]. It wraps
// [ErrRestored] if a restored row in INIT does not prove that no ledger was called. The result of
// any other error is unknown.
func (c *Coordinator) Cancel(ctx context.Context, o RequestedAction) (Transfer, error) {
	t, err := c.book.Load(ctx, o.ReqID)
	if err != nil {
		return Transfer{}, fmt.Errorf("cancel transfer %s: %w", o.ReqID, err)
	}
	done, err := c.write(ctx, &t, func(ctx context.Context) (TransitionResult, error) { return c.orders.Cancel(ctx, o) })
	switch {
	case err != nil:
		return t, err
	case t.Foreign:
		return t, fmt.Errorf("cancel transfer %s: %w", o.ReqID, ErrForeign)
	case t.State == Failed && t.Reason == Cancelled:
		return t, nil
	case t.State == Init && done: // the cancel got no answer and was not stored
		return t, fmt.Errorf("cancel transfer %s: it did not reach the database", o.ReqID)
	case t.State == Init:
		return t, fmt.Errorf("cancel transfer %s: %w", o.ReqID, ErrRestored)
	}
	return t, fmt.Errorf("cancel transfer %s in %s: %w", o.ReqID, t.State, ErrTooLate)
}

// Resolve asks the ledger for the stored answer to op, or to store a permanent refusal. The
// transfer then continues along the table of transitions; an operator never sets a state. The
// order is recorded before the ledger is awaits. The error wraps [ErrNothingToResolve] if the
// transfer does not wait for the answer to op; the transfer is then returned as read.
//
// A ledger that may have forgotten the operation refuses nothing: the error wraps [ErrForgotten].
// Then the operator repeats the order with a Word. The journal line that it names, or
// [Coordinator.Proof], must prove it; otherwise the error wraps [ErrEvidence]. It wraps
// [ErrNotForgotten] if the ledger answers without a statement.
func (c *Coordinator) Resolve(ctx context.Context, o RequestedAction, op Op) (Transfer, error) {
	t, err := c.book.Load(ctx, o.ReqID)
	switch {
	case err != nil:
		return Transfer{}, fmt.Errorf("resolve transfer %s: %w", o.ReqID, err)
	case t.Foreign:
		return t, fmt.Errorf("resolve transfer %s: %w", o.ReqID, ErrForeign)
	case op == "" || t.State.AwaitedOp() != op:
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
	if objection != nil && o.Word != nil { // the statement was rejected and does not concern the transfer's state
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

// objection returns why a forgetful ledger gave no answer; nil for any other cause.
func (c *Coordinator) objection(t Transfer, op Op, o Outcome) error {
	if forgetful, ok := c.ledger(t, op).(Forgetful); ok && o.Verdict == Unknown {
		return forgetful.Objection(o)
	}
	return nil
}

// prove checks an operator's statement before anything is recorded. The ledger checks a journal
// line itself, because it has the journal. A refund that was not applied has no line to prove it:
// the line that the ledger checks for it is the withdrawal's.
func (c *Coordinator) prove(ctx context.Context, t Transfer, op Op, w OperatorStatement) error {
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

func (c *Coordinator) resolve(ctx context.Context, t Transfer, op Op, w *OperatorStatement) Outcome {
	ctx, cancel := context.WithTimeout(ctx, c.rules.CallTimeout)
	defer cancel()
	if w != nil {
		return c.ledger(t, op).(Forgetful).Record(ctx, op, t.Call(), *w)
	}
	return c.ledger(t, op).Resolve(ctx, op, t.Call())
}

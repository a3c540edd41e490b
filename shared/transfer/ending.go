package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Ends reports whether the order calls no ledger, and ends an act by the core's journal.
func (o MoneyOrder) Ends() bool { return o.Line != 0 || o.NotApplied }

func (o MoneyOrder) op() Op {
	if o.Kind == ActWithdrawal {
		return OutsideWithdrawal
	}
	return OutsideDeposit
}

// Ending is the end of a Spot deposit or withdrawal by the core's journal.
type Ending struct {
	Answer    string
	Line      uint64 // that has the answer; 0: none has
	ReadAfter uint64 // where none has it: the journal was read after this line, up to ReadUpto, its last
	ReadUpto  uint64
}

// InJournalError reports that the core's journal has an act that an operator believed not applied. It wraps [ErrEvidence].
type InJournalError struct{ Line uint64 }

func (e InJournalError) Error() string {
	return fmt.Sprintf("line %d of the core's journal has this id", e.Line)
}

func (e InJournalError) Unwrap() error { return ErrEvidence }

// UnreadError reports that the time ended before the whole journal was read. The line that was reached is stored,
// and the next call continues after it. It wraps [ErrEvidence].
type UnreadError struct{ Upto, Last uint64 }

func (e UnreadError) Error() string {
	return fmt.Sprintf("lines up to %d of %d of the core's journal do not have this id; the others were not read in time", e.Upto, e.Last)
}

func (e UnreadError) Unwrap() error { return ErrEvidence }

// EndingOf returns the end of the order's act by the core's journal. The error wraps [ErrEvidence], [ErrNotForgotten] or
// [ErrActConflict].
func (a *Accounts) EndingOf(ctx context.Context, o MoneyOrder) (Ending, error) {
	if o.NotApplied {
		return a.proveNotApplied(ctx, o)
	}
	answer, err := a.answerOfLine(ctx, o)
	return Ending{Answer: answer, Line: o.Line}, err
}

// answerOfLine is the core's answer to the order, as its journal's line has it: [ActTaken] if another booking has the
// id and the order is stored. The error wraps [ErrEvidence] if the line does not have the id, or does not exist. It does so
// too if the line has another booking and no such order is stored, because the order would take the booking's id.
func (a *Accounts) answerOfLine(ctx context.Context, o MoneyOrder) (answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	e, exists, err := a.Core.Line(ctx, o.Line)
	if err != nil {
		return "", err
	}
	switch {
	case !exists || e.Op != o.op() || e.ReqID != o.RequestID:
		return "", fmt.Errorf("line %d of the core's journal: %w", o.Line, ErrEvidence)
	case e.UserID != o.UserID || e.AssetID != o.AssetID || e.Units != o.Units:
		if _, err := a.Store.ActOf(ctx, o); errors.Is(err, ErrNoAct) {
			return "", fmt.Errorf("line %d of the core's journal has another user, asset or amount: %w", o.Line, ErrEvidence)
		} else if err != nil {
			return "", err
		}
		return ActTaken, nil
	case e.Refused != "":
		return string(e.Refused), nil
	}
	return ActApplied, nil
}

// journalWithin bounds the reading of the core's journal.
const journalWithin = 12 * time.Second

// proveNotApplied returns the end of an open act that the core has forgotten. It asks the core once more: after that
// refusal no later call with the act's time can be applied, so the journal read then is the whole evidence.
func (a *Accounts) proveNotApplied(ctx context.Context, o MoneyOrder) (Ending, error) {
	act, err := a.Store.ActOf(ctx, o)
	switch {
	case errors.Is(err, ErrNoAct):
		return Ending{}, fmt.Errorf("%w: no such deposit or withdrawal is stored", ErrNotForgotten)
	case err != nil || !act.Open():
		return Ending{}, err // EndMoney leaves an act that has ended
	case !a.Core.Forgot(act.Unknown) || !errors.Is(a.Core.Objection(a.call(ctx, act)), ErrForgotten):
		return Ending{}, ErrNotForgotten
	}
	end, err := a.readJournal(ctx, o, act.JournalRead)
	if unread, ok := errors.AsType[UnreadError](err); ok {
		err = errors.Join(err, a.Store.KeepJournalRead(ctx, act.ID, unread.Upto))
	}
	return end, err
}

// readJournal looks for the order's booking in the core's journal, from the line after the given one on. Earlier calls have
// read the lines up to it, which never change.
func (a *Accounts) readJournal(ctx context.Context, o MoneyOrder, from uint64) (Ending, error) {
	within, cancel := context.WithTimeout(ctx, journalWithin)
	defer cancel()
	after, end := from, uint64(0)
	for {
		page, last, err := a.Core.Entries(within, after)
		switch {
		case err != nil && after > from && within.Err() != nil && ctx.Err() == nil:
			return Ending{}, UnreadError{after, end}
		case err != nil:
			return Ending{}, err
		case after > last:
			return Ending{}, fmt.Errorf("the core's journal ends with line %d: %w", last, ErrEvidence)
		}
		for _, e := range page {
			if e.Op == o.op() && e.ReqID == o.RequestID {
				return Ending{}, InJournalError{e.Seq}
			}
		}
		if after, end = after+uint64(len(page)), last; after >= last {
			return Ending{Answer: ActNotApplied, ReadAfter: from, ReadUpto: after}, nil
		}
	}
}

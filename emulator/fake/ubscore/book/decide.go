package book

import (
	"time"

	"github.com/fencepost/fencepost/shared/transfer"
)

// aheadTolerance is how far a request's creation time can be ahead of the core's clock. Without a
// bound one such request would keep its key, and all later ones, for ever.
const aheadTolerance = Micros(time.Hour / time.Microsecond)

// Rules are the inputs of a decision beside the book.
type Rules struct {
	Now     Micros
	Resolve bool   // refuse an unknown key for ever instead of applying it
	Record  *Word  // record this for a forgotten key instead of applying it
	Found   uint64 // of an adjustment: the balance that it is based on
}

// Word is an operator's statement about an operation whose key was forgotten.
type Word struct {
	Applied bool
	Refused transfer.Reason // of an operation that was not applied: as the journal's line has it
}

// Decide returns the answer to the request: the entry stored under its key, or a fresh one. The
// caller must [Book.Apply] a fresh entry before the next decision. The error is one of this
// package's; then nothing may be stored. The book does not change.
func (b *Book) Decide(r Request, rules Rules) (e Entry, fresh bool, err error) {
	if stored, known := b.answered[r.key()]; known {
		if !stored.isAnswerTo(r) {
			return Entry{}, false, ErrContradiction
		}
		return *stored, false, nil
	}
	switch forgotten := b.mayBeForgotten(r); {
	case forgotten && rules.Record != nil:
		return b.record(r, rules)
	case forgotten:
		return Entry{}, false, ErrBeyondHorizon
	case rules.Record != nil:
		return Entry{}, false, ErrNotForgotten
	case r.CreatedAt > rules.Now+aheadTolerance:
		return Entry{}, false, ErrAhead
	case r.Kind.isAdjustment():
		return b.adjust(r, rules)
	}
	reason := transfer.ResolvedByOperator
	switch {
	case rules.Resolve && r.Kind == Refund:
		return Entry{}, false, ErrNothingStored
	case !rules.Resolve:
		if reason, err = b.evaluate(r); err != nil {
			return Entry{}, false, err
		}
	}
	return b.next(r, reason, rules.Now), true, nil
}

// evaluate returns the refusal of a request that is seen for the first time; "": it is applied.
func (b *Book) evaluate(r Request) (transfer.Reason, error) {
	switch {
	case r.Kind == Refund:
		return "", b.evaluateRefund(r)
	case r.Kind == AddAsset:
		return b.evaluateAsset(r), nil
	case r.Kind != SetStatus && r.Units == 0:
		return transfer.InvalidAmount, nil
	case r.UserID <= 0:
		return transfer.InvalidUser, nil
	}
	if _, known := b.assets[r.AssetID]; !known {
		return transfer.InvalidAsset, nil
	}
	a, exists := b.Account(AccountKey{r.UserID, r.AssetID})
	switch {
	case r.Kind == SetStatus && !exists:
		return transfer.TargetAccountNotFound, nil
	case r.Kind.isDebit():
		return evaluateDebit(r, a, exists), nil
	case r.Kind.isCredit():
		return evaluateCredit(r, a), nil
	}
	return "", nil
}

func evaluateDebit(r Request, a Account, exists bool) transfer.Reason {
	switch {
	case !exists:
		return transfer.SourceAccountNotFound
	case a.Status == Frozen:
		return transfer.AccountFrozen
	case a.Status == Disabled:
		return transfer.AccountDisabled
	case a.Units < r.Units:
		return transfer.InsufficientBalance
	}
	return ""
}

func evaluateCredit(r Request, a Account) transfer.Reason {
	switch {
	case a.Status == Disabled:
		return transfer.AccountDisabled
	case a.Units+r.Units < a.Units:
		return transfer.Overflow
	}
	return ""
}

// evaluateRefund never refuses: the result of a refund without its withdrawal is unknown.
func (b *Book) evaluateRefund(r Request) error {
	if err := b.refundable(r); err != nil {
		return err
	}
	if a, _ := b.Account(AccountKey{r.UserID, r.AssetID}); a.Units+r.Units < a.Units {
		return ErrRefundOverflow
	}
	return nil
}

// evaluateAsset refuses to change the precision: all stored units depend on it.
func (b *Book) evaluateAsset(r Request) transfer.Reason {
	if precision, known := b.assets[r.AssetID]; r.AssetID <= 0 || known && precision != r.Precision {
		return transfer.InvalidAsset
	}
	return ""
}

package book

import (
	"time"

	"github.com/fencepost/fencepost/shared/transfer"
)

// aheadTolerance is how much later than now, by the core's clock, a request may
// have been created. Without a bound one such request would keep its key, and
// those after it, for ever.
const aheadTolerance = Micros(time.Hour / time.Microsecond)

// Rules are what a decision depends on beside the book.
type Rules struct {
	Now     Micros
	Resolve bool   // refuse for ever what is not stored, instead of doing it
	Record  *Word  // record this of a forgotten key, instead of doing it
	Found   uint64 // of an adjustment: the balance that it was decided by
}

// Word is what an operator says became of an operation whose key was forgotten.
type Word struct {
	Applied bool
	Refused transfer.Reason // of what was not applied: as the journal's line has it
}

// Decide says what is to be answered to the request: the entry that is stored
// under its key, or a new one, which the caller must [Book.Apply] before it
// decides again. The error is one of the Err… of this package; then nothing may
// be stored. The book does not change.
func (b *Book) Decide(r Request, rules Rules) (e Entry, fresh bool, err error) {
	if stored, known := b.answered[r.key()]; known {
		if !stored.answers(r) {
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
	case r.Kind.adjusts():
		return b.adjust(r, rules)
	}
	reason := transfer.ResolvedByOperator
	switch {
	case rules.Resolve && r.Kind == Refund:
		return Entry{}, false, ErrNothingStored
	case !rules.Resolve:
		if reason, err = b.judge(r); err != nil {
			return Entry{}, false, err
		}
	}
	return b.next(r, reason, rules.Now), true, nil
}

// judge says why a request that is seen for the first time is refused; empty: it
// is not.
func (b *Book) judge(r Request) (transfer.Reason, error) {
	switch {
	case r.Kind == Refund:
		return "", b.judgeRefund(r)
	case r.Kind == AddAsset:
		return b.judgeAsset(r), nil
	case r.Kind != SetStatus && r.Units == 0:
		return transfer.InvalidAmount, nil
	case r.UserID <= 0:
		return transfer.InvalidUser, nil
	case b.unknownAsset(r.AssetID):
		return transfer.InvalidAsset, nil
	}
	a, exists := b.accounts.get(AccountKey{r.UserID, r.AssetID})
	switch {
	case r.Kind == SetStatus && !exists:
		return transfer.TargetAccountNotFound, nil
	case r.Kind.takes():
		return judgeTaking(r, a, exists), nil
	case r.Kind.credits():
		return judgeCredit(r, a), nil
	}
	return "", nil
}

func (b *Book) unknownAsset(id int32) bool {
	_, known := b.assets[id]
	return !known
}

func judgeTaking(r Request, a Account, exists bool) transfer.Reason {
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

func judgeCredit(r Request, a Account) transfer.Reason {
	switch {
	case a.Status == Disabled:
		return transfer.AccountDisabled
	case a.Units+r.Units < a.Units:
		return transfer.Overflow
	}
	return ""
}

// judgeRefund never refuses: what cannot be refunded now is not known.
func (b *Book) judgeRefund(r Request) error {
	if err := b.refundable(r); err != nil {
		return err
	}
	if a, _ := b.accounts.get(AccountKey{r.UserID, r.AssetID}); a.Units+r.Units < a.Units {
		return ErrRefundOverflow
	}
	return nil
}

// judgeAsset refuses to change the precision: it is what all units are counted in.
func (b *Book) judgeAsset(r Request) transfer.Reason {
	if precision, known := b.assets[r.AssetID]; r.AssetID <= 0 || known && precision != r.Precision {
		return transfer.InvalidAsset
	}
	return ""
}

package book

import "github.com/fencepost/fencepost/shared/transfer"

// mayBeForgotten says whether the request's key, which is not known, may have been
// answered and forgotten. A refund may not while its own withdrawal is remembered:
// the refund's entry is younger, and the oldest entries are forgotten first. What
// an operator recorded of the withdrawal is younger than a refund may be, so it
// proves nothing.
func (b *Book) mayBeForgotten(r Request) bool {
	if r.CreatedAt >= b.floor {
		return false
	}
	withdrawal := b.answered[key{Withdraw, r.ReqID}]
	return r.Kind != Refund || withdrawal == nil || withdrawal.Kind != Withdraw
}

// ProvedBy says whether a line of the journal proves the word about the request.
func (w Word) ProvedBy(r Request, line Entry) bool {
	if r.Kind == Refund && !w.Applied { // no line says that nothing was done, but the withdrawal must have been
		r.Kind = Withdraw
		return line.answers(r) && line.Refused == ""
	}
	return line.answers(r) && (line.Refused == "") == w.Applied
}

// record is the entry for what an operator says of a forgotten key. It moves no
// money, but for a refund that was not applied: that one has no refusal, so it is
// applied now.
func (b *Book) record(r Request, rules Rules) (Entry, bool, error) {
	e := b.next(r, "", rules.Now)
	switch applied := rules.Record.Applied; {
	case r.Kind == Refund && !applied:
		if a, exists := b.accounts.get(AccountKey{r.UserID, r.AssetID}); !exists {
			return Entry{}, false, ErrNoWithdrawal
		} else if a.Units+r.Units <= a.Units {
			return Entry{}, false, ErrRefundOverflow
		}
		e.Kind = LateRefund
	default:
		e.Kind = r.Kind - Withdraw + RecordedWithdraw
		if !applied {
			e.Refused = rules.Record.Refused
		}
		if !applied && e.Refused == "" {
			e.Refused = transfer.ResolvedByOperator
		}
	}
	return e, true, nil
}

// adjust is the entry for an adjustment, if the account holds what it was decided
// by.
func (b *Book) adjust(r Request, rules Rules) (Entry, bool, error) {
	a, exists := b.accounts.get(AccountKey{r.UserID, r.AssetID})
	switch _, ok := a.adjusted(r); {
	case exists && a.Units != rules.Found:
		return Entry{}, false, ErrAccountMoved
	case !exists || !ok:
		return Entry{}, false, ErrOutOfRange
	}
	return b.next(r, "", rules.Now), true, nil
}

// adjusted is what the account holds after the adjustment, and whether it can.
func (a Account) adjusted(r Request) (units uint64, ok bool) {
	switch r.Kind {
	case BalanceCredit:
		return a.Units + r.Units, r.Units > 0 && a.Units+r.Units > a.Units
	case BalanceDebit:
		return a.Units - r.Units, r.Units > 0 && a.Units >= r.Units
	}
	return a.Units, r.Units > 0
}

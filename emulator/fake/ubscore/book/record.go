package book

import "github.com/fencepost/fencepost/shared/transfer"

// mayBeForgotten reports whether the request's unknown key may have been answered and forgotten. A
// refund cannot be forgotten while its withdrawal is remembered: its entry is younger, and the
// oldest entries are forgotten first. An operator's record of the withdrawal can be younger than
// the refund, so it proves nothing.
func (b *Book) mayBeForgotten(r Request) bool {
	if r.CreatedAt >= b.floor {
		return false
	}
	withdrawal := b.answered[key{Withdraw, r.ReqID}]
	return r.Kind != Refund || withdrawal == nil || withdrawal.Kind != Withdraw
}

// ProvedBy reports whether a line of the journal proves the statement about the request.
func (w Word) ProvedBy(r Request, line Entry) bool {
	if r.Kind == Refund && !w.Applied { // no line shows a missing refund, but the withdrawal must be there
		r.Kind = Withdraw
		return line.isAnswerTo(r) && line.Refused == ""
	}
	return line.isAnswerTo(r) && (line.Refused == "") == w.Applied
}

// record returns the entry for an operator's statement about a forgotten key. It moves no money,
// except for a refund that was not applied: a refund is never refused, so it is applied now.
func (b *Book) record(r Request, rules Rules) (Entry, bool, error) {
	e := b.next(r, "", rules.Now)
	switch applied := rules.Record.Applied; {
	case r.Kind == Refund && !applied:
		if a, exists := b.Account(AccountKey{r.UserID, r.AssetID}); !exists {
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

// adjust returns the entry for an adjustment, if the account has the balance it is based on.
func (b *Book) adjust(r Request, rules Rules) (Entry, bool, error) {
	a, exists := b.Account(AccountKey{r.UserID, r.AssetID})
	switch _, ok := a.adjustedUnits(r); {
	case exists && a.Units != rules.Found:
		return Entry{}, false, ErrAccountMoved
	case !exists || !ok:
		return Entry{}, false, ErrOutOfRange
	}
	return b.next(r, "", rules.Now), true, nil
}

// adjustedUnits returns the balance after the adjustment, and whether it is possible.
func (a Account) adjustedUnits(r Request) (units uint64, ok bool) {
	switch r.Kind {
	case BalanceCredit:
		return a.Units + r.Units, r.Units > 0 && a.Units+r.Units > a.Units
	case BalanceDebit:
		return a.Units - r.Units, r.Units > 0 && a.Units >= r.Units
	}
	return a.Units, r.Units > 0
}

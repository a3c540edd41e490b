package checkers

import (
	"cmp"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// legalHistory checks the changes of each transaction in the order in which they were written.
func legalHistory(a *account, report reporter) {
	last := make(map[string]change)
	for _, c := range a.history {
		before, known := last[c.TxID]
		last[c.TxID] = c
		switch {
		case !known && !begins(c):
			report(c.TxID, "change %d: its history begins with %s", c.ID, stateName(c.State, c.Sub))
		case !known:
		case before.State.Terminal():
			report(c.TxID, "change %d: %s after it was %s, which is final", c.ID, stateName(c.State, c.Sub), stateName(before.State, before.Sub))
		case c.From == nil || *c.From != before.State:
			report(c.TxID, "change %d: from %q, and it was %s", c.ID, *cmp.Or(c.From, new(txmanager.State)), before.State)
		case !before.State.MayBecome(c.State) && !c.recorded():
			report(c.TxID, "change %d: %s to %s, which no transition allows", c.ID, before.State, c.State)
		}
	}
	endsAsStored(a, last, report)
}

// endsAsStored compares each transaction's row with its last change.
func endsAsStored(a *account, last map[string]change, report reporter) {
	for _, t := range a.txs {
		c, known := last[t.ID]
		switch delete(last, t.ID); {
		case a.archived[t.ID]:
		case !known:
			report(t.ID, "it is %s without a history", t.ended())
		case c.State != t.State || c.Sub != t.Sub:
			report(t.ID, "it is %s, and its history ends with %s", t.ended(), stateName(c.State, c.Sub))
		}
	}
	for _, txID := range slices.Sorted(maps.Keys(last)) {
		report(txID, "there is a history of it, and no transaction")
	}
}

// recorded reports whether c is the end of a request without a nonce, which a release found on the
// chain.
func (c change) recorded() bool {
	return c.State == txmanager.Confirmed && c.Sub == txmanager.RecordedOnChain
}

// begins reports whether c may be a transaction's first change. That is QUEUED, a reservation, which
// has its nonce at once, or one of two terminal states. One terminal state marks a request that was
// cancelled before it arrived, so that it never runs. The other is a nonce that an operator accepted
// as lost before it was allocated.
func begins(c change) bool {
	return c.From == nil && (c.State == txmanager.Queued || c.State == txmanager.InFlight ||
		c.State == txmanager.Failed && (c.Sub == txmanager.Cancelled || c.Sub == txmanager.Displaced))
}

// fenced reports whether c, the change after before, was written under a lease. Some changes are not,
// and store whichever token they found: an intent's insert, and its cancel before allocation. The same
// holds for the changes that hold a queued intent, let it continue, or match it with a foreign
// transaction.
func (c change) fenced(before change) bool {
	if c.From == nil {
		return c.Sub == txmanager.Displaced || c.State == txmanager.InFlight
	}
	if c.Held {
		return false
	}
	if before.Held && (c.State == txmanager.Queued || c.Sub == txmanager.RecordedOnChain || c.Sub == txmanager.Reverted) { // no other change is made to a held intent
		return *cmp.Or(c.Token, new(int64)) != *cmp.Or(before.Token, new(int64))
	}
	return *c.From != txmanager.Queued || c.State != txmanager.Failed || c.Sub != txmanager.Cancelled
}

// tokenOrder follows the submitter's changes in the order of their commits. A takeover waits for a
// fenced write that is under way.
func tokenOrder(a *account, report reporter) {
	var newest int64
	last := make(map[string]change)
	for _, c := range a.history {
		before := last[c.TxID]
		last[c.TxID] = c
		switch {
		case !c.fenced(before):
		case c.Token == nil:
			report(c.TxID, "change %d to %s: written without a token", c.ID, stateName(c.State, c.Sub))
		case *c.Token < newest:
			report(c.TxID, "change %d to %s: written under token %d after token %d", c.ID, stateName(c.State, c.Sub), *c.Token, newest)
		default:
			newest = *c.Token
		}
	}
	if a.LeaseToken < newest {
		report("", "the lease is at token %d, and a change was written under token %d", a.LeaseToken, newest)
	}
}

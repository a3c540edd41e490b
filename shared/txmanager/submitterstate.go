package txmanager

import (
	"cmp"
	"slices"
)

// submitterOf is the submitter that w was loaded for.
func (w SubmitterState) submitterOf() Submitter { return Submitter(w.Lease.Submitter) }

// afterCommit is w after wr was written in full.
func (w SubmitterState) afterCommit(wr Commit) SubmitterState {
	for _, use := range w.feeUses(wr) {
		w.Bounds = w.Bounds.withFee(use.AddedWei)
	}
	w.Open, w.Queue = wr.applyTo(w.Open), wr.applyTo(w.Queue)
	w.Expired = slices.DeleteFunc(wr.applyTo(w.Expired), func(t Tx) bool { return t.State != Queued })
	for _, a := range wr.Allocations {
		w.Open = append(w.openWithout(a.FromReservation), a.Tx)
		w.NextNonce = max(w.NextNonce, a.Nonce+1)
	}
	w.Open = slices.DeleteFunc(w.Open, func(t Tx) bool { return t.State.Terminal() })
	slices.SortFunc(w.Open, func(a, b Tx) int { return cmp.Compare(*a.Nonce, *b.Nonce) })
	for _, t := range w.Queue {
		if w.isDeferred(t) && (w.LowestDeferredUntil == nil || *t.DeferredUntilNonce < *w.LowestDeferredUntil) {
			w.LowestDeferredUntil = t.DeferredUntilNonce
		}
	}
	w.Queue = slices.DeleteFunc(w.Queue, func(t Tx) bool { return t.State != Queued || w.isDeferred(t) || t.NoKey })
	return w.withoutDeferred().afterCursorChange(wr.Cursor)
}

// afterCursorChange is w after c.
func (w SubmitterState) afterCursorChange(c CursorChange) SubmitterState {
	w.FinalHead = max(w.FinalHead, c.FinalHead)
	if c.FinalBlocks != nil {
		w.FinalBlocks = c.FinalBlocks
	}
	if c.HeldBackSince != nil {
		w.HeldBackSince = c.HeldBackSince
	}
	switch {
	case c.Suspect != nil:
		w.SuspectedViolation = c.Suspect
	case c.ClearSuspected:
		w.SuspectedViolation = nil
	case c.OpenIncident != nil:
		w.Protected, w.Evidence, w.SuspectedViolation = true, c.OpenIncident, nil
	}
	return w
}

// isDeferred reports whether t waits for a nonce that is still open.
func (w SubmitterState) isDeferred(t Tx) bool {
	return t.DeferredUntilNonce != nil && w.hasOpenUpTo(*t.DeferredUntilNonce)
}

// hasOpenUpTo reports whether a nonce up to n is open.
func (w SubmitterState) hasOpenUpTo(n uint64) bool {
	return len(w.Open) > 0 && w.lowestOpenNonce() <= n
}

// applyTo is a copy of list after the transitions and versions of wr, without the transactions
// that wr allocates.
func (wr Commit) applyTo(list []Tx) []Tx {
	become := make(map[string]Tx, len(wr.Transitions)+len(wr.Versions))
	for _, m := range wr.Transitions {
		become[m.To.ID] = m.To
	}
	for _, v := range wr.Versions {
		become[v.Tx.ID] = v.Tx
	}
	gone := make(map[string]bool, len(wr.Allocations))
	for _, a := range wr.Allocations {
		gone[a.Tx.ID] = true
	}
	kept := make([]Tx, 0, len(list)+len(wr.Allocations))
	for _, t := range list {
		if gone[t.ID] {
			continue
		}
		if next, ok := become[t.ID]; ok {
			t = next
		}
		kept = append(kept, t)
	}
	return kept
}

// queuedTx is the queued transaction with t's id, as it was loaded.
func (w SubmitterState) queuedTx(t Tx) Tx {
	return w.Queue[slices.IndexFunc(w.Queue, func(x Tx) bool { return x.ID == t.ID })]
}

// onlyBound is wr without the allocations that the store did not bind.
func (wr Commit) onlyBound(done CommitResult) Commit {
	wr.Allocations = wr.Allocations[:done.Allocated]
	return wr
}

// openByID lists the open transactions with these ids, by nonce.
func (w SubmitterState) openByID(ids []string) []Tx {
	picked := idSet(ids)
	return slices.DeleteFunc(slices.Clone(w.Open), func(t Tx) bool { return !picked[t.ID] })
}

// idSet is a set of ids.
func idSet(ids []string) map[string]bool {
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

package rules

import (
	"cmp"
	"slices"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
)

// AfterCommit is w after wr was written in full.
func AfterCommit(w txmanager.SubmitterState, wr txmanager.Commit) txmanager.SubmitterState {
	for _, use := range gas.FeeUses(w, wr) {
		w.Bounds = w.Bounds.WithFee(use.AddedWei)
	}
	w.Open, w.Queue = applyTo(wr, w.Open), applyTo(wr, w.Queue)
	w.Expired = slices.DeleteFunc(applyTo(wr, w.Expired), func(t txmanager.Tx) bool { return t.State != txmanager.Queued })
	for _, a := range wr.Allocations {
		w.Open = append(OpenWithout(w, a.FromReservation), a.Tx)
		w.NextNonce = max(w.NextNonce, a.Nonce+1)
	}
	w.Open = slices.DeleteFunc(w.Open, func(t txmanager.Tx) bool { return t.State.Terminal() })
	slices.SortFunc(w.Open, func(a, b txmanager.Tx) int { return cmp.Compare(*a.Nonce, *b.Nonce) })
	for _, t := range w.Queue {
		if isDeferred(w, t) && (w.LowestDeferredUntil == nil || *t.DeferredUntilNonce < *w.LowestDeferredUntil) {
			w.LowestDeferredUntil = t.DeferredUntilNonce
		}
	}
	w.Queue = slices.DeleteFunc(w.Queue, func(t txmanager.Tx) bool { return t.State != txmanager.Queued || isDeferred(w, t) || t.NoKey })
	return afterCursorChange(withoutDeferred(w), wr.Cursor)
}

// afterCursorChange is w after c.
func afterCursorChange(w txmanager.SubmitterState, c txmanager.CursorChange) txmanager.SubmitterState {
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
func isDeferred(w txmanager.SubmitterState, t txmanager.Tx) bool {
	return t.DeferredUntilNonce != nil && hasOpenUpTo(w, *t.DeferredUntilNonce)
}

// hasOpenUpTo reports whether a nonce up to n is open.
func hasOpenUpTo(w txmanager.SubmitterState, n uint64) bool {
	return len(w.Open) > 0 && w.LowestOpenNonce() <= n
}

// applyTo is a copy of list after the transitions and versions of wr, without the transactions
// that wr allocates.
func applyTo(wr txmanager.Commit, list []txmanager.Tx) []txmanager.Tx {
	become := make(map[string]*txmanager.Tx, len(wr.Transitions)+len(wr.Versions)+len(wr.Allocations)) // nil: allocated
	for _, m := range wr.Transitions {
		become[m.To.ID] = &m.To
	}
	for _, v := range wr.Versions {
		become[v.Tx.ID] = &v.Tx
	}
	for _, a := range wr.Allocations {
		become[a.Tx.ID] = nil
	}
	kept := make([]txmanager.Tx, 0, len(list)+len(wr.Allocations))
	for _, t := range list {
		if next, changed := become[t.ID]; !changed {
			kept = append(kept, t)
		} else if next != nil {
			kept = append(kept, *next)
		}
	}
	return kept
}

// SetOf is the set of a list's elements.
func SetOf[T comparable](list []T) map[T]bool {
	set := make(map[T]bool, len(list))
	for _, one := range list {
		set[one] = true
	}
	return set
}

package nonce

import (
	"cmp"
	"slices"
)

// submitter is whose work this is.
func (w Work) submitter() Submitter { return Submitter(w.Lease.Submitter) }

// with is w after wr: what the database has once wr is written in full.
func (w Work) with(wr Write) Work {
	for _, use := range w.feesOf(wr) {
		w.Bounds = w.Bounds.used(use.AddedWei)
	}
	w.Unsettled, w.Queue = wr.replace(w.Unsettled), wr.replace(w.Queue)
	w.Expired = slices.DeleteFunc(wr.replace(w.Expired), func(t Tx) bool { return t.State != Queued })
	for _, a := range wr.Allocate {
		w.Unsettled = append(w.without(a.From), a.Tx)
		w.NextNonce = max(w.NextNonce, a.Nonce+1)
	}
	w.Unsettled = slices.DeleteFunc(w.Unsettled, func(t Tx) bool { return t.State.Final() })
	slices.SortFunc(w.Unsettled, func(a, b Tx) int { return cmp.Compare(*a.Nonce, *b.Nonce) })
	for _, t := range w.Queue {
		if w.aside(t) && (w.AsideUntil == nil || *t.SetAsideNonce < *w.AsideUntil) {
			w.AsideUntil = t.SetAsideNonce
		}
	}
	w.Queue = slices.DeleteFunc(w.Queue, func(t Tx) bool { return t.State != Queued || w.aside(t) || t.NoKey })
	return w.withoutDeferred().withCursor(wr.Cursor)
}

// withCursor is w after c.
func (w Work) withCursor(c CursorChange) Work {
	w.FinalHead = max(w.FinalHead, c.FinalHead)
	if c.Final != nil {
		w.FinalBlocks = c.Final
	}
	switch {
	case c.Suspect != nil:
		w.Suspicion = c.Suspect
	case c.Trust:
		w.Suspicion = nil
	case c.Protect != nil:
		w.Protected, w.Evidence, w.Suspicion = true, c.Protect, nil
	}
	return w
}

// aside says that t waits for a nonce which is not settled.
func (w Work) aside(t Tx) bool {
	return t.SetAsideNonce != nil && w.holds(*t.SetAsideNonce)
}

// holds says that a nonce up to n is unsettled.
func (w Work) holds(n uint64) bool { return len(w.Unsettled) > 0 && w.lowest() <= n }

// replace is a copy of list with what wr makes of each transaction, and without
// those that it allocates.
func (wr Write) replace(list []Tx) []Tx {
	become := make(map[string]Tx, len(wr.Moves)+len(wr.Store))
	for _, m := range wr.Moves {
		become[m.To.ID] = m.To
	}
	for _, v := range wr.Store {
		become[v.Tx.ID] = v.Tx
	}
	gone := make(map[string]bool, len(wr.Allocate))
	for _, a := range wr.Allocate {
		gone[a.Tx.ID] = true
	}
	kept := make([]Tx, 0, len(list)+len(wr.Allocate))
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

// queued is the transaction of t's id as it was loaded.
func (w Work) queued(t Tx) Tx {
	return w.Queue[slices.IndexFunc(w.Queue, func(x Tx) bool { return x.ID == t.ID })]
}

// bound is wr without the allocations that were not made.
func (wr Write) bound(done Written) Write {
	wr.Allocate = wr.Allocate[:done.Allocated]
	return wr
}

// pick is the unsettled transactions with these ids, by nonce.
func (w Work) pick(ids []string) []Tx {
	picked := named(ids)
	return slices.DeleteFunc(slices.Clone(w.Unsettled), func(t Tx) bool { return !picked[t.ID] })
}

// named is a set of ids.
func named(ids []string) map[string]bool {
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

package nonce

import "slices"

// submitter is whose work this is.
func (w Work) submitter() Submitter { return Submitter(w.Lease.Submitter) }

// with is w after wr: what the database has once wr is written in full.
func (w Work) with(wr Write) Work {
	w.Unsettled, w.Queue = slices.Clone(w.Unsettled), slices.Clone(w.Queue)
	for _, m := range wr.Moves {
		w.put(m.To)
	}
	for _, v := range wr.Store {
		w.put(v.Tx)
	}
	for _, a := range wr.Allocate {
		w.Queue = slices.DeleteFunc(w.Queue, sameID(a.Tx))
		w.Unsettled = append(w.Unsettled, a.Tx)
		w.NextNonce = a.Nonce + 1
	}
	w.Unsettled = slices.DeleteFunc(w.Unsettled, func(t Tx) bool { return t.State.Final() })
	for _, t := range w.Queue {
		if w.aside(t) && (w.AsideUntil == nil || *t.SetAsideNonce < *w.AsideUntil) {
			w.AsideUntil = t.SetAsideNonce
		}
	}
	w.Queue = slices.DeleteFunc(w.Queue, func(t Tx) bool { return t.State != Queued || w.aside(t) })
	return w.withCursor(wr.Cursor)
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

// put replaces the transaction of t's id by t.
func (w Work) put(t Tx) {
	for _, list := range [][]Tx{w.Unsettled, w.Queue} {
		if i := slices.IndexFunc(list, sameID(t)); i >= 0 {
			list[i] = t
		}
	}
}

// queued is the transaction of t's id as it was loaded.
func (w Work) queued(t Tx) Tx { return w.Queue[slices.IndexFunc(w.Queue, sameID(t))] }

func sameID(t Tx) func(Tx) bool { return func(x Tx) bool { return x.ID == t.ID } }

// bound is wr without the allocations that were not made.
func (wr Write) bound(done Written) Write {
	wr.Allocate = wr.Allocate[:done.Allocated]
	return wr
}

// pick is the unsettled transactions with these ids, by nonce.
func (w Work) pick(ids []string) []Tx {
	return slices.DeleteFunc(slices.Clone(w.Unsettled), func(t Tx) bool { return !slices.Contains(ids, t.ID) })
}

package faults

import "sync"

// activeFaults combines the settings of several faults that act on one part at the same time.
// Each fault changes some fields until it ends.
type activeFaults[F any] struct {
	set func(F)

	mu     sync.Mutex
	next   int
	active map[int]func(*F)
}

func newActiveFaults[F any](set func(F)) *activeFaults[F] {
	return &activeFaults[F]{set: set, active: make(map[int]func(*F))}
}

// begin adds a change; the returned function removes it.
func (w *activeFaults[F]) begin(change func(*F)) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := w.next
	w.next++
	w.active[id] = change
	w.apply()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.active, id)
		w.apply()
	}
}

func (w *activeFaults[F]) apply() {
	var f F
	for _, change := range w.active {
		change(&f)
	}
	w.set(f)
}

// strikeCounter divides a growing count among faults: each strike is claimed once.
type strikeCounter[K comparable] struct {
	mu      sync.Mutex
	claimed map[K]int
}

// claim returns the strikes of k since the last claim, given their total so far.
func (t *strikeCounter[K]) claim(k K, sofar int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.claimed == nil {
		t.claimed = make(map[K]int)
	}
	fresh := sofar - t.claimed[k]
	t.claimed[k] = sofar
	return fresh
}

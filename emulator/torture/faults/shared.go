package faults

import (
	"sync"
)

// activeFaults is what several faults want of one part at the same time: each changes
// a field or two, and ends when it likes.
type activeFaults[F any] struct {
	set func(F)

	mu     sync.Mutex
	next   int
	active map[int]func(*F)
}

func newActiveFaults[F any](set func(F)) *activeFaults[F] {
	return &activeFaults[F]{set: set, active: make(map[int]func(*F))}
}

// begin adds a change; the function returned takes it back.
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

// sharedHold keeps something stopped for as long as anybody wants it to be.
type sharedHold struct {
	first, last func()

	mu    sync.Mutex
	count int
}

func (h *sharedHold) take() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count++; h.count == 1 {
		h.first()
	}
}

func (h *sharedHold) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count--; h.count == 0 {
		h.last()
	}
}

// strikeCounter shares out a count that only grows: each strike is claimed once.
type strikeCounter[K comparable] struct {
	mu      sync.Mutex
	claimed map[K]int
}

// claim is how often k struck since the last claim, given how often it struck so
// far.
func (t *strikeCounter[K]) claim(k K, sofar int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.claimed == nil {
		t.claimed = make(map[K]int)
	}
	news := sofar - t.claimed[k]
	t.claimed[k] = sofar
	return news
}

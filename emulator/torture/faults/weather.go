package faults

import (
	"sync"
)

// weather is what several faults want of one part at the same time: each changes
// a field or two, and ends when it likes.
type weather[F any] struct {
	set func(F)

	mu     sync.Mutex
	next   int
	active map[int]func(*F)
}

func newWeather[F any](set func(F)) *weather[F] {
	return &weather[F]{set: set, active: make(map[int]func(*F))}
}

// begin adds a change; the function returned takes it back.
func (w *weather[F]) begin(change func(*F)) (end func()) {
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

func (w *weather[F]) apply() {
	var f F
	for _, change := range w.active {
		change(&f)
	}
	w.set(f)
}

// hold keeps something stopped for as long as anybody wants it to be.
type hold struct {
	first, last func()

	mu      sync.Mutex
	holders int
}

func (h *hold) take() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holders++; h.holders == 1 {
		h.first()
	}
}

func (h *hold) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holders--; h.holders == 0 {
		h.last()
	}
}

// tally shares out a count that only grows: each strike is claimed once.
type tally[K comparable] struct {
	mu      sync.Mutex
	claimed map[K]int
}

// claim is how often k struck since the last claim, given how often it struck so
// far.
func (t *tally[K]) claim(k K, sofar int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.claimed == nil {
		t.claimed = make(map[K]int)
	}
	news := sofar - t.claimed[k]
	t.claimed[k] = sofar
	return news
}

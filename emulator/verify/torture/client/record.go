package client

import (
	"slices"
	"sync"
	"time"
)

// Record is embedded by the ledgers of a run. R is a request, and C a contradiction: an answer that must not be
// given. The zero value is ready, and several goroutines can use it.
type Record[R, C any] struct {
	mu             sync.Mutex
	requests       []*R
	counts         map[string]int
	contradictions []C
	backups        []time.Time // start time of each backup that was restored
}

// Add adds a request.
func (r *Record[R, C]) Add(request *R) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, request)
}

// Requests returns all requests.
func (r *Record[R, C]) Requests() []*R {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// Count counts one act of that name.
func (r *Record[R, C]) Count(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = make(map[string]int)
	}
	r.counts[name]++
}

// Did returns how often each of the named acts was counted.
func (r *Record[R, C]) Did(names []string) map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]int)
	for _, name := range names {
		all[name] = r.counts[name]
	}
	return all
}

// Contradict adds a contradiction.
func (r *Record[R, C]) Contradict(c C) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.contradictions = append(r.contradictions, c)
}

// Contradictions returns all contradictions.
func (r *Record[R, C]) Contradictions() []C {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.contradictions)
}

// Restored records that a copy whose backup began at backedUp has replaced the database. Later answers may be
// lost, so each client without a final answer repeats its request.
func (r *Record[R, C]) Restored(backedUp time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.backups = append(r.backups, backedUp)
}

// Generation is the number of restores so far. It identifies the database that gives an answer.
func (r *Record[R, C]) Generation() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.backups)
}

// MayBeLost reports whether a restore may have lost an answer that the database of that generation gave at that
// time. An answer from before the backup must still hold.
func (r *Record[R, C]) MayBeLost(generation int, at time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return generation < len(r.backups) && !at.Before(r.backups[generation])
}

package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// groupCommit stores the creates that wait in this process at the same time in one round trip
// and one commit. A create that finds no round trip under way starts one at once. Creates that
// arrive meanwhile share the next one. No create waits for others to arrive. Each round trip
// is made by one of the creates in it.
type groupCommit struct {
	mu      sync.Mutex
	running bool // a round trip is on the way, and not slow
	waiting []*pendingCreate
}

// pendingCreate is one waiting create. It is answered once.
type pendingCreate struct {
	ctx    context.Context
	intent Intent
	bound  int
	answer chan Created
	lead   chan struct{} // it is to make the next round trip
}

const (
	// maxBatchCreates and maxBatchBytes limit the creates of one batch, and their payloads.
	maxBatchCreates = 500
	maxBatchBytes   = 4 << 20

	// slowCommitAfter is when a round trip counts as slow and the next may start beside it. It
	// may have met a row that another session has locked.
	slowCommitAfter = 50 * time.Millisecond

	// batchTimeout limits a round trip of many requests, because no single request's context
	// may end it.
	batchTimeout = 15 * time.Second
)

// errBatchUnanswered is the error of a create whose round trip ended without an answer.
var errBatchUnanswered = errors.New("the round trip of this create did not end")

// create answers as [Store.Create] does.
func (s *Store) create(ctx context.Context, in Intent, bound int) (Created, error) {
	g := &s.groupCommit
	w := &pendingCreate{ctx, in, bound, make(chan Created, 1), make(chan struct{}, 1)}
	g.join(w)
	select {
	case got := <-w.answer:
		return got, got.Err
	case <-w.lead:
		s.commitBatch(w) // w among them: it has its answer then
		got := <-w.answer
		return got, got.Err
	case <-ctx.Done():
		if g.leave(w) {
			return Created{}, ctx.Err()
		}
		got := <-w.answer // its round trip is under way and may store it: the caller needs the answer to enqueue its task
		return got, got.Err
	}
}

// join adds w to the waiting creates.
func (g *groupCommit) join(w *pendingCreate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, w)
	if !g.running {
		g.passLead()
	}
}

// leave removes w if no batch has taken it, and passes on the lead if w had it.
func (g *groupCommit) leave(w *pendingCreate) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Contains(g.waiting, w) {
		return false
	}
	g.waiting = slices.DeleteFunc(g.waiting, func(x *pendingCreate) bool { return x == w })
	select {
	case <-w.lead:
		g.passLead()
	default:
	}
	return true
}

// passLead makes the first waiting create the leader of the next round trip. The caller holds
// the lock.
func (g *groupCommit) passLead() {
	if g.running = len(g.waiting) > 0; g.running {
		g.waiting[0].lead <- struct{}{}
	}
}

// takeBatch takes w and the creates that share its round trip.
func (g *groupCommit) takeBatch(w *pendingCreate) []*pendingCreate {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, bytes := 0, 0
	for n < len(g.waiting) && n < maxBatchCreates && (n == 0 || bytes < maxBatchBytes) {
		bytes += len(g.waiting[n].intent.Payload)
		n++
	}
	together := slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	return together
}

// commitBatch makes one round trip for w and all waiting creates. Its costs are counted as
// w's.
func (s *Store) commitBatch(w *pendingCreate) {
	all := s.groupCommit.takeBatch(w)
	next := sync.OnceFunc(func() {
		s.groupCommit.mu.Lock()
		defer s.groupCommit.mu.Unlock()
		s.groupCommit.passLead()
	})
	slow := time.AfterFunc(slowCommitAfter, next)
	defer func() {
		slow.Stop()
		next()
		for _, w := range all {
			select {
			case w.answer <- Created{Err: errBatchUnanswered}: // after a panic
			default:
			}
		}
	}()
	ctx := w.ctx
	if len(all) > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), batchTimeout)
		defer cancel()
	}
	s.answerBatch(ctx, all)
}

// answerBatch stores them all at once, and answers each.
func (s *Store) answerBatch(ctx context.Context, all []*pendingCreate) {
	intents, bound := make([]Intent, len(all)), all[0].bound
	for i, w := range all {
		intents[i] = w.intent
		bound = min(bound, w.bound)
	}
	results, err := s.CreateAll(ctx, intents, bound)
	for i, w := range all {
		if err != nil {
			w.answer <- Created{Err: err}
			continue
		}
		w.answer <- results[i]
	}
}

package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// gathering makes one round trip and one commit of the creates that wait in this
// process at the same time. Who finds nobody on the way goes at once; who comes
// meanwhile goes with all others in the next. Nothing is held back to wait for
// company. Each round trip is made by one of those that it is for.
type gathering struct {
	mu      sync.Mutex
	onWay   bool // a round trip is on the way, and not slow
	waiting []*waiter
}

// waiter is one create. Its answer is given once.
type waiter struct {
	ctx    context.Context
	intent Intent
	bound  int
	answer chan Created
	lead   chan struct{} // it is to make the next round trip
}

const (
	// gatherMost and gatherBytes are how many creates go together, and how much
	// payload.
	gatherMost  = 500
	gatherBytes = 4 << 20

	// gatherPatience is when a round trip counts as slow, and keeps nobody waiting any
	// more: it may have met a row that somebody else has locked.
	gatherPatience = 50 * time.Millisecond

	// gatherWithin bounds a round trip of many requests: none of them ends it.
	gatherWithin = 15 * time.Second
)

// errLeft is what a create is told whose round trip ended without an answer.
var errLeft = errors.New("the round trip of this create did not come to its end")

// create answers as [Store.Create] does.
func (s *Store) create(ctx context.Context, in Intent, bound int) (Created, error) {
	g := &s.gather
	w := &waiter{ctx, in, bound, make(chan Created, 1), make(chan struct{}, 1)}
	g.join(w)
	select {
	case got := <-w.answer:
		return got, got.Err
	case <-w.lead:
		s.goTogether(w) // w among them: it has its answer then
		got := <-w.answer
		return got, got.Err
	case <-ctx.Done():
		if g.leave(w) {
			return Created{}, ctx.Err()
		}
		got := <-w.answer // it is on its way and may be stored: somebody has to ask for its task
		return got, got.Err
	}
}

// join adds w to those who wait.
func (g *gathering) join(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, w)
	if !g.onWay {
		g.handOver()
	}
}

// leave takes w away, if it has not departed with others, and hands on what it was
// handed.
func (g *gathering) leave(w *waiter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Contains(g.waiting, w) {
		return false
	}
	g.waiting = slices.DeleteFunc(g.waiting, func(x *waiter) bool { return x == w })
	select {
	case <-w.lead:
		g.handOver()
	default:
	}
	return true
}

// handOver has the first who waits make the next round trip. The lock is held.
func (g *gathering) handOver() {
	if g.onWay = len(g.waiting) > 0; g.onWay {
		g.waiting[0].lead <- struct{}{}
	}
}

// depart is who goes with w, w among them.
func (g *gathering) depart(w *waiter) []*waiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, bytes := 0, 0
	for n < len(g.waiting) && n < gatherMost && (n == 0 || bytes < gatherBytes) {
		bytes += len(g.waiting[n].intent.Payload)
		n++
	}
	together := slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	return together
}

// goTogether makes one round trip for w and all that wait. Its costs are w's.
func (s *Store) goTogether(w *waiter) {
	all := s.gather.depart(w)
	next := sync.OnceFunc(func() {
		s.gather.mu.Lock()
		defer s.gather.mu.Unlock()
		s.gather.handOver()
	})
	slow := time.AfterFunc(gatherPatience, next)
	defer func() {
		slow.Stop()
		next()
		for _, w := range all {
			select {
			case w.answer <- Created{Err: errLeft}: // after a panic
			default:
			}
		}
	}()
	ctx := w.ctx
	if len(all) > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), gatherWithin)
		defer cancel()
	}
	s.answer(ctx, all)
}

// answer stores them all at once, and answers each.
func (s *Store) answer(ctx context.Context, all []*waiter) {
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

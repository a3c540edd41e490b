package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// gathering makes one round trip and one commit of the creates that wait in this
// process at the same time. Who finds nobody on the way goes at once; who comes
// meanwhile goes with all others in the next. Nothing is held back to wait for
// company.
type gathering struct {
	mu      sync.Mutex
	onWay   int // round trips that are not slow
	waiting []*waiter
}

// waiter is one create. Its answer is given once.
type waiter struct {
	ctx    context.Context
	intent Intent
	bound  int
	answer chan Created
}

const (
	// gatherMost is how many creates go together.
	gatherMost = 500

	// gatherOnWay is how many round trips are on the way before the next wait for
	// one to end: one sends while the other waits for its commit.
	gatherOnWay = 1

	// gatherPatience is when a round trip counts as slow, and keeps nobody waiting any
	// more: it may have met a row that somebody else has locked.
	gatherPatience = 50 * time.Millisecond

	// gatherWithin bounds a round trip: it is of many requests, so none of them ends it.
	gatherWithin = 15 * time.Second
)

// create answers as [Store.Create] does.
func (s *Store) create(ctx context.Context, in Intent, bound int) (Created, error) {
	w := &waiter{ctx, in, bound, make(chan Created, 1)}
	s.gather.mu.Lock()
	s.gather.waiting = append(s.gather.waiting, w)
	s.depart()
	s.gather.mu.Unlock()
	select {
	case got := <-w.answer:
		return got, got.Err
	case <-ctx.Done():
		return Created{}, ctx.Err()
	}
}

// depart sends who waits on their way, if there is room. The lock is held.
func (s *Store) depart() {
	for s.gather.onWay < gatherOnWay && len(s.gather.waiting) > 0 {
		n := min(len(s.gather.waiting), gatherMost)
		together := s.gather.waiting[:n:n]
		s.gather.waiting = s.gather.waiting[n:]
		s.gather.onWay++
		go s.goTogether(together)
	}
}

func (s *Store) goTogether(all []*waiter) {
	arrived := sync.OnceFunc(func() {
		s.gather.mu.Lock()
		defer s.gather.mu.Unlock()
		s.gather.onWay--
		s.depart()
	})
	slow := time.AfterFunc(gatherPatience, arrived)
	// The costs are those of the first, who waits for all.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(all[0].ctx), gatherWithin)
	defer cancel()
	s.answer(ctx, all)
	slow.Stop()
	arrived()
}

// answer stores them all at once. If the database refuses the whole for the sake
// of one of them, each goes by itself, and only that one is refused.
func (s *Store) answer(ctx context.Context, all []*waiter) {
	intents, bound := make([]Intent, len(all)), all[0].bound
	for i, w := range all {
		intents[i] = w.intent
		bound = min(bound, w.bound)
	}
	results, err := s.CreateAll(ctx, intents, bound)
	switch {
	case err != nil && len(all) > 1 && rolledBack(err):
		for _, w := range all {
			s.answer(ctx, []*waiter{w})
		}
	case err != nil:
		for _, w := range all {
			w.answer <- Created{Err: err}
		}
	default:
		for i, w := range all {
			w.answer <- results[i]
		}
	}
}

// rolledBack says that the database took nothing, for the sake of one of many: of
// what a row holds (class 22, data exceptions, and 23, constraints), or of a row
// that somebody else has locked (class 40, deadlocks among them; 55P03,
// lock_timeout; 57014, statement_timeout). The codes:
// https://www.postgresql.org/docs/15/errcodes-appendix.html.
func rolledBack(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (slices.Contains([]string{"22", "23", "40"}, pg.Code[:2]) || pg.Code == "55P03" || pg.Code == "57014")
}

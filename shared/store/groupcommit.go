package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
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

// isRolledBack reports whether the database rolled the batch back because of one of its rows.
// The cause is the row's values (class 22, data exceptions, or 23, constraints) or another
// session's lock. Locks are class 40 (deadlocks among them), 55P03 (lock_timeout) and 57014
// (statement_timeout). The codes: https://www.postgresql.org/docs/15/errcodes-appendix.html.
func isRolledBack(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (slices.Contains([]string{"22", "23", "40"}, pg.Code[:2]) || pg.Code == "55P03" || pg.Code == "57014")
}

// singleCreateTimeout is how long each create waits for a lock when a refused batch is stored
// one by one. The batch has already waited for that lock.
const singleCreateTimeout = 250 * time.Millisecond

// createSingly stores each intent separately after the batch was refused with cause, so that
// only the intent at fault is refused. A client that is frozen while it sends a batch holds
// its locks for as long as its socket lives. createSingly ends such sessions first.
func (s *Store) createSingly(ctx context.Context, all []Intent, queueBound int, cause error) ([]Created, error) {
	if blocked(cause) {
		if err := s.endFrozen(ctx); err != nil {
			return nil, err
		}
	}
	results := make([]Created, len(all))
	for i := range all {
		one, err := s.createAll(ctx, all[i:i+1], queueBound, new(singleCreateTimeout), false)
		switch {
		case err != nil && !isRolledBack(err):
			return nil, err
		case err != nil:
			results[i].Err = err
		default:
			results[i] = one[0]
		}
	}
	return results, nil
}

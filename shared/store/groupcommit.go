package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/shared/batch"
	"github.com/fencepost/fencepost/shared/store/internal/results"
)

// pendingCreate is one create that may share a round trip with others.
type pendingCreate struct {
	intent Intent
	bound  int
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

	// maxAlone is how many calls of a kind go alone at once after a round trip of many was refused. Those
	// that wait longer than slowCommitAfter do not count.
	maxAlone = 4

	// sharedLockWait is how long a create of many requests waits for one lock. Then each request is stored
	// alone, and waits for as long as its session may.
	sharedLockWait = time.Second
)

// newCreates is the group of creates, which share round trips and commits.
func (s *Store) newCreates() *batch.Group[pendingCreate, Created] {
	return batch.New(batch.Options[pendingCreate, Created]{
		Send:      s.answerBatch,
		Size:      func(p pendingCreate) int { return len(p.intent.Payload) },
		MaxSize:   maxBatchBytes,
		MaxCalls:  maxBatchCreates,
		Timeout:   batchTimeout,
		SlowAfter: slowCommitAfter,
		Alone:     maxAlone,
	})
}

// answerBatch stores several intents at once, or one as [Store.CreateAll] does, and answers each. An error is a
// [batch.AloneError] if the database rolled back what it was to store for several requests.
func (s *Store) answerBatch(ctx context.Context, all []pendingCreate) []batch.Result[Created] {
	intents, bound := make([]Intent, len(all)), all[0].bound
	for i, p := range all {
		intents[i] = p.intent
		bound = min(bound, p.bound)
	}
	var created []Created
	var err error
	if len(intents) == 1 {
		created, err = s.CreateAll(ctx, intents, bound)
	} else if created, err = s.createAll(ctx, intents, bound, new(sharedLockWait), false); isRowOrLockError(err) {
		err = batch.AloneError{Cause: err}
	}
	answers := make([]batch.Result[Created], len(all))
	for i := range all {
		if answers[i].Err = err; err == nil {
			answers[i].Value = created[i]
		}
	}
	return answers
}

// isRowOrLockError reports whether the database rolled the batch back because of a row's values
// (class 22, data exceptions, or 23, constraints) or of another session's lock. Locks are class 40 (deadlocks among them), 55P03 (lock_timeout) and 57014
// (statement_timeout). The codes: https://www.postgresql.org/docs/17/errcodes-appendix.html.
func isRowOrLockError(err error) bool {
	code := results.Refusal(err).Code
	return slices.ContainsFunc([]string{"22", "23", "40", "55P03", "57014"}, func(class string) bool { return strings.HasPrefix(code, class) })
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
		case err != nil && !isRowOrLockError(err):
			return nil, err
		case err != nil:
			results[i].Err = err
		default:
			results[i] = one[0]
		}
	}
	return results, nil
}

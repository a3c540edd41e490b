package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/batch"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const (
	// maxBatchCommits and maxCommitBytes limit the commits of one batch, and what they write.
	maxBatchCommits = 200
	maxCommitBytes  = 1 << 20

	// maxSharedBytes is the size from which a commit goes alone: it gains nothing, and others would wait
	// for its rows.
	maxSharedBytes = 64 << 10

	// rowBytes is about what a row of a commit takes, without documents.
	rowBytes = 512
)

// lanePause is the rest of the store's lane after a shared round trip of leases or commits. Calls that come
// meanwhile wait, and go together in the next round trip. So a busy database has fewer transactions for the same work.
// The rest lasts as long as the round trip took, so that round trips take at most half of the time. It is never longer
// than slowCommitAfter. A round trip of one call, and a slow one, have no rest: a store with little work does not wait.
//
// Measured with 1,000 submitters on busy cores: a third of the round trips, a quarter less CPU.
var lanePause = batch.Pause{Factor: 1, Max: slowCommitAfter}

// errNotLocked is why a batch has written nothing of a commit whose lease row it has not locked.
var errNotLocked = errors.New("the lease is not held, or its row is locked")

// newCommits is the group of commits, which share round trips and transactions of the database. No two of
// one submitter do.
func (s *Store) newCommits() *batch.Group[*fencedCommit, txmanager.CommitResult] {
	return batch.New(batch.Options[*fencedCommit, txmanager.CommitResult]{
		Send:      s.answerCommits,
		Key:       func(c *fencedCommit) string { return c.Lease.Submitter },
		Size:      (*fencedCommit).size,
		MaxSize:   maxCommitBytes,
		MaxCalls:  maxBatchCommits,
		Timeout:   2 * s.rules.Duration, // see [lease.Rules.WriteContext]
		SlowAfter: slowCommitAfter,
		Alone:     maxAlone,
		Lane:      &s.lane,
	})
}

// isShareable reports whether every part of c is written by a statement for many submitters.
func (c *fencedCommit) isShareable() bool {
	return len(c.Reservations) == 0 && c.Mark == nil && c.Cursor.OpenIncident == nil && c.Cursor.CloseIncident == nil &&
		!slices.ContainsFunc(c.Transitions, func(t txmanager.Transition) bool { return t.Decision != nil }) &&
		!slices.ContainsFunc(c.Allocations, func(a txmanager.Allocation) bool { return a.FromReservation != "" }) &&
		c.size() <= maxSharedBytes
}

// size is about the number of bytes that c writes.
func (c *fencedCommit) size() int {
	n := rowBytes * (1 + len(c.Transitions) + len(c.Allocations) + len(c.Versions) + len(c.Fees))
	for _, t := range c.Transitions {
		if t.To.Receipt != nil {
			n += len(t.To.Receipt.Document)
		}
	}
	for _, a := range c.Allocations {
		if a.Signed != nil {
			n += len(a.Signed.Raw)
		}
	}
	for _, v := range c.Versions {
		n += len(v.Signed.Raw)
	}
	return n
}

// answerCommits makes one round trip.
func (s *Store) answerCommits(ctx context.Context, calls []*fencedCommit) []batch.Result[txmanager.CommitResult] {
	answers := make([]batch.Result[txmanager.CommitResult], len(calls))
	if len(calls) == 1 {
		answers[0].Value, answers[0].Err = s.commitAlone(ctx, calls[0])
		return answers
	}
	held, err := s.commitTogether(ctx, calls)
	for i, c := range calls {
		switch {
		case err != nil:
			answers[i].Err = err
		case !slices.Contains(held, c.Lease.Submitter):
			answers[i].Err = batch.AloneError{Cause: errNotLocked}
		default:
			answers[i].Value = c.result
		}
	}
	return answers
}

// lockLeases is the fence of many commits. It locks the lease rows of those that hold their leases, and
// makes [isHeld] true of their records. Those whose row another session has locked are skipped. An expiry
// is read after its row is locked. The statements after it wait only shortly for another session's rows:
// what they cannot write soon goes alone.
var lockLeases = `
with locked as (
  select l.submitter, l.fencing_token, l.expires_at
    from ` + RecordSet(fenceColumns, 0, "w") + `
    join submitter_lease l on l.submitter = w.submitter and l.owner_node = w.owner and l.fencing_token = w.token
   order by w.place
     for no key update of l skip locked
)
select array_agg(submitter::text), set_config('fencepost.held', coalesce(jsonb_object_agg(submitter::text, fencing_token), '{}')::text, true),
       set_config('lock_timeout', '250ms', true)
  from locked
 where expires_at > clock_timestamp()`

// fenceColumns are what a lease gives to [lockLeases].
var fenceColumns = fencedColumns(partValue("owner", "text", func(l *lease.Lease) string { return l.Owner }))

// commitTogether commits what different submitters write: begin, fence, writes, commit, query of the queues,
// in one round trip. A commit whose submitter is not in held wrote nothing: its lease is not held, or another
// session has locked its row. Made alone, it waits for the row, or is fenced.
//
// The error is a [batch.AloneError] if the database rolled the transaction back because of one of its rows. With
// any other error it is unknown whether the transaction was committed, and it is not repeated.
func (s *Store) commitTogether(ctx context.Context, calls []*fencedCommit) (held []string, err error) {
	all := fencedCommits(slices.SortedFunc(slices.Values(calls), func(x, y *fencedCommit) int { return strings.Compare(x.Lease.Submitter, y.Lease.Submitter) }))
	leases := partsOf(all, func(c *fencedCommit) []lease.Lease { return []lease.Lease{c.Lease} })
	first := slices.MinFunc(leases, func(x, y fenced[lease.Lease]) int { return cmp.Compare(x.lease.Left(), y.lease.Left()) })
	ctx, cancel := s.rules.WriteContext(ctx, first.lease)
	defer cancel()
	var committed bool
	b := new(pgx.Batch)
	b.Queue("begin")
	b.Queue(lockLeases, RecordArrays(nil, fenceColumns, leases)...).QueryRow(results.Scan(&held, nil, nil))
	s.queueWrites(b, all)
	b.Queue("commit").Exec(results.Done(&committed))
	s.queueRecheck(b, all)
	switch err := s.db.SendBatch(ctx, b).Close(); {
	case err != nil && !committed && IsRolledBack(err):
		return nil, batch.AloneError{Cause: err}
	case err != nil && !committed:
		return nil, err
	case err != nil: // the query of the queues failed: each submitter's next task makes it
		for _, c := range all {
			c.result.Queued = txmanager.AdvanceNowQueue
		}
	}
	return held, nil
}

package transfers

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/batch"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/transfer"
)

const (
	// maxBatchWrites limits the writes of one transaction.
	maxBatchWrites = 200

	// slowWriteAfter is when a transaction counts as slow and the next may start beside it. It may
	// have met a row that another session has locked.
	slowWriteAfter = 250 * time.Millisecond

	// maxAlone is how many writes go alone at once after a transaction of many was refused, without slow ones.
	maxAlone = 4

	// batchTimeout limits a transaction of many callers, because no single caller's context may end
	// it.
	batchTimeout = 15 * time.Second
)

// lanePause is the rest of the lane after a shared transaction of several writes. Writes that come meanwhile wait, and
// go together in the next transaction. So a busy database has fewer transactions for the same work. The rest lasts half
// as long as the transaction took, so that transactions take at most two thirds of the time. It is never longer than 25
// ms. A transaction of one write, and a slow one, have no rest: a process with little work does not wait.
//
// Measured with 128 callers on busy cores: a third of the transactions less, and a tenth of the CPU.
var lanePause = batch.Pause{Factor: 0.5, Max: 25 * time.Millisecond}

// write is one write of a transfer that may share its transaction with others: exactly one of its
// fields is set.
type write struct {
	create   *creation
	start    *starting
	move     *transfer.Transition
	postpone *transfer.Postponement
}

// starting is a compare-and-set out of INIT.
type starting struct {
	reqID       string
	initTimeout time.Duration
}

// reqID is the transfer that the write is about.
func (w write) reqID() string {
	switch {
	case w.create != nil:
		return w.create.ReqID
	case w.start != nil:
		return w.start.reqID
	case w.move != nil:
		return w.move.ReqID
	}
	return w.postpone.ReqID
}

// written is what the database has after the commit.
type written struct {
	done  bool // the write was made
	found bool // there is a transfer
	now   transfer.Transfer
}

// writeAll makes all writes in one round trip and one commit: begin, lock, write, commit. After an error each
// write is unknown, unless the transaction was rolled back because of one of them. Where a write changed
// nothing, another round trip reads the stored transfer.
func (s *Store) writeAll(ctx context.Context, all []write) []batch.Result[written] {
	results := make([]batch.Result[written], len(all))
	t := newTransaction(all)
	err := s.send(ctx, t.queue())
	if err != nil && len(all) > 1 && !t.committed && store.IsRolledBack(err) {
		err = batch.AloneError{Cause: err}
	}
	var unread error
	if err == nil {
		unread = s.send(ctx, t.queueReads())
	}
	for i := range all {
		switch {
		case err != nil:
			results[i].Err = err
		case unread != nil && !t.rows[i].found:
			results[i].Err = unread
		default:
			results[i].Value, results[i].Err = t.result(i)
		}
	}
	return results
}

// transaction is the statements for some writes, with their results.
type transaction struct {
	all       []write
	creations []*creation    // those that are inserted, in the order of their keys
	rows      []written      // after the commit, of each write
	place     map[string]int // of the writes, by req_id
	committed bool           // the database has acknowledged the commit
}

func newTransaction(all []write) *transaction {
	t := &transaction{all: all, rows: make([]written, len(all)), place: make(map[string]int)}
	for i, w := range all {
		t.place[w.reqID()] = i
		if w.create != nil && w.create.possible {
			t.creations = append(t.creations, w.create)
		}
	}
	slices.SortFunc(t.creations, compareKeys)
	numberCreations(t.creations)
	return t
}

// lockTransfers locks the rows in the order in which [moves] locks them, so that no two transactions wait for
// each other. Moves alone need no locks before.
const lockTransfers = `
select from transfers_tb
 where req_id = any ($1)
 order by req_id
   for no key update`

// lockWait limits how long the transaction of several callers waits for one lock. Then each write is
// made alone, and waits for as long as its session may.
const lockWait = `set local lock_timeout = '500ms'`

// queue is the statements in their order: locks of users, of transfers, and of keys.
func (t *transaction) queue() *pgx.Batch {
	b, stored := new(pgx.Batch), t.stored()
	if len(t.creations) == 0 && len(stored) == 0 {
		return b
	}
	b.Queue("begin")
	if len(t.all) > 1 {
		b.Queue(lockWait)
	}
	if len(t.creations) > 0 {
		t.queueUserLocks(b)
	}
	if len(t.all) > 1 && slices.ContainsFunc(t.all, func(w write) bool { return w.postpone != nil }) {
		b.Queue(lockTransfers, stored)
	}
	t.queueMoves(b)
	t.queuePostponements(b)
	if len(t.creations) > 0 {
		b.Queue(insertTransfers, store.RecordArrays(nil, creationColumns, t.creations)...).Query(t.scanWritten)
	}
	b.Queue("commit").Exec(results.Done(&t.committed))
	return b
}

// stored are the transfers that are not created.
func (t *transaction) stored() (reqs []string) {
	for _, w := range t.all {
		if w.create == nil {
			reqs = append(reqs, w.reqID())
		}
	}
	return reqs
}

// scanWritten keeps the rows that a statement has written.
func (t *transaction) scanWritten(rows pgx.Rows) error { return t.scan(rows, true) }

func (t *transaction) scan(rows pgx.Rows, done bool) error {
	for rows.Next() {
		now, err := scanTransfer(rows)
		if err != nil {
			return err
		}
		t.rows[t.place[now.ReqID]] = written{done, true, now}
	}
	return rows.Err()
}

const byReqIDs = transferColumns + `
 where t.req_id = any ($1)`

// queueReads reads the stored transfers of the writes that changed nothing.
func (t *transaction) queueReads() *pgx.Batch {
	b := new(pgx.Batch)
	reqs := slices.DeleteFunc(t.stored(), func(id string) bool { return t.rows[t.place[id]].found })
	if len(reqs) > 0 {
		b.Queue(byReqIDs, reqs).Query(func(rows pgx.Rows) error { return t.scan(rows, false) })
	}
	t.queueFinds(b)
	return b
}

// result is that of one write after the commit.
func (t *transaction) result(i int) (written, error) {
	c, got := t.all[i].create, t.rows[i]
	switch {
	case got.found:
		return got, nil
	case c == nil:
		return got, transfer.ErrNotFound
	case c.number > 1: // a limit may count the user's creates before it
		return got, batch.AloneError{Cause: pgx.ErrNoRows}
	}
	return got, nil
}

// postpone does not change state_at, nor any column that the sweep uses without a plan: see due.
const postpone = `
update transfers_tb t
   set retry_count = t.retry_count + 1, failures = t.failures + 1, last_unknown = i.unknown,
       next_attempt_at = clock_timestamp() + least(i.first * 2 ^ least(t.failures, 30), i.most),
       updated_at = clock_timestamp()
  from unnest(@reqs::text[], @states::smallint[], @counts::integer[], @firsts::interval[], @mosts::interval[], @unknowns::text[])
       as i (req_id, state, retry_count, first, most, unknown)
 where t.req_id = i.req_id and t.state = i.state and t.retry_count = i.retry_count` + returningTransfer

func (t *transaction) queuePostponements(b *pgx.Batch) {
	var reqs, unknowns []string
	var states, counts []int32
	var firsts, mosts []time.Duration
	for _, w := range t.all {
		if p := w.postpone; p != nil {
			reqs, unknowns = append(reqs, p.ReqID), append(unknowns, p.Unknown)
			states, counts = append(states, int32(p.State)), append(counts, int32(p.RetryCount))
			firsts, mosts = append(firsts, p.First), append(mosts, p.Most)
		}
	}
	if len(reqs) > 0 {
		b.Queue(postpone, store.NamedArgs{
			"reqs": reqs, "states": states, "counts": counts, "firsts": firsts, "mosts": mosts, "unknowns": unknowns,
		}).Query(t.scanWritten)
	}
}

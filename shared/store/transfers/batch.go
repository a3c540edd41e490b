package transfers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/shared/batch"
	"github.com/fencepost/fencepost/shared/store"
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

// newWrites is the group of writes that share round trips and commits. Two writes of one transfer do
// not share: each is evaluated on the row that the other one left.
func (s *Store) newWrites() *batch.Group[write, written] {
	return batch.New(batch.Options[write, written]{
		Send:      s.writeAll,
		Key:       write.reqID,
		MaxCalls:  maxBatchWrites,
		Timeout:   batchTimeout,
		SlowAfter: slowWriteAfter,
		Alone:     maxAlone,
		Lane:      &batch.Lane{Pause: lanePause},
	})
}

// writeAll makes all writes in one round trip and one commit: begin, lock, write, commit, read. After
// an error each write is unknown, unless the transaction was rolled back because of one of them.
func (s *Store) writeAll(ctx context.Context, all []write) []batch.Result[written] {
	results := make([]batch.Result[written], len(all))
	t := newTransaction(all)
	b := t.queue()
	err := s.send(ctx, b)
	if err != nil && len(all) > 1 && !t.committed && store.IsRolledBack(err) {
		err = batch.AloneError{Cause: err}
	}
	for i := range all {
		if results[i].Err = err; err == nil {
			results[i].Value, results[i].Err = t.result(i)
		}
	}
	return results
}

// transaction is the statements for some writes, with their results.
type transaction struct {
	all       []write
	creations []*creation     // those that are inserted, in the order of their keys
	moved     map[string]bool // by req_id
	rows      []written       // after the commit, of each write
	place     map[string]int  // of the writes of stored transfers, by req_id
	committed bool            // the database has acknowledged the commit
}

func newTransaction(all []write) *transaction {
	t := &transaction{all: all, moved: make(map[string]bool), rows: make([]written, len(all)), place: make(map[string]int)}
	for i, w := range all {
		switch {
		case w.create == nil:
			t.place[w.reqID()] = i
		case w.create.possible:
			t.creations = append(t.creations, w.create)
		}
	}
	slices.SortFunc(t.creations, compareKeys)
	numberCreations(t.creations)
	return t
}

// lockTransfers locks the rows in one order, so that no two transactions wait for each other.
const lockTransfers = `
select from transfers_tb
 where req_id = any ($1)
 order by transfer_id
   for no key update`

// lockWait limits how long the transaction of several callers waits for one lock. Then each write is
// made alone, and waits for as long as its session may.
const lockWait = `set local lock_timeout = '500ms'`

// queue is the statements in their order: locks of users, of transfers, and of keys.
func (t *transaction) queue() *pgx.Batch {
	b := new(pgx.Batch)
	begin := func() {
		if b.Len() > 0 {
			return
		}
		b.Queue("begin")
		if len(t.all) > 1 {
			b.Queue(lockWait)
		}
	}
	if len(t.creations) > 0 {
		begin()
		t.queueUserLocks(b)
	}
	reqs := make([]string, 0, len(t.place))
	for id := range t.place {
		reqs = append(reqs, id)
	}
	if len(reqs) > 0 {
		begin()
	}
	if len(reqs) > 1 || len(reqs) > 0 && len(t.creations) > 0 {
		b.Queue(lockTransfers, reqs)
	}
	if len(t.creations) > 0 {
		t.queueInserts(b)
	}
	t.queueStarts(b)
	t.queueMoves(b)
	t.queuePostponements(b)
	if b.Len() > 0 {
		b.Queue("commit").Exec(func(pgconn.CommandTag) error {
			t.committed = true
			return nil
		})
	}
	if len(reqs) > 0 {
		b.Queue(byReqIDs, reqs).Query(t.scanTransfers)
	}
	t.queueFinds(b)
	return b
}

const byReqIDs = transferColumns + `
 where t.req_id = any ($1)`

func (t *transaction) scanTransfers(rows pgx.Rows) error {
	for rows.Next() {
		found, err := scanTransfer(rows)
		if err != nil {
			return err
		}
		t.rows[t.place[found.ReqID]] = written{t.moved[found.ReqID], true, found}
	}
	return rows.Err()
}

// scanMoved keeps the req_ids that a statement returns.
func (t *transaction) scanMoved(rows pgx.Rows) error {
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, id := range ids {
		t.moved[id] = true
	}
	return err
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

// start checks the age, by the database's clock, and the payer in the statement that writes. So a
// worker that was frozen before it starts nothing that is too old. A payout in INIT does not begin
// while its payer cannot pay, its asset is suspended, or it is halted, because a payment cannot be
// taken back.
//
// The conditions are read once, before the update: the planner would otherwise evaluate them for each
// of many rows.
const start = `
with evaluated as materialized (
  select clock.now, f.transfer_id,
         f.created_at < clock.now - i.init_timeout and ` + untouched + ` as late,
         f.payout_submitter is null or ` + mayPay + ` and ` + mayLeave + ` as may_begin
    from (select clock_timestamp() as now) as clock, unnest($1::text[], $2::interval[]) as i (req_id, init_timeout),
         transfers_tb f, lateral (select f.payout_submitter as submitter) as p
   where f.req_id = i.req_id and f.state = 0
)
update transfers_tb t
   set state = case when late then -10 else 10 end, error_message = case when late then 'EXPIRED' end,
       state_at = now, updated_at = now
  from evaluated
 where t.transfer_id = evaluated.transfer_id and t.state = 0 and (select is_accepted_database()) and (late or may_begin)
returning t.req_id`

func (t *transaction) queueStarts(b *pgx.Batch) {
	var reqs []string
	var timeouts []time.Duration
	for _, w := range t.all {
		if w.start != nil {
			reqs, timeouts = append(reqs, w.start.reqID), append(timeouts, w.start.initTimeout)
		}
	}
	if len(reqs) > 0 {
		b.Queue(start, reqs, timeouts).Query(t.scanMoved)
	}
}

// move returns the transfers that went along their paths.
const move = `select move_transfers($1, $2, $3)`

func (t *transaction) queueMoves(b *pgx.Batch) {
	var reqs, paths, reasons []string
	for _, w := range t.all {
		if w.move != nil {
			reqs, paths, reasons = append(reqs, w.move.ReqID), append(paths, pathText(w.move.Path)), append(reasons, string(w.move.Reason))
		}
	}
	if len(reqs) > 0 {
		b.Queue(move, reqs, paths, reasons).Query(t.scanMoved)
	}
}

// pathText is the states as an array literal.
func pathText(path []transfer.State) string {
	all := make([]string, len(path))
	for i, s := range path {
		all[i] = fmt.Sprint(int16(s))
	}
	return "{" + strings.Join(all, ",") + "}"
}

// postpone does not change state_at, nor any column that the sweep uses without a plan: see due.
const postpone = `
update transfers_tb t
   set retry_count = t.retry_count + 1, failures = t.failures + 1, last_unknown = i.unknown,
       next_attempt_at = clock_timestamp() + least(i.first * 2 ^ least(t.failures, 30), i.most),
       updated_at = clock_timestamp()
  from unnest(@reqs::text[], @states::smallint[], @counts::integer[], @firsts::interval[], @mosts::interval[], @unknowns::text[])
       as i (req_id, state, retry_count, first, most, unknown)
 where t.req_id = i.req_id and t.state = i.state and t.retry_count = i.retry_count
returning t.req_id`

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
		}).Query(t.scanMoved)
	}
}

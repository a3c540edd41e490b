// Package transfers holds the SQL statements on the tables of internal transfers, one file per table.
// Exported methods are transactions, unexported functions statements. It implements [transfer.Store] and
// [transfer.ActionStore].
//
// After an error the write may have happened, unless the method documents otherwise: a commit may
// succeed although its answer was lost. All times are from the database's clock.
package transfers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Store is the port to the tables of internal transfers.
type Store struct {
	db *pgxpool.Pool
}

var (
	_ transfer.Store       = (*Store)(nil)
	_ transfer.ActionStore = (*Store)(nil)
)

// New uses the pool of s; its owner closes it.
func New(s *store.Store) *Store { return &Store{db: s.Pool()} }

// send makes one round trip.
func (s *Store) send(ctx context.Context, b *pgx.Batch) error {
	return s.db.SendBatch(ctx, b).Close()
}

// transferColumns is a row as [scanTransfer] reads it, from transfers_tb t and its assets_tb a.
const transferColumns = `
select t.transfer_id, t.req_id, coalesce(t.cid, ''), t.user_id, t.asset_id, a.asset, t.precision, t.units::text, t.transfer_type,
       t.state, coalesce(t.error_message, ''), t.retry_count, t.failures, coalesce(t.last_unknown, ''),
       t.next_attempt_at, t.state_at, t.created_at, t.updated_at, clock_timestamp(), not (select is_accepted_database()),
       coalesce(t.payout_submitter, ''), coalesce(t.payout_chain_id, 0), coalesce(t.payout_token, ''),
       coalesce(t.payout_address, ''), coalesce(t.payout_base_units, 0)::text, t.payout_payload::text
  from transfers_tb t
  join assets_tb a using (asset_id)`

// scanTransfer reads one row of [transferColumns]. The error is [pgx.ErrNoRows] if there is none.
func scanTransfer(row pgx.Row) (transfer.Transfer, error) {
	var t transfer.Transfer
	var p transfer.Payout
	var units string
	var payload *string
	err := row.Scan(&t.ID, &t.ReqID, &t.CID, &t.UserID, &t.AssetID, &t.Asset, &t.Precision, &units, &t.Type,
		&t.State, &t.Reason, &t.RetryCount, &t.Failures, &t.LastUnknown,
		&t.NextAttemptAt, &t.StateAt, &t.CreatedAt, &t.UpdatedAt, &t.Now, &t.Foreign,
		&p.Submitter, &p.ChainID, &p.Token, &p.Address, &p.BaseUnits, &payload)
	if err != nil {
		return t, err
	}
	if t.Units, err = strconv.ParseUint(units, 10, 64); err != nil {
		return t, fmt.Errorf("units of transfer %s: %w", t.ReqID, err)
	}
	if payload != nil {
		p.Payload = []byte(*payload)
		t.Payout = &p
	}
	return t, nil
}

const byReqID = transferColumns + `
 where t.req_id = $1`

// Load implements [transfer.Store].
func (s *Store) Load(ctx context.Context, reqID string) (transfer.Transfer, error) {
	t, err := scanTransfer(s.db.QueryRow(ctx, byReqID, reqID))
	if errors.Is(err, pgx.ErrNoRows) {
		return t, fmt.Errorf("transfer %s: %w", reqID, transfer.ErrNotFound)
	}
	if err != nil {
		return t, fmt.Errorf("load transfer %s: %w", reqID, err)
	}
	return t, nil
}

// Find returns the user's transfer. The error wraps [transfer.ErrNotFound] if there is none, or it is
// another user's. It wraps [transfer.ErrForeign] if the transfer is missing from a restored database,
// which proves nothing.
func (s *Store) Find(ctx context.Context, reqID string, userID int64) (transfer.Transfer, error) {
	var ours bool
	var t transfer.Transfer
	b := new(pgx.Batch)
	b.Queue(`select is_accepted_database()`).QueryRow(func(row pgx.Row) error { return row.Scan(&ours) })
	b.Queue(byReqID+` and t.user_id = $2`, reqID, userID).QueryRow(func(row pgx.Row) (err error) {
		t, err = scanTransfer(row)
		return err
	})
	err := s.send(ctx, b)
	switch {
	case errors.Is(err, pgx.ErrNoRows) && !ours:
		return t, fmt.Errorf("transfer %s: %w", reqID, transfer.ErrForeign)
	case errors.Is(err, pgx.ErrNoRows):
		return t, fmt.Errorf("transfer %s: %w", reqID, transfer.ErrNotFound)
	case err != nil:
		return t, fmt.Errorf("find transfer %s: %w", reqID, err)
	}
	return t, nil
}

// untouched is true if INIT of transfer f proves that no ledger was called. In a restored copy that is
// not so for transfers accepted before the copy was: they may have continued after the backup. Such a
// transfer is driven, and the ledgers return what they have done.
const untouched = `not exists (select from identity_change c where c.at >= f.created_at)`

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
         f.created_at < clock.now - $2::interval and ` + untouched + ` as late,
         f.payout_submitter is null or ` + mayPay + ` and ` + mayLeave + ` as may_begin
    from (select clock_timestamp() as now) as clock, transfers_tb f, lateral (select f.payout_submitter as submitter) as p
   where f.req_id = $1 and f.state = 0
)
update transfers_tb t
   set state = case when late then -10 else 10 end, error_message = case when late then 'EXPIRED' end,
       state_at = now, updated_at = now
  from evaluated
 where t.transfer_id = evaluated.transfer_id and t.state = 0 and (select is_accepted_database()) and (late or may_begin)`

// mayLeave is true if payout f is not halted and its asset is ACTIVE.
const mayLeave = `exists (select from assets_tb a where a.asset_id = f.asset_id and a.status = 'ACTIVE')
        and not exists (select from transfer_halt h
              where h.resumed_at is null and (h.scope = 'all' or h.asset_id = f.asset_id and coalesce(h.user_id = f.user_id, true)))`

// Start implements [transfer.Store].
func (s *Store) Start(ctx context.Context, reqID string, initTimeout time.Duration) (transfer.TransitionResult, error) {
	return s.moved(ctx, reqID, start, reqID, initTimeout)
}

// moved makes a compare-and-set and reads the row after its commit: begin, write, commit, read, in one
// round trip.
func (s *Store) moved(ctx context.Context, reqID, statement string, args ...any) (transfer.TransitionResult, error) {
	var m transfer.TransitionResult
	b := new(pgx.Batch)
	b.Queue("begin")
	write := b.Queue(statement, args...)
	b.Queue("commit")
	b.Queue(byReqID, reqID).QueryRow(func(row pgx.Row) (err error) {
		m.Now, err = scanTransfer(row)
		return err
	})
	done := countRows(write)
	err := s.send(ctx, b)
	if errors.Is(err, pgx.ErrNoRows) {
		err = transfer.ErrNotFound
	}
	if err != nil {
		return transfer.TransitionResult{}, fmt.Errorf("move transfer %s: %w", reqID, err)
	}
	m.Done = *done == 1
	return m, nil
}

// countRows counts the rows that the statement writes or returns.
func countRows(q *pgx.QueuedQuery) *int64 {
	n := new(int64)
	q.Query(func(rows pgx.Rows) error {
		rows.Close()
		*n = rows.CommandTag().RowsAffected()
		return rows.Err()
	})
	return n
}

// move returns a row if the transfer went along the path, and none otherwise.
const move = `
select true
  from move_transfer($1, $2::smallint[], nullif($3, '')) as done
 where done`

// Move implements [transfer.Store].
func (s *Store) Move(ctx context.Context, m transfer.Transition) (transfer.TransitionResult, error) {
	if err := transfer.Legal(m.Path); err != nil {
		return transfer.TransitionResult{}, fmt.Errorf("move transfer %s: %w", m.ReqID, err)
	}
	return s.moved(ctx, m.ReqID, move, m.ReqID, m.Path, string(m.Reason))
}

// postpone does not change state_at, nor any column that the sweep uses without a plan: see due.
const postpone = `
update transfers_tb
   set retry_count = retry_count + 1, failures = failures + 1, last_unknown = $6,
       next_attempt_at = clock_timestamp() + least($4::interval * 2 ^ least(failures, 30), $5::interval),
       updated_at = clock_timestamp()
 where req_id = $1 and state = $2 and retry_count = $3`

// Postpone implements [transfer.Store].
func (s *Store) Postpone(ctx context.Context, p transfer.Postponement) (transfer.TransitionResult, error) {
	return s.moved(ctx, p.ReqID, postpone, p.ReqID, p.State, p.RetryCount, p.First, p.Most, p.Unknown)
}

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
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/shared/batch"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Store is the port to the tables of internal transfers.
type Store struct {
	db     *pgxpool.Pool
	lane   batch.Lane                   // of the writes, and of the calls to Funding
	writes *batch.Group[write, written] // creates, transitions and postponements, which share round trips and commits
}

var (
	_ transfer.Store       = (*Store)(nil)
	_ transfer.ActionStore = (*Store)(nil)
)

// New uses the pool of s; its owner closes it.
func New(s *store.Store) *Store {
	own := &Store{db: s.Pool(), lane: batch.Lane{Pause: lanePause}}
	own.writes = batch.New(batch.Options[write, written]{
		Send:      own.writeAll,
		Key:       write.reqID, // two writes of one transfer do not share: each is evaluated on the row that the other one left
		MaxCalls:  maxBatchWrites,
		Timeout:   batchTimeout,
		SlowAfter: slowWriteAfter,
		Alone:     maxAlone,
		Lane:      &own.lane,
	})
	return own
}

// Lane is the lane of the writes. A ledger in the same database makes its calls in it too. A call then waits for a
// write that is under way, and a write for a call, each for 250 ms at most. The next write has all transfers whose calls were answered.
func (s *Store) Lane() *batch.Lane { return &s.lane }

// send makes one round trip; none without statements.
func (s *Store) send(ctx context.Context, b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	return s.db.SendBatch(ctx, b).Close()
}

// transferColumns is a row as [scanTransfer] reads it, from transfers_tb t and its assets_tb a.
const transferColumns = transferList + `
  from transfers_tb t
  join assets_tb a using (asset_id)`

const transferList = `
select ` + beforeAsset + `a.asset` + afterAsset

// returningTransfer returns the row of [transferList] that a statement has written.
const returningTransfer = `
returning ` + beforeAsset + `(select a.asset from assets_tb a where a.asset_id = t.asset_id)` + afterAsset

const (
	beforeAsset = `t.transfer_id, t.req_id, coalesce(t.cid, ''), t.user_id, t.asset_id, `
	afterAsset  = `, t.precision, t.units, t.transfer_type,
       t.state, coalesce(t.error_message, ''), t.retry_count, t.failures, coalesce(t.last_unknown, ''),
       t.next_attempt_at, t.state_at, t.created_at, t.updated_at, clock_timestamp(), not (select is_accepted_database()),
       coalesce(t.payout_submitter, ''), coalesce(t.payout_chain_id, 0), coalesce(t.payout_token, ''),
       coalesce(t.payout_address, ''), coalesce(t.payout_base_units, 0)::text, t.payout_payload::text`
)

// scanTransfer reads one row of [transferColumns].
func scanTransfer(row pgx.CollectableRow) (transfer.Transfer, error) { return scanTransferAnd(row) }

// scanTransferAnd reads one row of [transferColumns] with further columns behind it.
func scanTransferAnd(row pgx.CollectableRow, further ...any) (transfer.Transfer, error) {
	var t transfer.Transfer
	var p transfer.Payout
	err := row.Scan(append([]any{&t.ID, &t.ReqID, &t.CID, &t.UserID, &t.AssetID, &t.Asset, &t.Precision, &t.Units, &t.Type,
		&t.State, &t.Reason, &t.RetryCount, &t.Failures, &t.LastUnknown,
		&t.NextAttemptAt, &t.StateAt, &t.CreatedAt, &t.UpdatedAt, &t.Now, &t.Foreign,
		&p.Submitter, &p.ChainID, &p.Token, &p.Address, &p.BaseUnits, &p.Payload}, further...)...)
	if p.Payload != nil {
		t.Payout = &p
	}
	return t, err
}

const byReqID = transferColumns + `
 where t.req_id = $1`

// Load implements [transfer.Store].
func (s *Store) Load(ctx context.Context, reqID string) (transfer.Transfer, error) {
	t, err := results.One(ctx, s.db, scanTransfer, byReqID, reqID)
	return t, results.Wrap(results.Missing(err, transfer.ErrNotFound), "load transfer %s", reqID)
}

// Find returns the user's transfer. The error wraps [transfer.ErrNotFound] if there is none, or it is
// another user's. It wraps [transfer.ErrForeign] if the transfer is missing from a restored database,
// which proves nothing.
func (s *Store) Find(ctx context.Context, reqID string, userID int64) (transfer.Transfer, error) {
	var ours bool
	var t transfer.Transfer
	b := new(pgx.Batch)
	b.Queue(`select is_accepted_database()`).QueryRow(results.Scan(&ours))
	b.Queue(byReqID+` and t.user_id = $2`, reqID, userID).Query(results.Only(&t, scanTransfer))
	err := results.Missing(s.send(ctx, b), transfer.ErrNotFound)
	if errors.Is(err, transfer.ErrNotFound) && !ours {
		err = transfer.ErrForeign
	}
	return t, results.Wrap(err, "find transfer %s", reqID)
}

// untouched is true if INIT of transfer f proves that no ledger was called. In a restored copy that is
// not so for transfers accepted before the copy was: they may have continued after the backup. Such a
// transfer is driven, and the ledgers return what they have done.
const untouched = `not exists (select from identity_change c where c.at >= f.created_at)`

// mayLeave is true if payout f is not halted and its asset is ACTIVE.
const mayLeave = `exists (select from assets_tb a where a.asset_id = f.asset_id and a.status = 'ACTIVE')
        and not exists (select from transfer_halt h
              where h.resumed_at is null and (h.scope = 'all' or h.asset_id = f.asset_id and coalesce(h.user_id = f.user_id, true)))`

// Start implements [transfer.Store].
func (s *Store) Start(ctx context.Context, reqID string, initTimeout time.Duration) (transfer.TransitionResult, error) {
	return s.transition(ctx, write{start: &starting{reqID, initTimeout}})
}

// transition makes a compare-and-set and returns the row after its commit.
func (s *Store) transition(ctx context.Context, w write) (transfer.TransitionResult, error) {
	got, err := s.writes.Do(ctx, w)
	if err != nil {
		return transfer.TransitionResult{}, fmt.Errorf("move transfer %s: %w", w.reqID(), err)
	}
	return transfer.TransitionResult{Done: got.done, Now: got.now}, nil
}

// Move implements [transfer.Store].
func (s *Store) Move(ctx context.Context, m transfer.Transition) (transfer.TransitionResult, error) {
	if err := transfer.Legal(m.Path); err != nil {
		return transfer.TransitionResult{}, fmt.Errorf("move transfer %s: %w", m.ReqID, err)
	}
	return s.transition(ctx, write{move: &m})
}

// Postpone implements [transfer.Store].
func (s *Store) Postpone(ctx context.Context, p transfer.Postponement) (transfer.TransitionResult, error) {
	return s.transition(ctx, write{postpone: &p})
}

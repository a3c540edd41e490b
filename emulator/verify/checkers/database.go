package checkers

import (
	"context"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/checkers/promise"
	"github.com/fencepost/fencepost/emulator/verify/checkers/rows"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// registered holds a submitter's terms, its cursor and its lease.
type registered struct {
	StartNonce    uint64
	NextNonce     uint64
	InFlightTx    *string
	InFlightNonce *uint64
	InFlightState string
	Protected     bool       // a PROTECT incident is open
	LastProtectAt *time.Time // when the last one was opened
	LeaseToken    int64
	LeaseHeld     bool // neither released nor expired
	Wake          bool
}

// version is one row of tx_version with its bytes. Its transaction is nil if the bytes do not decode.
type version struct {
	TxID  string
	Hash  common.Hash
	Nonce uint64
	Raw   []byte // nil: archived

	tx *types.Transaction
}

type change struct {
	ID    int64
	TxID  string
	From  *txmanager.State // nil: the row was inserted
	State txmanager.State
	Sub   txmanager.SubState
	Nonce *uint64
	Token *int64
	Held  bool // the change moved the transaction to held in the queue

	Reason string // why it waits or ended; "": none
}

// readDatabase reads everything in one snapshot.
func readDatabase(ctx context.Context, url string, of []txmanager.Submitter) (accounts []*account) {
	promise.Snapshot(ctx, url, func(tx pgx.Tx) {
		for _, s := range of {
			steps.OK(steps.Run(func() { accounts = append(accounts, readAccount(ctx, tx, s)) }), s)
		}
	})
	return accounts
}

const selectRegistered = `
select s.start_nonce, c.next_nonce, c.in_flight_tx_id, c.in_flight_nonce, c.in_flight_state,
       exists (select from protect_incident p where p.submitter = s.submitter and p.closed_at is null),
       (select max(p.opened_at) from protect_incident p where p.submitter = s.submitter),
       coalesce(l.fencing_token, 0), coalesce(l.owner_node <> '' and l.expires_at > clock_timestamp(), false), coalesce(l.rerun_requested, false)
  from submitter s
  join submitter_nonce_cursor c using (submitter)
  left join submitter_lease l using (submitter)
 where s.submitter = $1`

const selectManaged = `
select m.tx_id, m.request_id, d.body, coalesce(m.handler, ''), m.state, coalesce(m.sub_state, ''), m.nonce, m.receipt, m.confirmed_at,
       coalesce(m.reservation, ''), m.recorded_nonce, m.seq, m.caller
  from managed_tx m
  left join tx_document d on d.tx_id = m.tx_id and d.name = 'payload'
 where m.submitter = $1
 order by m.seq`

const selectVersions = `
select v.tx_id, v.tx_hash, v.nonce, d.bytes
  from tx_version v
  left join tx_document d on d.tx_id = v.tx_id and d.name = 'version:' || v.version
 where v.submitter = $1
 order by v.nonce, v.version`

// selectHistory also selects rows without a transaction, which have no submitter.
const selectHistory = `
select id, tx_id, from_state, state, coalesce(sub_state, ''), nonce, fencing_token, state = 'QUEUED' and coalesce(reason, '') like 'held: %', coalesce(reason, '')
  from tx_history_full
 where submitter = $1 or submitter is null
 order by id`

func readAccount(ctx context.Context, tx pgx.Tx, s txmanager.Submitter) *account {
	row, _ := tx.Query(ctx, selectRegistered, s) // the collector returns this error
	terms, err := pgx.CollectExactlyOneRow(row, pgx.RowToStructByPos[registered])
	steps.OK(err, "its registration")
	return &account{
		submitter: s, registered: terms,
		txs:      rows.All(ctx, tx, pgx.RowToStructByPos[managed], selectManaged, s),
		versions: rows.All(ctx, tx, scanVersion, selectVersions, s),
		history:  rows.All(ctx, tx, pgx.RowToStructByPos[change], selectHistory, s),
	}
}

func scanVersion(row pgx.CollectableRow) (v version, err error) {
	var hash string
	if err := row.Scan(&v.TxID, &hash, &v.Nonce, &v.Raw); err != nil {
		return v, err
	}
	if tx := new(types.Transaction); tx.UnmarshalBinary(v.Raw) == nil {
		v.tx = tx
	}
	parsed, err := txmanager.ParseHash(hash)
	v.Hash = common.Hash(parsed)
	return v, err
}

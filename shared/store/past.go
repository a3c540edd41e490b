package store

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// TxChange is one recorded change of a transaction.
type TxChange struct {
	ID           int64            `json:"-"`
	At           time.Time        `json:"at"`
	From         *txmanager.State `json:"from"` // nil: it was accepted
	State        txmanager.State  `json:"state"`
	SubState     *string          `json:"subState"`
	Nonce        *int64           `json:"nonce"`
	TxHash       *string          `json:"txHash"`
	Attempts     int              `json:"attempts"` // broadcasts of the last version
	Reason       *string          `json:"reason"`
	BlockHash    *string          `json:"blockHash"`
	FencingToken *int64           `json:"fencingToken"` // of the lease under which it was written; nil: none
}

// TxVersion is a signed version of a transaction.
type TxVersion struct {
	Version      int                   `json:"version"`
	Kind         txmanager.VersionKind `json:"kind"`
	TxHash       string                `json:"txHash"`
	SignedAt     time.Time             `json:"signedAt"`
	FencingToken int64                 `json:"fencingToken"`
	Fees         json.RawMessage       `json:"fees"` // a [txmanager.GasParams]; null: its documents are archived
}

// TxDecision is a decision about a transaction.
type TxDecision struct {
	Action     string    `json:"action"`
	By         string    `json:"by"`
	Reason     string    `json:"reason"`
	ApprovedBy *string   `json:"approvedBy"` // the second operator; nil: none was needed
	At         time.Time `json:"at"`
}

// maxListedPast limits the versions and the decisions that are listed, the oldest first.
const maxListedPast = 500

const (
	knownTx   = `select exists (select from managed_tx where tx_id = $1)`
	txHistory = `
select id, at, from_state, state, sub_state, nonce, tx_hash, attempts, reason, block_hash, fencing_token
  from tx_history_full
 where tx_id = $1 and id > $2
 order by id
 limit $3`
	txVersions = `
select v.version, v.kind, v.tx_hash, v.created_at, v.fencing_token, d.body
  from tx_version v
  left join tx_document d on d.tx_id = v.tx_id and d.name = 'version:' || v.version
 where v.tx_id = $1
 order by v.version
 limit $2`
	txDecisions = `
select action, by, reason, approved_by, at from tx_decision where tx_id = $1 order by id limit $2`
)

// TxHistory is a page of a transaction's changes, the oldest first. The page begins after the change
// with the id after; "" is the first page. next is the same for the next page; "" at the end. The
// error is [ErrNotFound] for an unknown transaction.
func (s *Store) TxHistory(ctx context.Context, txID, after string, size int) (page []TxChange, next string, err error) {
	from, _ := strconv.ParseInt(after, 10, 64)
	rows, err := pastOf[TxChange](ctx, s, txID, txHistory, from, size+1)
	if err != nil {
		return nil, "", err
	}
	page, next = results.Page(rows, size, size+1, func(TxChange) bool { return true }, func(r TxChange) string { return strconv.FormatInt(r.ID, 10) })
	return page, next, nil
}

// TxVersions are a transaction's signed versions, the oldest first.
func (s *Store) TxVersions(ctx context.Context, txID string) ([]TxVersion, error) {
	return pastOf[TxVersion](ctx, s, txID, txVersions, maxListedPast)
}

// TxDecisions are the decisions about a transaction, the oldest first.
func (s *Store) TxDecisions(ctx context.Context, txID string) ([]TxDecision, error) {
	return pastOf[TxDecision](ctx, s, txID, txDecisions, maxListedPast)
}

// pastOf reads rows about a transaction in one round trip. The error is [ErrNotFound] if it is unknown.
func pastOf[Row any](ctx context.Context, s *Store, txID, statement string, args ...any) (rows []Row, err error) {
	var known bool
	b := new(pgx.Batch)
	b.Queue(knownTx, txID).QueryRow(results.Scan(&known))
	b.Queue(statement, append([]any{txID}, args...)...).Query(results.Into(&rows, pgx.RowToStructByPos[Row]))
	if err := s.send(ctx, b); err != nil {
		return nil, results.Wrap(err, "read the past of transaction %s", txID)
	}
	if !known {
		return nil, ErrNotFound
	}
	return rows, nil
}

package store

import (
	"context"
	"encoding/json"
	"fmt"
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
	Node         *string          `json:"node"`         // whose observation of the chain led to it; nil: none did
	Broadcast    *Broadcast       `json:"broadcast"`    // the broadcast whose outcome it is; nil: it is none
}

// TxVersion is a signed version of a transaction.
type TxVersion struct {
	Version      int                   `json:"version"`
	Kind         txmanager.VersionKind `json:"kind"`
	TxHash       string                `json:"txHash"`
	SignedAt     time.Time             `json:"signedAt"`   // its first broadcast was stored then too
	LastSentAt   time.Time             `json:"lastSentAt"` // when its last broadcast was stored
	Broadcast    *Broadcast            `json:"broadcast"`  // the last recorded outcome; nil: none is recorded
	FencingToken int64                 `json:"fencingToken"`
	Fees         json.RawMessage       `json:"fees"` // a [txmanager.GasParams]; null: its documents are archived
}

// TxDecision is a decision about a transaction.
type TxDecision struct {
	ID         int64     `json:"-"`
	Action     string    `json:"action"`
	By         string    `json:"by"`
	Reason     string    `json:"reason"`
	ApprovedBy *string   `json:"approvedBy"` // the second operator; nil: none was needed
	At         time.Time `json:"at"`
}

// TxOrder is what the caller of a transaction asked for.
type TxOrder struct {
	Caller       string
	Handler      *string         // makes the transaction out of the payload; nil: the payload is the transaction
	Trace        []byte          // a [telemetry.Origin]; nil: not traced
	Payload      json.RawMessage // as stored; nil: none, or more bytes than were asked for
	PayloadBytes int             // of the stored payload; 0: a reservation and a filled nonce have none, or it is archived
}

// ProtectIncident is a time in which a submitter was in PROTECT.
type ProtectIncident struct {
	Incident int             `json:"incident"`
	OpenedAt time.Time       `json:"openedAt"`
	Evidence json.RawMessage `json:"evidence"` // a [txmanager.Violation], or why a copy of the database was stopped
	ClosedAt *time.Time      `json:"closedAt"` // nil, as what follows: it is open
	ClosedBy *string         `json:"closedBy"`
	Mode     *string         `json:"mode"`
	Reason   *string         `json:"reason"`
	Released json.RawMessage `json:"released"` // the result of the release
}

// Number is the change's place in the history.
func (c TxChange) Number() int64 { return c.ID }

// Number is the version's number.
func (v TxVersion) Number() int64 { return int64(v.Version) }

// Number is the decision's place among the decisions.
func (d TxDecision) Number() int64 { return d.ID }

const (
	knownTx   = `select exists (select from managed_tx where tx_id = $1)`
	txHistory = `
select id, at, from_state, state, sub_state, nonce, tx_hash, attempts, reason, block_hash, fencing_token, node, answers
  from tx_history_full
 where tx_id = $1 and id > $2
 order by id
 limit $3`
	// A change of the hash or of the number of broadcasts is a broadcast, but for a transaction that has ended.
	txVersions = `
with h as materialized (
  select id, at, state, tx_hash, attempts, answers, lag(tx_hash) over past as hash_before, lag(attempts) over past as attempts_before
    from tx_history_full
   where tx_id = $1
  window past as (order by id)
)
select v.version, v.kind, v.tx_hash, v.created_at,
       greatest(v.created_at, m.last_submit_at, (select max(h.at) from h where h.tx_hash = v.tx_hash and h.attempts > 0 and h.state not in ('CONFIRMED', 'FAILED')
                 and (h.tx_hash, h.attempts) is distinct from (h.hash_before, h.attempts_before))),
       (select h.answers from h where h.tx_hash = v.tx_hash and h.answers is not null order by h.id desc limit 1),
       v.fencing_token, d.body
  from tx_version v
  left join managed_tx m on m.tx_id = v.tx_id and not exists (select from tx_version l where l.tx_id = v.tx_id and l.version > v.version)
  left join tx_document d on d.tx_id = v.tx_id and d.name = 'version:' || v.version
 where v.tx_id = $1 and v.version > $2
 order by v.version
 limit $3`
	txDecisions = `
select id, action, by, reason, approved_by, at from tx_decision where tx_id = $1 and id > $2 order by id limit $3`
)

const txOrder = `
select m.caller, m.handler, m.trace, case when octet_length(d.body::text) <= $2 then d.body end, coalesce(octet_length(d.body::text), 0)
  from managed_tx m
  left join tx_document d on d.tx_id = m.tx_id and d.name = 'payload' and m.reservation is null
 where m.tx_id = $1`

// TxOrder is what the caller of the transaction asked for, with a payload of at most that many bytes. The error wraps
// [ErrNotFound] for an unknown transaction.
func (s *Store) TxOrder(ctx context.Context, txID string, most int) (TxOrder, error) {
	order, err := results.One(ctx, s.db, pgx.RowToStructByPos[TxOrder], txOrder, txID, most)
	return order, results.Wrap(results.Missing(err, ErrNotFound), "read the payload of transaction %s", txID)
}

const listIncidents = `
select incident, opened_at, evidence, closed_at, closed_by, mode, reason, released
  from protect_incident
 where submitter = $1 and incident < $2
 order by incident desc
 limit $3`

// Incidents lists up to limit PROTECT incidents of the submitter with numbers below the given one, the newest first.
// The error wraps [ErrUnknownSubmitter].
func (s *Store) Incidents(ctx context.Context, sub txmanager.Submitter, below int64, limit int) ([]ProtectIncident, error) {
	return rowsOfSubmitter[ProtectIncident](ctx, s, "list the PROTECT incidents", sub, listIncidents, below, limit)
}

// TxHistory are up to limit changes of a transaction with numbers above after, the oldest first. The
// error is [ErrNotFound] for an unknown transaction.
func (s *Store) TxHistory(ctx context.Context, txID string, after int64, limit int) ([]TxChange, error) {
	return pastOf[TxChange](ctx, s, txID, txHistory, after, limit)
}

// TxVersions are up to limit signed versions of a transaction above the version after, the oldest first.
// The error is [ErrNotFound] for an unknown transaction.
func (s *Store) TxVersions(ctx context.Context, txID string, after int64, limit int) ([]TxVersion, error) {
	return pastOf[TxVersion](ctx, s, txID, txVersions, after, limit)
}

// TxDecisions are up to limit decisions about a transaction with numbers above after, the oldest first.
// The error is [ErrNotFound] for an unknown transaction.
func (s *Store) TxDecisions(ctx context.Context, txID string, after int64, limit int) ([]TxDecision, error) {
	return pastOf[TxDecision](ctx, s, txID, txDecisions, after, limit)
}

// pastOf reads rows about a transaction in one round trip. The error is [ErrNotFound] if it is unknown.
func pastOf[Row any](ctx context.Context, s *Store, txID, statement string, args ...any) (rows []Row, err error) {
	of := subject{knownTx, []any{txID}, ErrNotFound}
	return rowsOf[Row](ctx, s, "read the past of transaction "+txID, of, statement, append([]any{txID}, args...)...)
}

// rowsOfSubmitter reads rows about a submitter in one round trip. The error wraps [ErrUnknownSubmitter] if it is not registered.
func rowsOfSubmitter[Row any](ctx context.Context, s *Store, act string, sub txmanager.Submitter, statement string, args ...any) (rows []Row, err error) {
	of := subject{`select exists (select from submitter where submitter = $1)`, []any{sub}, fmt.Errorf("%s: %w", sub, ErrUnknownSubmitter)}
	return rowsOf[Row](ctx, s, act+" of "+string(sub), of, statement, append([]any{sub}, args...)...)
}

// subject is what rows are about: a statement finds out whether it is known, and unknown is the error if it is not.
type subject struct {
	known   string
	args    []any
	unknown error
}

// rowsOf reads rows in one round trip with the statement about their subject. act is what fails.
func rowsOf[Row any](ctx context.Context, s *Store, act string, of subject, statement string, args ...any) (rows []Row, err error) {
	var known bool
	b := new(pgx.Batch)
	b.Queue(of.known, of.args...).QueryRow(results.Scan(&known))
	b.Queue(statement, args...).Query(results.Into(&rows, pgx.RowToStructByPos[Row]))
	if err := s.send(ctx, b); err != nil {
		return nil, fmt.Errorf("%s: %w", act, err)
	}
	if !known {
		return nil, of.unknown
	}
	return rows, nil
}

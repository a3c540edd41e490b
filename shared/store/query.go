package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// ErrNotFound reports a transaction that does not exist or is another caller's. The answer is
// the same for both, so that it reveals nothing.
var ErrNotFound = errors.New("no such transaction")

// Record is a managed transaction as its caller may see it.
type Record struct {
	TxID           string              `json:"txId"`
	Submitter      txmanager.Submitter `json:"submitter"`
	RequestID      string              `json:"requestId"`
	State          txmanager.State     `json:"state"`
	SubState       *string             `json:"subState"`
	TxHash         *string             `json:"txHash"`
	ReplacedByHash *string             `json:"replacedByHash"`
	Receipt        json.RawMessage     `json:"receipt"`
	Confirmations  json.RawMessage     `json:"confirmations"`
	LastError      *string             `json:"lastError"`
	CreatedAt      time.Time           `json:"createdAt"`
	UpdatedAt      time.Time           `json:"updatedAt"`
	ConfirmedAt    *time.Time          `json:"confirmedAt"`
	ValidUntil     *time.Time          `json:"validUntil,omitempty"`

	Nonce   *int64          `json:"-"` // for operators
	Mempool json.RawMessage `json:"-"` // for operators: a [txmanager.Diagnosis]; nil: none was made

	LastErrorDetail *string `json:"-" db:"-"` // for operators: what a node said, beside LastError; nil: nothing
}

// callerText splits last_error into what a caller may read and what only operators may read;
// nil where there is none.
func callerText(lastError *string) (text, detail *string) {
	if lastError == nil {
		return nil, nil
	}
	said, rest := txmanager.CallerText(*lastError)
	if rest == "" {
		return &said, nil
	}
	return &said, &rest
}

// Viewer is the reader of a query. A caller sees its own transactions and those of callers
// that it succeeded, while the submitter lists it. An operator sees all.
type Viewer struct {
	Caller   string   // as it is put on record
	Names    []string // as [Intent.Names] has them; nil: Caller alone
	Operator bool
}

// AllNames are the names under which v may see transactions.
func (v Viewer) AllNames() []string { return namesOf(v.Caller, v.Names) }

// recordColumns reassembles a receipt from its facts and the node's document, which is null
// once it is archived.
const recordColumns = `
select tx_id, submitter, request_id, state, ` + shownSubState + `, tx_hash, replaced_by_hash,
       receipt || jsonb_build_object('document', (select d.body from tx_document d
         where d.tx_id = m.tx_id and d.name = 'receipt:' || (m.receipt ->> 'blockHash'))),
       confirmations, last_error, created_at, updated_at, confirmed_at, valid_until, nonce, last_mempool_diag
  from managed_tx m`

// Tx is the transaction with this id (a UUID). The error is [ErrNotFound] if v may not see
// one, or wraps [ErrInDoubt] in a restored database.
func (s *Store) Tx(ctx context.Context, txID string, v Viewer) (Record, error) {
	r, err := s.record(ctx, recordColumns+byTxID, txID, v.AllNames(), v.Operator)
	return s.refuseIfUnknown(ctx, r, err, "", "", v)
}

// ErrInDoubt reports that nothing is stored, but that this proves nothing. The submitter is in
// PROTECT, the database was restored, or an operator recorded the request as that of a
// transaction which the database had lost.
var ErrInDoubt = errors.New("the database was restored: a request without a row may have been made")

// TxByRequest is the transaction of the submitter's request. The error is [ErrNotFound] if v
// may not see one, or wraps [ErrInDoubt].
func (s *Store) TxByRequest(ctx context.Context, sub txmanager.Submitter, requestID string, v Viewer) (Record, error) {
	r, err := s.record(ctx, recordColumns+byRequest,
		sub, requestID, v.AllNames(), v.Operator)
	return s.refuseIfUnknown(ctx, r, err, sub, requestID, v)
}

var byTxID = ` where tx_id = $1 and (` + Owned("m", "$2::text[]") + ` or $3 or ` + recordedFor("m", "$2::text[]") + `)`

// byRequest finds the request by its unique key: see findIntents.
var byRequest = `
 where tx_id = (select r.tx_id
                  from (select tx_id, submitter from managed_tx where request_id = $2 and submitter >= $1 order by submitter limit 1) as r
                 where r.submitter = $1)
   and (` + Owned("m", "$3::text[]") + ` or $4 or ` + recordedFor("m", "$3::text[]") + `)`

// refuseIfUnknown turns "not found" into [ErrInDoubt] if it proves nothing.
func (s *Store) refuseIfUnknown(ctx context.Context, r Record, err error, sub txmanager.Submitter, requestID string, v Viewer) (Record, error) {
	if !errors.Is(err, ErrNotFound) {
		return r, err
	}
	var inDoubt bool
	if err := s.db.QueryRow(ctx, doubtful, sub, requestID, v.AllNames(), v.Operator).Scan(&inDoubt); err != nil {
		return r, err
	}
	if inDoubt {
		return r, ErrInDoubt
	}
	return r, ErrNotFound
}

// doubtful is true if "no such request" may be wrong. A restored database does not know what
// ran after its backup, unless an operator recorded it. A stored request is never in doubt: it
// is another caller's.
//
// Only its callers and operators learn that a submitter exists. A caller that is not listed
// now may have been listed in what a restore lost. So while any submitter waits for its
// release after a restore, no caller gets "not found", whichever submitter it names.
const doubtful = `
select not is_accepted_database() or case
         when $4 or exists (select from submitter s where s.submitter = $1 and s.callers && (array['*'] || $3::text[]))
         then ` + isProtected + ` or ` + isTaken + `
              and not exists (select from managed_tx m where m.request_id = $2 and m.submitter = $1)
         else $1 <> '' and exists (select from identity_change)
              and exists (select from protect_incident e where e.closed_at is null)
       end`

func (s *Store) record(ctx context.Context, query string, args ...any) (Record, error) {
	rows, err := s.db.Query(ctx, query, args...)
	if err != nil {
		return Record{}, err
	}
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Record])
	if errors.Is(err, pgx.ErrNoRows) {
		return Record{}, ErrNotFound
	}
	r.LastError, r.LastErrorDetail = callerText(r.LastError)
	return r, err
}

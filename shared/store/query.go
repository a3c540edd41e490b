package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
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
	Deposits bool // the deposit service, which is no operator
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
	r, err := results.One(ctx, s.db, pgx.RowToStructByPos[Record], query, args...)
	if errors.Is(err, pgx.ErrNoRows) {
		return Record{}, ErrNotFound
	}
	r.LastError, r.LastErrorDetail = callerText(r.LastError)
	return r, err
}

// ErrCursor reports a cursor that names no place in the list.
var ErrCursor = errors.New("no such position in the list")

// ListQuery asks for one page of a submitter's transactions, the newest first.
type ListQuery struct {
	Submitter txmanager.Submitter
	State     txmanager.State // "": of every state
	After     string          // the cursor from the previous page; "": from the newest on
	Size      int             // at most so many, from 1 on
}

// Listed is a transaction in a list: a [Record] without its large members.
type Listed struct {
	TxID           string              `json:"txId"`
	Submitter      txmanager.Submitter `json:"submitter"`
	RequestID      string              `json:"requestId"`
	State          txmanager.State     `json:"state"`
	SubState       *string             `json:"subState"`
	TxHash         *string             `json:"txHash"`
	ReplacedByHash *string             `json:"replacedByHash"`
	LastError      *string             `json:"lastError"`
	CreatedAt      time.Time           `json:"createdAt"`
	UpdatedAt      time.Time           `json:"updatedAt"`
	ConfirmedAt    *time.Time          `json:"confirmedAt"`
	ValidUntil     *time.Time          `json:"validUntil,omitempty"`

	Nonce *int64 `json:"-"` // for operators

	LastErrorDetail *string `json:"-" db:"-"` // for operators: see [Record]
}

// maxScanned is the largest number of transactions that one page reads when it filters by state.
// Such a page may have fewer than were requested, or none.
const maxScanned = 500

// These statements read the rows before a cursor (a txId; null: the end), the newest first. A
// page begins after a row, not after a number of rows, so that inserts and deletes before it
// shift nothing. Every open transaction is at least as new as the oldest open one.
var (
	listColumns = `
select m.tx_id, m.submitter, m.request_id, m.state, ` + shownSubState + `, m.tx_hash, m.replaced_by_hash, m.last_error,
       m.created_at, m.updated_at, m.confirmed_at, m.valid_until, m.nonce`
	listPlace = `m.seq < coalesce((select seq from managed_tx where tx_id = $2), 9223372036854775807)
   and m.seq >= case
       when $3 = 'QUEUED' then (select least((select q.seq from managed_tx q where q.submitter = $1 and q.queued and not q.held order by q.seq limit 1),
                                             (select h.seq from managed_tx h where h.submitter = $1 and h.queued and h.held order by h.seq limit 1)))
       when $3 in ('IN_FLIGHT', 'SUBMITTED', 'TRACKING', 'STUCK', 'PROTECT')
       then (select min(u.seq) from managed_tx u where u.submitter = $1 and u.open)
       else 0 end`

	listOwn = listColumns + `
  from submitter s
 cross join ` + theirs("$5::text[]") + ` as c
 cross join lateral (select * from managed_tx m where m.submitter = $1 and m.caller = c.caller and ` + listPlace + `
                      order by m.seq desc
                      limit $4) as m
 where s.submitter = $1
 order by m.seq desc
 limit $4`

	// An operator sees the transactions of all callers. The index is ordered by caller. Each
	// caller is found by a separate index step, and yields at most one page.
	listAll = `
with recursive callers as (
  (select f.caller from managed_tx f where f.submitter = $1 order by f.caller limit 1)
  union all
  select (select n.caller from managed_tx n where n.submitter = $1 and n.caller > c.caller order by n.caller limit 1)
    from callers c
   where c.caller is not null
)` + listColumns + `
  from callers c
 cross join lateral (select * from managed_tx m where m.submitter = $1 and m.caller = c.caller and ` + listPlace + `
                      order by m.seq desc
                      limit $4) as m
 order by m.seq desc
 limit $4`

	inList = `
select $1::uuid is null or exists (select from managed_tx m where m.tx_id = $1 and m.submitter = $2 and (` + Owned("m", "$3::text[]") + ` or $4))`
)

// List returns one page of the transactions that v may see, and the cursor of the next page;
// "" at the end. Following the cursors yields each transaction once that existed when the
// first page was read. With State, a page may have fewer than Size transactions, or none, and
// still have a next cursor. The error is [ErrCursor] if After names no transaction in the
// list.
func (s *Store) List(ctx context.Context, q ListQuery, v Viewer) (page []Listed, next string, err error) {
	limit := q.Size + 1
	if q.State != "" {
		limit = max(limit, maxScanned)
	}
	statement, args := listOwn, []any{q.Submitter, nullable(q.After), string(q.State), limit, v.AllNames()}
	if v.Operator {
		statement, args = listAll, args[:4]
	}
	var known bool
	var rows []Listed
	b := new(pgx.Batch)
	b.Queue(inList, nullable(q.After), q.Submitter, v.AllNames(), v.Operator).QueryRow(results.Scan(&known))
	b.Queue(statement, args...).Query(func(found pgx.Rows) (err error) {
		rows, err = pgx.CollectRows(found, pgx.RowToStructByPos[Listed])
		for i := range rows {
			rows[i].LastError, rows[i].LastErrorDetail = callerText(rows[i].LastError)
		}
		return err
	})
	if err := s.send(ctx, b); err != nil {
		return nil, "", err
	}
	if !known {
		return nil, "", ErrCursor
	}
	page, next = results.Page(rows, q.Size, limit, func(r Listed) bool { return q.State == "" || r.State == q.State }, func(r Listed) string { return r.TxID })
	return page, next, nil
}

// nullable is nil for the empty text.
func nullable(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// MatchingIntent is an intent that a transaction on the chain may belong to.
type MatchingIntent struct {
	TxID      string             `json:"txId"`
	RequestID string             `json:"requestId"`
	State     txmanager.State    `json:"state"`
	SubState  txmanager.SubState `json:"subState,omitempty"`
	Payload   []byte             `json:"-"`
}

// maxMatching is the largest number of matching intents that are listed, the newest first.
const maxMatching = 100

// MatchingIntents lists the newest intents of s with t's recipient, value and data. It skips
// intents whose payload is archived.
func (s *Store) MatchingIntents(ctx context.Context, sub txmanager.Submitter, t txmanager.ConsumingTx) ([]MatchingIntent, error) {
	var to *string
	if t.To != nil {
		to = textOrNull(t.To.String())
	}
	all, err := results.All(ctx, s.db, pgx.RowToStructByPos[MatchingIntent], `
		select m.tx_id, m.request_id, m.state, coalesce(m.sub_state, ''), d.body
		  from managed_tx m
		  join tx_document d on d.tx_id = m.tx_id and d.name = 'payload'
		 where m.submitter = $1 and m.handler is null and m.reservation is null and d.body ->> 'to' is not distinct from $2
		   and coalesce(d.body ->> 'value', '0') = $3 and coalesce(d.body ->> 'data', '0x') = $4
		 order by m.seq desc
		 limit $5`, sub, to, t.ValueWei, toHex(t.Data), maxMatching)
	return all, results.Wrap(err, "find intents like %s", t.Hash)
}

// OwnVersions are the stored versions for the nonces of s from one on and below another, by
// nonce.
func (s *Store) OwnVersions(ctx context.Context, sub txmanager.Submitter, from, below uint64) (map[uint64][]txmanager.Hash, error) {
	rows := results.Query(ctx, s.db, `select nonce, tx_hash from tx_version where submitter = $1 and nonce >= $2 and nonce < $3`, sub, Bigint(from), Bigint(below))
	own := make(map[uint64][]txmanager.Hash)
	var n int64
	var hash string
	_, err := pgx.ForEachRow(rows, []any{&n, &hash}, func() error {
		parsed, err := txmanager.ParseHash(hash)
		own[uint64(n)] = append(own[uint64(n)], parsed)
		return err
	})
	return own, results.Wrap(err, "read the versions of %s from nonce %d on", sub, from)
}

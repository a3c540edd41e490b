package store

import (
	"context"
	"encoding/hex"
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
	ReadOnly bool // may read what operators can read

	// Email is the token's address, also one that its issuer has not verified; "": none. It gives no right.
	// It shows that two tokens are of one person.
	Email string
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

// ErrInDoubt reports that nothing is stored, but that this proves nothing. The submitter is in
// PROTECT, the database was restored, or an operator recorded the request as that of a
// transaction which the database had lost.
var ErrInDoubt = errors.New("the database was restored: a request without a row may have been made")

var byTxID = ` where tx_id = $1 and (` + Owned("m", "$2::text[]") + ` or $3 or ` + recordedFor("m", "$2::text[]") + `)`

// byRequest finds the request by its unique key: see findIntents.
var byRequest = `
 where tx_id = (select r.tx_id
                  from (select tx_id, submitter from managed_tx where request_id = $2 and submitter >= $1 order by submitter limit 1) as r
                 where r.submitter = $1)
   and (` + Owned("m", "$3::text[]") + ` or $4 or ` + recordedFor("m", "$3::text[]") + `)`

// notFound is [ErrNotFound], or [ErrInDoubt] if a request without a row proves nothing.
func (s *Store) notFound(ctx context.Context, sub txmanager.Submitter, requestID string, v Viewer) error {
	var inDoubt bool
	err := s.db.QueryRow(ctx, doubtful, sub, requestID, v.AllNames(), v.Operator).Scan(&inDoubt)
	switch {
	case err != nil:
		return err
	case inDoubt:
		return ErrInDoubt
	}
	return ErrNotFound
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

// classOf are the values of state_class by state. The states of class 1 share it: see migration 0016.
var classOf = map[txmanager.State]int16{
	txmanager.Queued: 0, txmanager.InFlight: 1, txmanager.Submitted: 1, txmanager.Tracking: 1,
	txmanager.Stuck: 2, txmanager.Protect: 3, txmanager.Confirmed: 4, txmanager.Failed: 5,
}

// classesOf are the classes in which transactions of the state are; "" is any state.
func classesOf(state txmanager.State) []int16 {
	if state == "" {
		return []int16{0, 1, 2, 3, 4, 5}
	}
	return []int16{classOf[state]}
}

// These statements read the rows before a cursor (a txId; null: the end), the newest first. A
// page begins after a row, not after a number of rows, so that inserts and deletes before it
// shift nothing. Each class of states is a separate step of the index, and yields at most one
// page. Only class 1 has rows of other states; these are at most as many as the window.
var (
	listColumns = `
select m.tx_id, m.submitter, m.request_id, m.state, ` + shownSubState + `, m.tx_hash, m.replaced_by_hash, m.last_error,
       m.created_at, m.updated_at, m.confirmed_at, m.valid_until, m.nonce`
	listPlace = `m.submitter = $1 and m.caller = c.caller and m.state_class = k.class
                      and m.seq < coalesce((select seq from managed_tx where tx_id = $2), 9223372036854775807)
                      and ($4 = '' or m.state = $4)`

	listOwn = listColumns + `
  from submitter s
 cross join ` + theirs("$6::text[]") + ` as c
 cross join unnest($3::smallint[]) as k (class)
 cross join lateral (select * from managed_tx m where ` + listPlace + `
                      order by m.seq desc
                      limit $5) as m
 where s.submitter = $1
 order by m.seq desc
 limit $5`

	listAll = listEachCaller(listColumns)

	inList = `
select $1::uuid is null or exists (select from managed_tx m where m.tx_id = $1 and $2 in ('', m.submitter) and (` + Owned("m", "$3::text[]") + ` or $4))`
)

// listEachCaller lists the transactions of all callers, as an operator sees them, or of the caller $6.
// The index is ordered by caller, so each caller is found by a separate index step. With $7, the list
// begins at that time, by the clock in the txId. The lowest seq of the first transactions from then on
// keeps it from reading older ones.
func listEachCaller(columns string) string {
	return `
with recursive callers as (
  (select f.caller from managed_tx f where f.submitter = $1 and f.caller >= $6 order by f.caller limit 1)
  union all
  select (select n.caller from managed_tx n where n.submitter = $1 and n.caller > c.caller order by n.caller limit 1)
    from callers c
   where c.caller is not null and $6 = ''
), since as materialized (
  select case when $7::timestamptz is null then 0 else coalesce((
         select min(f.seq) from (
           select f.seq from managed_tx f where f.tx_id >= tx_id_at($7::timestamptz - interval '1 minute') order by f.tx_id limit 100) as f), 9223372036854775807) end as seq
)` + columns + `
  from callers c
 cross join unnest($3::smallint[]) as k (class)
 cross join lateral (select * from managed_tx m where ` + listPlace + `
                      and m.seq >= (select seq from since) and ($7::timestamptz is null or m.created_at >= $7)
                      order by m.seq desc
                      limit $5) as m
 where $6 in ('', c.caller)
 order by m.seq desc
 limit $5`
}

// List returns one page of the transactions that v may see, and the cursor of the next page;
// "" at the end. Only the last page can have fewer than Size transactions. Following the
// cursors yields each transaction once that existed when the first page was read and did not
// change its state meanwhile, if State is given. The error is [ErrCursor] if After names no
// transaction in the list.
func (s *Store) List(ctx context.Context, q ListQuery, v Viewer) (page []Listed, next string, err error) {
	statement, last := listOwn, []any{v.AllNames()}
	if v.Operator {
		statement, last = listAll, []any{"", nil}
	}
	args := append([]any{q.Submitter, textOrNull(q.After), classesOf(q.State), string(q.State), q.Size + 1}, last...)
	rows, err := listPage[Listed](ctx, s, q.After, q.Submitter, v, statement, args...)
	for i := range rows {
		rows[i].LastError, rows[i].LastErrorDetail = callerText(rows[i].LastError)
	}
	page, next = cutPage(rows, q.Size, func(r Listed) string { return r.TxID })
	return page, next, err
}

// listPage reads a page that begins after a transaction which v may see, of the submitter or of all. The error is
// [ErrCursor] if that transaction is not in the list.
func listPage[Row any](ctx context.Context, s *Store, after string, sub txmanager.Submitter, v Viewer, statement string, args ...any) ([]Row, error) {
	return rowsOf[Row](ctx, s, "list transactions", subject{inList, []any{textOrNull(after), sub, v.AllNames(), v.Operator}, ErrCursor}, statement, args...)
}

// cutPage is the first size rows, and the cursor of the next page; "" if there are no more rows.
func cutPage[Row any](rows []Row, size int, cursor func(Row) string) (page []Row, next string) {
	if len(rows) <= size {
		return rows, ""
	}
	return rows[:size], cursor(rows[size-1])
}

// MatchingIntent is an intent that a transaction on the chain may belong to.
type MatchingIntent struct {
	TxID      string             `json:"txId"`
	RequestID string             `json:"requestId"`
	State     txmanager.State    `json:"state"`
	SubState  txmanager.SubState `json:"subState,omitempty"`
	Payload   []byte             `json:"-"`
}

// MaxMatching is the largest number of matching intents that are listed, and matchAmong of those that each part of
// [matchingIntents] compares.
const (
	MaxMatching = 100
	matchAmong  = 5000
)

// matchingIntents reads the submitter's intents with the highest nonces, and those that failed last in the deployment.
// No index has their calls. Queued intents are all among [Store.OpenRequests].
const matchingIntents = `
with recent as (
  (select n.tx_id from managed_tx n where n.submitter = $1 and n.nonce is not null order by n.nonce desc limit $6)
  union
  select f.tx_id from (select tx_id, submitter from managed_tx where state_class = 5 order by tx_id desc limit $6) as f where f.submitter = $1
)
select m.tx_id, m.request_id, m.state, coalesce(m.sub_state, ''), d.body
  from recent
  join managed_tx m on m.tx_id = recent.tx_id
  join tx_document d on d.tx_id = m.tx_id and d.name = 'payload'
 where m.handler is null and m.reservation is null and d.body ->> 'to' is not distinct from $2
   and coalesce(d.body ->> 'value', '0') = $3 and coalesce(d.body ->> 'data', '0x') = $4
 order by m.seq desc
 limit $5`

// moreIntents tells whether a part of [matchingIntents] leaves intents out.
const moreIntents = `
select exists (select from (select n.tx_id from managed_tx n where n.submitter = $1 and n.nonce is not null order by n.nonce desc offset $2 limit 1) as n)
    or exists (select from (select f.tx_id from managed_tx f where f.state_class = 5 order by f.tx_id desc offset $2 limit 1) as f)`

// HasMoreIntents reports whether s can have intents that [Store.MatchingIntents] does not compare.
func (s *Store) HasMoreIntents(ctx context.Context, sub txmanager.Submitter) (more bool, err error) {
	err = s.db.QueryRow(ctx, moreIntents, sub, matchAmong).Scan(&more)
	return more, results.Wrap(err, "count the intents of %s", sub)
}

// MatchingIntents lists recent intents of s with t's recipient, value and data, the newest first and at most
// [MaxMatching]. It skips queued intents, and those whose payload is archived.
func (s *Store) MatchingIntents(ctx context.Context, sub txmanager.Submitter, t txmanager.ConsumingTx) ([]MatchingIntent, error) {
	all, err := results.All(ctx, s.db, pgx.RowToStructByPos[MatchingIntent], matchingIntents, sub, t.To, t.ValueWei, "0x"+hex.EncodeToString(t.Data), MaxMatching, matchAmong)
	return all, results.Wrap(err, "find intents like %s", t.Hash)
}

const ownVersions = `
select m.nonce, v.tx_hash
  from managed_tx m
  join tx_version v on v.tx_id = m.tx_id
 where m.submitter = $1 and m.nonce >= $2 and m.nonce < $3`

// OwnVersions are the stored versions for the nonces of s from one on and below another, by
// nonce.
func (s *Store) OwnVersions(ctx context.Context, sub txmanager.Submitter, from, below uint64) (map[uint64][]txmanager.Hash, error) {
	own := make(map[uint64][]txmanager.Hash)
	var n uint64
	var hash txmanager.Hash
	keep := func() { own[n] = append(own[n], hash) }
	err := results.ForEach(ctx, s.db, []any{&n, hashText{&hash}}, keep, ownVersions, sub, Bigint(from), Bigint(below))
	return own, results.Wrap(err, "read the versions of %s from nonce %d on", sub, from)
}

package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// TxFilter asks for one page of the transactions of all submitters. Empty fields do not filter.
type TxFilter struct {
	Submitter txmanager.Submitter
	State     txmanager.State
	Cause     txmanager.WaitCause // one of [txmanager.StoredCauses]
	Since     *time.Time          // accepted then or later, by the clock in the txId
	Caller    string
	Hash      string // of any signed version
	RequestID string
	Nonce     *int64
	After     string // the cursor from the previous page; "": the first page
	Size      int    // at most so many, from 1 on
}

// FoundTx is a transaction in an operator's list.
type FoundTx struct {
	Listed
	Caller string               `json:"caller"`
	Cause  *txmanager.WaitCause `json:"cause,omitempty"` // nil: it has ended, or the cause follows from its queue
	Since  *time.Time           `json:"since,omitempty"` // of a stored cause
}

// NoIndexError reports a filter that no index serves.
type NoIndexError struct {
	Field string // a parameter of the filter
	Do    string // what to change
}

func (e NoIndexError) Error() string { return fmt.Sprintf("no index finds this: %s %s", e.Field, e.Do) }

var (
	foundColumns = listColumns + `, m.caller, case when m.open then ` + openCause("m") + ` when m.queued then m.wait_cause end,
       case when m.state_class < 4 then m.waiting_since end`

	findNewest = newestWith("")

	// STUCK, PROTECT or FAILED, the newest first.
	findClass = newestWith(`m.state_class = $4 and m.state_class in (2, 3, 5) and `)

	// By submitter, and by txId among those of one submitter.
	findCause = foundColumns + `
  from managed_tx m
 where m.wait_cause = $2 and m.state_class < 4
   and (m.submitter, m.tx_id) > (coalesce((select submitter::text from managed_tx where tx_id = $1::uuid), ''),
                                 coalesce($1::uuid, '00000000-0000-0000-0000-000000000000'))
 order by m.submitter, m.tx_id
 limit $3`

	findCauseOf = newestWith(`m.wait_cause = $4 and m.state_class < 4 and m.submitter = $5 and `)

	// By submitter, from $3 on.
	findRequest = foundColumns + `
  from managed_tx m
 where m.request_id = $2 and m.submitter >= $3
   and m.submitter > coalesce((select submitter::text from managed_tx where tx_id = $1::uuid), '')
 order by m.submitter
 limit $4`

	findNonce = foundColumns + `
  from managed_tx m
 where m.submitter = $1 and m.nonce = $2`

	findHash = foundColumns + `
  from tx_version v
  join managed_tx m on m.tx_id = v.tx_id
 where v.tx_hash = $1`

	findCallers = listEachCaller(foundColumns)
)

// newestWith finds the transactions with a condition before $1 and since $2, the newest first, by the time in the txId.
func newestWith(condition string) string {
	return foundColumns + `
  from managed_tx m
 where ` + condition + `m.tx_id < coalesce($1::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff') and m.tx_id >= ` + idSince("$2") + `
   and ($2::timestamptz is null or m.created_at >= $2)
 order by m.tx_id desc
 limit $3`
}

// idSince is a txId below all of the time on; null: the lowest of all. A process makes the id before the
// database sets created_at, by another clock: hence the minute.
func idSince(time string) string {
	return `coalesce(tx_id_at(` + time + `::timestamptz - interval '1 minute'), '00000000-0000-0000-0000-000000000000')`
}

// FindTxs returns one page of the transactions that fit the filter, and the cursor of the next page; ""
// at the end. The newest are first; a list by cause or request over all submitters is ordered by
// submitter. Only the last page can have fewer than Size. The error is [ErrCursor], or a [NoIndexError].
func (s *Store) FindTxs(ctx context.Context, f TxFilter) (page []FoundTx, next string, err error) {
	statement, args, err := f.query()
	if err != nil {
		return nil, "", err
	}
	rows, err := listPage[FoundTx](ctx, s, f.After, f.Submitter, Viewer{Operator: true}, statement, args...)
	if err != nil {
		return nil, "", err
	}
	for i := range rows {
		rows[i].LastError, rows[i].LastErrorDetail = callerText(rows[i].LastError)
	}
	if f.isKey() {
		return slices.DeleteFunc(rows, func(r FoundTx) bool { return !f.fits(r) }), "", nil
	}
	page, next = cutPage(rows, f.Size, func(r FoundTx) string { return r.TxID })
	return page, next, nil
}

// isKey reports whether the filter names at most one transaction.
func (f TxFilter) isKey() bool {
	return f.Hash != "" || f.Nonce != nil || f.RequestID != "" && f.Submitter != ""
}

// fits reports whether a transaction that a key names has the rest of the filter.
func (f TxFilter) fits(r FoundTx) bool {
	switch {
	case f.Submitter != "" && r.Submitter != f.Submitter, f.State != "" && r.State != f.State, f.Caller != "" && r.Caller != f.Caller:
		return false
	case f.RequestID != "" && r.RequestID != f.RequestID, f.Nonce != nil && (r.Nonce == nil || *r.Nonce != *f.Nonce):
		return false
	case f.Cause != "" && (r.Cause == nil || *r.Cause != f.Cause):
		return false
	}
	return f.Since == nil || !r.CreatedAt.Before(*f.Since)
}

// query is the statement that finds the rows by an index, with its arguments.
func (f TxFilter) query() (statement string, args []any, err error) {
	after, limit := textOrNull(f.After), f.Size+1
	switch {
	case f.Hash != "":
		return findHash, []any{f.Hash}, nil
	case f.Nonce != nil && f.Submitter == "":
		return "", nil, NoIndexError{"nonce", "needs the parameter submitter: add it"}
	case f.Nonce != nil:
		return findNonce, []any{f.Submitter, *f.Nonce}, nil
	case f.RequestID != "":
		return f.byRequest(after, limit)
	case f.Cause != "":
		return f.byCause(after, limit)
	case f.Submitter != "":
		return findCallers, []any{f.Submitter, after, classesOf(f.State), string(f.State), limit, f.Caller, f.Since}, nil
	case f.Caller != "":
		return "", nil, NoIndexError{"caller", "needs the parameter submitter: add it"}
	case f.State == "":
		return findNewest, []any{after, f.Since, limit}, nil
	}
	return f.byState(after, limit)
}

func (f TxFilter) byRequest(after *string, limit int) (statement string, args []any, err error) {
	switch {
	case f.Submitter != "":
		return findRequest, []any{nil, f.RequestID, f.Submitter, 1}, nil
	case f.State != "" || f.Cause != "" || f.Since != nil || f.Caller != "":
		return "", nil, NoIndexError{"requestId", "with a further parameter needs submitter: add it"}
	}
	return findRequest, []any{after, f.RequestID, "", limit}, nil
}

func (f TxFilter) byCause(after *string, limit int) (statement string, args []any, err error) {
	switch {
	case f.State != "" || f.Caller != "":
		return "", nil, NoIndexError{"cause", "does not go with state or caller: leave those out"}
	case f.Submitter != "":
		return findCauseOf, []any{after, f.Since, limit, string(f.Cause), f.Submitter}, nil
	case f.Since != nil:
		return "", nil, NoIndexError{"cause", "with since needs submitter: add it"}
	}
	return findCause, []any{after, string(f.Cause), limit}, nil
}

func (f TxFilter) byState(after *string, limit int) (statement string, args []any, err error) {
	switch f.State {
	case txmanager.Stuck, txmanager.Protect, txmanager.Failed:
		return findClass, []any{after, f.Since, limit, classOf[f.State]}, nil
	}
	return "", nil, NoIndexError{"state", "needs submitter for " + string(f.State) + ": add it; without it, send STUCK, PROTECT or FAILED"}
}

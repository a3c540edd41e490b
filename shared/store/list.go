package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/txmanager"
)

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
	b.Queue(inList, nullable(q.After), q.Submitter, v.AllNames(), v.Operator).QueryRow(func(row pgx.Row) error { return row.Scan(&known) })
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
	page, next = pageOf(rows, q, limit)
	return page, next, nil
}

// pageOf selects the page from the rows that were read.
func pageOf(rows []Listed, q ListQuery, limit int) (page []Listed, next string) {
	for i, r := range rows {
		if q.State != "" && r.State != q.State {
			continue
		}
		page = append(page, r)
		if len(page) == q.Size {
			if i+1 < len(rows) {
				next = r.TxID
			}
			return page, next
		}
	}
	if len(rows) == limit {
		next = rows[limit-1].TxID
	}
	return page, next
}

// nullable is nil for the empty text.
func nullable(text string) any {
	if text == "" {
		return nil
	}
	return text
}

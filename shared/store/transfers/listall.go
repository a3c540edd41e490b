package transfers

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/transfer"
)

// ListQuery requests one page of transfers, newest first.
type ListQuery struct {
	State  *transfer.State // nil: any state
	UserID int64           // 0: any user
	Asset  string          // the asset's name; "": any asset
	Before *time.Time      // created before it, by the database's clock; nil: at any time
	After  string          // the req_id that the previous page returned as its cursor; "": from the newest on
	Size   int             // maximum, at least 1
}

// ErrNoIndex reports filters that no index answers. Nothing was read.
var ErrNoIndex = errors.New("no index answers a list by these filters")

const (
	// allWindow is the number of transfers that one statement reads in the order of an index. The planner must
	// know it, so it is no parameter.
	allWindow  = "1000"
	windowRows = 1000 // the same as a number
	// allWindows bounds the statements of one page.
	allWindows = 100
)

// A window begins after the transfer @after, or with the newest, and has those that were created before @created_before. The
// two are the place from which it is read: in the order of times also a row that was created at that time, which the filters
// leave out.
const (
	afterID   = `coalesce((select p.transfer_id from transfers_tb p where p.req_id = @after), 9223372036854775807)`
	afterTime = `least(coalesce((select p.created_at from transfers_tb p where p.req_id = @after), 'infinity'), @created_before::timestamptz)`
	afterBoth = `(` + afterTime + `, ` + afterID + `)`

	// Of transfers of the very time, afterBoth takes some.
	olderThan = `(@created_before::timestamptz is null or u.created_at < @created_before)`
)

// window is the next transfers in the order of an index, after a position. It ends at [allWindow] rows, or with the
// list.
type window struct {
	rows  string
	order string // of rows
}

var (
	windowOfAll = window{`
  select f.transfer_id, f.created_at from transfers_tb f
   where f.transfer_id < ` + afterID + ` order by f.transfer_id desc limit ` + allWindow, `w.transfer_id desc`}

	// Those that are older than a time, by the times in their req_ids: no index of all transfers has created_at. A process
	// makes the req_id before the database sets created_at, by another clock. See [newestBefore].
	windowOfOlder = window{`
  select f.transfer_id, f.created_at from transfers_tb f
   where f.req_id < least(nullif(@after, ''), @newest) and f.created_at < @created_before order by f.req_id desc limit ` + allWindow, `t.req_id desc`}

	windowOfOpen = window{`
  select f.transfer_id, f.created_at from transfers_tb f
   where f.open and (f.created_at, f.transfer_id) < ` + afterBoth + `
   order by f.created_at desc, f.transfer_id desc limit ` + allWindow,
		`w.created_at desc, w.transfer_id desc`}

	// A failed transfer has one row of history with its last state. transfers_tb has no index by its state, since
	// each transition would write it. Of those before a time, the filters leave out the newer ones.
	windowOfFailed = window{`
  select h.transfer_id, h.at as created_at from transfer_history h
   where h.state = @state::smallint and h.state in (-10, -30) and h.transfer_id < ` + afterID + ` order by h.transfer_id desc limit ` + allWindow, `w.transfer_id desc`}

	// The index orders a user's transfers by time; all of the same microsecond are read and sorted.
	windowOfUser = window{`
  select f.transfer_id, f.created_at
    from (select u.transfer_id, u.created_at from transfers_tb u
           where u.user_id = @user and (u.created_at, u.transfer_id) < ` + afterBoth + ` and ` + olderThan + `
           order by u.created_at desc fetch first (@cut) rows with ties) as f
   order by f.created_at desc, f.transfer_id desc limit @cut`,
		`w.created_at desc, w.transfer_id desc`}

	// No index of all users has the condition.
	windowOfUsersOpen = window{`
  select u.transfer_id, u.created_at from transfers_tb u
   where u.user_id = @user and u.ended is null and (u.created_at, u.transfer_id) < ` + afterBoth + `
   order by u.created_at desc, u.transfer_id desc limit ` + allWindow,
		`w.created_at desc, w.transfer_id desc`}

	windowOfEnded = window{`
  select u.transfer_id, u.created_at from transfers_tb u
   where u.user_id = @user and u.ended = @state::smallint and (u.created_at, u.transfer_id) < ` + afterBoth + ` and ` + olderThan + `
   order by u.created_at desc, u.transfer_id desc limit ` + allWindow,
		`w.created_at desc, w.transfer_id desc`}
)

// wanted reads those transfers of the window that the filters let pass. It reads no more than @cut rows of the window.
func (w window) wanted() string {
	return `
with w as materialized (select * from (` + w.rows + `) as w limit @cut
)` + transferList + `
  from w
  join lateral (select * from transfers_tb f where f.transfer_id = w.transfer_id offset 0) t on true -- by the index, one by one
  join assets_tb a on a.asset_id = t.asset_id
 where (@state::smallint is null or t.state = @state) and (@user::bigint = 0 or t.user_id = @user) and (@asset = '' or a.asset = @asset)
   and (@created_before::timestamptz is null or t.created_at < @created_before)
 order by ` + w.order + `
 limit @size`
}

// last reads the last transfer of a full window; no row if the list ends in it.
func (w window) last() string {
	return `
select (select t.req_id from transfers_tb t where t.transfer_id = l.transfer_id)
  from (select * from (` + w.rows + `) as w offset ` + allWindow + ` - 1) as l`
}

// inList tells whether @after is a transfer, and of a user's own list one of the user.
const inList = `
select @after = '' or exists (select from transfers_tb where req_id = @after and (not @own or user_id = @user))`

// windowFor chooses the index that answers the query. The error is [ErrNoIndex] if there is none.
func (q ListQuery) windowFor() (window, error) {
	switch s := q.State; {
	case q.UserID != 0:
		return q.windowOfOne(), nil
	case s != nil && !s.Terminal():
		return windowOfOpen, nil
	case s != nil && *s != transfer.Committed:
		return windowOfFailed, nil
	case q.Asset != "":
		return window{}, ErrNoIndex
	case q.Before != nil:
		return windowOfOlder, nil
	}
	return windowOfAll, nil
}

// windowOfOne is the window of a query for one user.
func (q ListQuery) windowOfOne() window {
	switch s := q.State; {
	case s == nil:
		return windowOfUser
	case s.Terminal():
		return windowOfEnded
	}
	return windowOfUsersOpen
}

// passesAllOf reports whether the filters let each transfer of the window pass.
func (q ListQuery) passesAllOf(w window) bool {
	switch {
	case q.Asset != "":
		return false
	case w == windowOfAll, w == windowOfOlder:
		return q.State == nil
	case w == windowOfFailed:
		return q.UserID == 0 && q.Before == nil
	case w == windowOfUser:
		return q.State == nil
	}
	return w == windowOfEnded
}

// rowsOf is how many rows of the window can be needed to find size transfers.
func (q ListQuery) rowsOf(w window, size int) int {
	if q.passesAllOf(w) {
		return min(size, windowRows)
	}
	return windowRows
}

// List returns one page of the user's transfers, and the cursor of the next; "" at the end. The error wraps
// [store.ErrCursor] if After is not a transfer of the user.
func (s *Store) List(ctx context.Context, q ListQuery) (page []transfer.Transfer, next string, err error) {
	page, next, err = s.listWindows(ctx, q.windowOfOne(), q, true)
	return page, next, results.Wrap(err, "list transfers of user %d", q.UserID)
}

// ListAll returns one page of the transfers of all users, and the cursor of the next page; "" at the end. It
// reads one window after another until the page is full. Only after [allWindows] windows a page can be shorter
// and still have a cursor. The error is [ErrNoIndex], or wraps [store.ErrCursor] if After is not a transfer.
func (s *Store) ListAll(ctx context.Context, q ListQuery) (page []transfer.Transfer, next string, err error) {
	w, err := q.windowFor()
	if err != nil {
		return nil, "", err
	}
	page, next, err = s.listWindows(ctx, w, q, false)
	return page, next, results.Wrap(err, "list transfers")
}

// maxSkew is the most by which the time in a req_id may be ahead of the database's clock.
const maxSkew = time.Minute

// newestBefore is above the req_ids of all transfers that were created before a time; nil: of any time.
func newestBefore(before *time.Time) *string {
	if before == nil {
		return nil
	}
	var newest ulid.ULID
	_ = newest.SetTime(ulid.Timestamp(before.Add(maxSkew))) // a time after the year 10889 leaves the lowest of all
	return new(newest.String())
}

// listWindows reads a page by one window after another. own is as in [inList].
func (s *Store) listWindows(ctx context.Context, w window, q ListQuery, own bool) (page []transfer.Transfer, next string, err error) {
	for range allWindows {
		rows, end, err := s.readWindow(ctx, w, q, own, q.Size+1-len(page))
		if err != nil {
			return nil, "", err
		}
		if page = append(page, rows...); len(page) > q.Size {
			return page[:q.Size], page[q.Size-1].ReqID, nil
		}
		if end == "" {
			return page, "", nil
		}
		q.After = end
	}
	return page, q.After, nil
}

// readWindow reads at most size wanted transfers of the window, and the transfer with which the window ends; "" if the
// list ends in it.
func (s *Store) readWindow(ctx context.Context, w window, q ListQuery, own bool, size int) (rows []transfer.Transfer, end string, err error) {
	var known bool
	cut := q.rowsOf(w, size)
	args := pgx.NamedArgs{
		"after": q.After, "own": own, "user": q.UserID, "state": q.State, "asset": q.Asset, "created_before": q.Before, "newest": newestBefore(q.Before),
		"size": size, "cut": cut,
	}
	b := new(pgx.Batch)
	b.Queue(inList, args).QueryRow(results.Scan(&known))
	b.Queue(w.wanted(), args).Query(results.Into(&rows, scanTransfer))
	if cut == windowRows { // of fewer rows that all pass, fewer than the size are the last
		b.Queue(w.last(), args).QueryRow(results.Maybe(&end))
	}
	if err = s.send(ctx, b); err == nil && !known {
		err = store.ErrCursor
	}
	return rows, end, err
}

package transfers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/transfer"
)

// AllQuery requests one page of the transfers of all users, newest first.
type AllQuery struct {
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

// window is the next transfers in the order of an index, after a position. It ends at [allWindow] rows, or with the
// list.
type window struct {
	rows  string
	order string // of rows
}

var (
	windowOfAll = window{`
  select f.transfer_id, f.created_at from transfers_tb f
   where f.transfer_id < @before order by f.transfer_id desc limit ` + allWindow, `w.transfer_id desc`}

	// Those that are older than a time, by the times in their req_ids: no index of all transfers has created_at. A process
	// makes the req_id before the database sets created_at, by another clock. See [place.olderThan].
	windowOfOlder = window{`
  select f.transfer_id, f.created_at from transfers_tb f
   where f.req_id < @before_req and f.created_at < @before_time order by f.req_id desc limit ` + allWindow, `t.req_id desc`}

	windowOfOpen = window{`
  select f.transfer_id, f.created_at from transfers_tb f
   where f.open and (f.created_at, f.transfer_id) < (@before_time, @before)
   order by f.created_at desc, f.transfer_id desc limit ` + allWindow,
		`w.created_at desc, w.transfer_id desc`}

	// A failed transfer has one row of history with its last state. transfers_tb has no index by its state, since
	// each transition would write it. Of those before a time, the filters leave out the newer ones.
	windowOfFailed = window{`
  select h.transfer_id, h.at as created_at from transfer_history h
   where h.state = @failed and h.state in (-10, -30) and h.transfer_id < @before order by h.transfer_id desc limit ` + allWindow, `w.transfer_id desc`}

	windowOfUser = window{`
  select f.transfer_id, f.created_at
    from (select u.transfer_id, u.created_at from transfers_tb u
           where u.user_id = @owner and (u.created_at, u.transfer_id) < (@before_time, @before)
           order by u.created_at desc fetch first ` + allWindow + ` rows with ties) as f
   order by f.created_at desc, f.transfer_id desc limit ` + allWindow,
		`w.created_at desc, w.transfer_id desc`}

	// The condition is that of [listOpen].
	windowOfUsersOpen = window{`
  select u.transfer_id, u.created_at from transfers_tb u
   where u.user_id = @owner and u.ended is null and (u.created_at, u.transfer_id) < (@before_time, @before)
   order by u.created_at desc, u.transfer_id desc limit ` + allWindow,
		`w.created_at desc, w.transfer_id desc`}

	windowOfEnded = window{`
  select u.transfer_id, u.created_at from transfers_tb u
   where u.user_id = @owner and u.ended = @ended and (u.created_at, u.transfer_id) < (@before_time, @before)
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
 where (@state::smallint is null or t.state = @state) and (@user = 0 or t.user_id = @user) and (@asset = '' or a.asset = @asset)
   and (@created_before::timestamptz is null or t.created_at < @created_before)
 order by ` + w.order + `
 limit @size`
}

// last reads the last transfer of a full window; no row if the list ends in it.
func (w window) last() string {
	return `
select l.transfer_id, l.created_at, (select t.req_id from transfers_tb t where t.transfer_id = l.transfer_id)
  from (select * from (` + w.rows + `) as w offset ` + allWindow + ` - 1) as l`
}

// place is the position of a transfer in the lists.
type place struct {
	ID    int64
	At    time.Time
	ReqID string
}

const placeOf = `select transfer_id, created_at, req_id from transfers_tb where req_id = $1`

// windowFor chooses the index that answers the query. The error is [ErrNoIndex] if there is none.
func (q AllQuery) windowFor() (window, error) {
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
func (q AllQuery) windowOfOne() window {
	switch s := q.State; {
	case s == nil:
		return windowOfUser
	case s.Terminal():
		return windowOfEnded
	}
	return windowOfUsersOpen
}

// passesAllOf reports whether the filters let each transfer of the window pass.
func (q AllQuery) passesAllOf(w window) bool {
	switch {
	case q.Asset != "":
		return false
	case w == windowOfAll, w == windowOfUser, w == windowOfOlder:
		return q.State == nil
	case w == windowOfFailed:
		return q.UserID == 0 && q.Before == nil
	}
	return w == windowOfEnded
}

// ListAll returns one page of the transfers of all users, and the cursor of the next page; "" at the end. It
// reads one window after another until the page is full. Only after [allWindows] windows a page can be shorter
// and still have a cursor. The error is [ErrNoIndex], or [store.ErrCursor] if After is not a transfer.
func (s *Store) ListAll(ctx context.Context, q AllQuery) (page []transfer.Transfer, next string, err error) {
	w, err := q.windowFor()
	if err != nil {
		return nil, "", err
	}
	return s.listWindows(ctx, w, q)
}

// maxSkew is the most by which the time in a req_id may be ahead of the database's clock.
const maxSkew = time.Minute

// olderThan is the place from which a list has only transfers created before a time: at, or a later one.
func (at place) olderThan(before time.Time) place {
	if !at.At.Before(before) {
		at.ID, at.At = 0, before
	}
	var newest ulid.ULID
	_ = newest.SetTime(ulid.Timestamp(before.Add(maxSkew))) // a time after the year 10889 leaves the lowest of all
	if at.ReqID == "" || at.ReqID > newest.String() {
		at.ReqID = newest.String()
	}
	return at
}

// listWindows reads a page by one window after another.
func (s *Store) listWindows(ctx context.Context, w window, q AllQuery) (page []transfer.Transfer, next string, err error) {
	at := place{ID: math.MaxInt64, At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
	if q.After != "" {
		switch at, err = results.One(ctx, s.db, pgx.RowToStructByPos[place], placeOf, q.After); {
		case errors.Is(err, pgx.ErrNoRows):
			return nil, "", store.ErrCursor
		case err != nil:
			return nil, "", fmt.Errorf("list transfers: %w", err)
		}
	}
	if q.Before != nil && w != windowOfFailed { // which is in the order of the transfers' numbers, from the newest on
		at = at.olderThan(*q.Before)
	}
	for range allWindows {
		rows, end, err := s.readWindow(ctx, q, w, at, q.Size+1-len(page))
		if err != nil {
			return nil, "", fmt.Errorf("list transfers: %w", err)
		}
		if page = append(page, rows...); len(page) > q.Size {
			return page[:q.Size], page[q.Size-1].ReqID, nil
		}
		if end == nil {
			return page, "", nil
		}
		at = *end
	}
	return page, at.ReqID, nil
}

// argsOf are the parameters of both statements of a window.
func (q AllQuery) argsOf(w window, at place) store.NamedArgs {
	switch w {
	case windowOfAll:
		return store.NamedArgs{"before": at.ID}
	case windowOfFailed:
		return store.NamedArgs{"before": at.ID, "failed": int16(*q.State)}
	case windowOfOlder:
		return store.NamedArgs{"before_req": at.ReqID, "before_time": *q.Before}
	}
	args := store.NamedArgs{"before": at.ID, "before_time": at.At}
	if w != windowOfOpen {
		args["owner"] = q.UserID
	}
	if w == windowOfEnded {
		args["ended"] = int16(*q.State)
	}
	return args
}

// readWindow reads the wanted transfers of the window after a place, and the place where the window ends; nil if
// the list ends in it.
func (s *Store) readWindow(ctx context.Context, q AllQuery, w window, at place, size int) (rows []transfer.Transfer, end *place, err error) {
	var state *int16
	if q.State != nil {
		state = new(int16(*q.State))
	}
	b := new(pgx.Batch)
	cut := windowRows
	if q.passesAllOf(w) {
		cut = size
	}
	wanted := store.NamedArgs{"state": state, "user": q.UserID, "asset": q.Asset, "size": size, "cut": cut, "created_before": q.Before}
	maps.Copy(wanted, q.argsOf(w, at))
	b.Queue(w.wanted(), wanted).Query(results.Into(&rows, scanTransfer))
	b.Queue(w.last(), q.argsOf(w, at)).Query(results.First(&end, pgx.RowToStructByPos[place]))
	err = s.send(ctx, b)
	return rows, end, err
}

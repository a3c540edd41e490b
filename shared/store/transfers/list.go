package transfers

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/transfer"
)

// ListQuery requests one page of a user's transfers, newest first.
type ListQuery struct {
	UserID int64
	State  *transfer.State // nil: any state
	After  string          // the req_id that the previous page returned as its cursor; "": from the newest on
	Size   int             // maximum, at least 1
}

// maxScan bounds the transfers that one page reads if it wants those of one state. It may then have
// fewer than requested, or none.
const maxScan = 500

// listOf reads the user's transfers before a cursor, newest first. The index orders them by time; all
// of the same microsecond are read and sorted.
const listOf = transferColumns + `
 where t.transfer_id = any (array(
       select f.transfer_id from transfers_tb f
        where f.user_id = $1
          and (f.created_at, f.transfer_id) < (
              coalesce((select p.created_at from transfers_tb p where p.req_id = $2), 'infinity'),
              coalesce((select p.transfer_id from transfers_tb p where p.req_id = $2), 9223372036854775807))
        order by f.created_at desc
        fetch first ($3) rows with ties))
 order by t.created_at desc, t.transfer_id desc
 limit $3`

const inList = `
select $1 = '' or exists (select from transfers_tb where req_id = $1 and user_id = $2)`

// List returns one page of the user's transfers, and the cursor of the next; "" at the end. With State
// a page may have fewer than Size, or none, and still have a cursor. The error is [store.ErrCursor] if After
// is not a transfer of the user.
func (s *Store) List(ctx context.Context, q ListQuery) (page []transfer.Transfer, next string, err error) {
	limit := q.Size + 1
	if q.State != nil {
		limit = max(limit, maxScan)
	}
	var known bool
	var rows []transfer.Transfer
	b := new(pgx.Batch)
	b.Queue(inList, q.After, q.UserID).QueryRow(func(row pgx.Row) error { return row.Scan(&known) })
	b.Queue(listOf, q.UserID, q.After, limit).Query(func(found pgx.Rows) (err error) {
		rows, err = pgx.CollectRows(found, func(row pgx.CollectableRow) (transfer.Transfer, error) { return scanTransfer(row) })
		return err
	})
	if err := s.send(ctx, b); err != nil {
		return nil, "", fmt.Errorf("list transfers of user %d: %w", q.UserID, err)
	}
	if !known {
		return nil, "", store.ErrCursor
	}
	page, next = pageOf(rows, q, limit)
	return page, next, nil
}

// pageOf selects the page from the rows that were read.
func pageOf(rows []transfer.Transfer, q ListQuery, limit int) (page []transfer.Transfer, next string) {
	for i, t := range rows {
		if q.State != nil && t.State != *q.State {
			continue
		}
		page = append(page, t)
		if len(page) == q.Size {
			if i+1 < len(rows) {
				next = t.ReqID
			}
			return page, next
		}
	}
	if len(rows) == limit {
		next = rows[limit-1].ReqID
	}
	return page, next
}

package funding

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/conservation/snapshot"
	checks "github.com/fencepost/fencepost/shared/store/conservation"
	"github.com/fencepost/fencepost/shared/transfer"
)

// The cursor of the journal is a Postgres snapshot of the entries that were read.
var _ conservation.Journal = (*Ledger)(nil)

const unread = `
select id, req_id, op_type, user_id, asset_id, units, coalesce(reason, ''), at, tx
  from transfer_operations
 where ` + snapshot.Unseen

// entry is one row with its transaction number.
type entry struct {
	transfer.Entry
	tx uint64
}

func scan(row pgx.CollectableRow) (e entry, err error) {
	err = row.Scan(&e.Seq, &e.ReqID, &e.Op, &e.UserID, &e.AssetID, &e.Units, &e.Refused, &e.At, &e.tx)
	e.At = e.At.UTC()
	return e, err
}

// Page implements [conservation.Journal]. It reads entries in the order of their transactions' numbers, in one round trip. It never
// splits the entries of one transaction, so it may return a few more than limit.
func (l *Ledger) Page(ctx context.Context, after conservation.Cursor, limit int) (conservation.Page, error) {
	seen, err := snapshot.Parse(string(after))
	if err != nil {
		return conservation.Page{}, fmt.Errorf("read the journal of Funding: %w", err)
	}
	var text string
	var read []entry
	b := new(pgx.Batch)
	b.Queue(`begin isolation level repeatable read read only`) // every statement reads the same snapshot
	b.Queue(`select pg_current_snapshot()::text`).QueryRow(func(row pgx.Row) error { return row.Scan(&text) })
	b.Queue(unread+` order by tx fetch first $2 rows with ties`, seen.String(), limit).Query(func(rows pgx.Rows) (err error) {
		read, err = pgx.CollectRows(rows, scan)
		return err
	})
	b.Queue("commit")
	if err := l.db.SendBatch(ctx, b).Close(); err != nil {
		return conservation.Page{}, fmt.Errorf("read the journal of Funding: %w", err)
	}
	slices.SortFunc(read, func(a, b entry) int { return cmp.Or(cmp.Compare(a.tx, b.tx), cmp.Compare(a.Seq, b.Seq)) })
	now, err := snapshot.Parse(text)
	more := len(read) >= limit
	if more {
		now = seen.Upto(read[len(read)-1].tx, now)
	}
	return conservation.Page{Entries: entries(read), Next: conservation.Cursor(now.String()), More: more}, err
}

func entries(read []entry) []transfer.Entry {
	all := make([]transfer.Entry, len(read))
	for i, e := range read {
		all[i] = e.Entry
	}
	return all
}

// Point implements [conservation.Journal]. It reads the rest of the journal and all balances from one snapshot.
func (l *Ledger) Point(ctx context.Context, after conservation.Cursor) (p conservation.Point, err error) {
	seen, err := snapshot.Parse(string(after))
	if err != nil {
		return p, fmt.Errorf("read the journal of Funding: %w", err)
	}
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, l.db, options, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, `select pg_current_snapshot()::text`).Scan(&p.Next); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, unread+` order by tx, id`, seen.String())
		if err != nil {
			return err
		}
		read, err := pgx.CollectRows(rows, scan)
		if err != nil {
			return err
		}
		p.Entries = entries(read)
		p.Balances, err = checks.ReadSums(ctx, tx, balances)
		return err
	})
	if err != nil {
		return conservation.Point{}, fmt.Errorf("read the journal and the balances of Funding: %w", err)
	}
	return p, nil
}

// balances reads balances in units.
const balances = `
select user_id, asset_id, floor(available * 10::numeric ^ precision)::text
  from balances_tb
 where (user_id, asset_id) > ($1, $2) and account_type = 'FUNDING'
 order by user_id, asset_id
 limit $3`

package funding

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/conservation"
	checks "github.com/fencepost/fencepost/shared/store/conservation"
	"github.com/fencepost/fencepost/shared/store/snapshot"
	"github.com/fencepost/fencepost/shared/transfer"
)

// The cursor of the journal is a Postgres snapshot of the entries that were read.
var _ conservation.Journal = (*Ledger)(nil)

const (
	unread = `
select id, req_id, op_type, user_id, asset_id, units, coalesce(reason, ''), at, tx
  from transfer_operations
 where ` + snapshot.Unseen

	unreadPage = `
select * from (` + unread + ` order by tx fetch first $2 rows with ties) as page order by tx, id`
)

func scan(row pgx.CollectableRow, tx *uint64) (e transfer.Entry, err error) {
	err = row.Scan(&e.Seq, &e.ReqID, &e.Op, &e.UserID, &e.AssetID, &e.Units, &e.Refused, &e.At, tx)
	e.At = e.At.UTC()
	return e, err
}

// Page implements [conservation.Journal].
func (l *Ledger) Page(ctx context.Context, after conservation.Cursor, limit int) (p conservation.Page, err error) {
	if p.Entries, p.Next, p.More, err = snapshot.ReadPage(ctx, l.db, after, limit, unreadPage, scan); err != nil {
		return p, fmt.Errorf("read the journal of Funding: %w", err)
	}
	return p, nil
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
		p.Entries, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (transfer.Entry, error) { return scan(row, new(uint64)) })
		if err != nil {
			return err
		}
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

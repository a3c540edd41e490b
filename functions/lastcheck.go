package functions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// lastCheck is what checks of conservation have come to.
type lastCheck struct {
	At       time.Time     `json:"at"`
	Result   string        `json:"result"`   // ok or standing
	Standing int           `json:"standing"` // how much is wrong and not known to be right again
	Found    []findingView `json:"found"`    // the first of it
}

const (
	checkedAt = `
select c.stored_at, (select count(*) from conservation_standing)
  from conservation_checkpoint c
 where c.is_current`

	standing = `
select f.kind, coalesce(f.side, ''), coalesce(f.req_id, ''), f.user_id, f.asset_id, f.expected, f.got, f.at
  from conservation_standing s
  join conservation_finding f using (finding_id)
 order by f.finding_id
 limit $1`
)

// lastCheck reads what the last check came to; nil where none has come to its end.
func (a *App) lastCheck(ctx context.Context) (*lastCheck, error) {
	last := lastCheck{Result: "ok"}
	b := new(pgx.Batch)
	b.Queue(standing, foundMost).Query(func(rows pgx.Rows) (err error) {
		last.Found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[findingView])
		return err
	})
	b.Queue(checkedAt).QueryRow(func(row pgx.Row) error { return row.Scan(&last.At, &last.Standing) })
	err := a.store.Pool().SendBatch(ctx, b).Close()
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the last check of conservation: %w", err)
	}
	last.At = last.At.UTC()
	if last.Standing > 0 {
		last.Result = "standing"
	}
	return &last, nil
}

package conservation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/conservation"
)

// ErrNoCheck reports that no check of conservation has been completed.
var ErrNoCheck = errors.New("no check of conservation has been completed")

const evidenceNow = `
select coalesce(r.debit, ''), coalesce(r.deposit, ''), coalesce(r.refund, '')
  from conservation_checkpoint c
  left join conservation_request r on r.generation = c.generation and r.req_id = $1
 where c.is_current and not c.over`

// EvidenceOf returns the journals' entries about the request, as far as checks have read them. It is
// empty without entries. The error is [ErrNoCheck] if no check has read the journals.
func (b *Book) EvidenceOf(ctx context.Context, reqID string) (conservation.Evidence, error) {
	e := conservation.Evidence{ReqID: reqID}
	err := b.db.QueryRow(ctx, evidenceNow, reqID).Scan(&e.Debit, &e.Deposit, &e.Refund)
	if errors.Is(err, pgx.ErrNoRows) {
		return e, ErrNoCheck
	}
	if err != nil {
		return e, fmt.Errorf("read the evidence about %s: %w", reqID, err)
	}
	return e, nil
}

// Last is the result of all checks so far.
type Last struct {
	At       time.Time  // when the last one was completed, by the database's clock
	Standing int        // number of open findings
	Found    []Standing // the first of them, oldest first
}

// Standing is an open finding, without its evidence.
type Standing struct {
	conservation.Finding // as in the last check
	ID                   int64
	At                   time.Time // when it was first found
}

const (
	checkedAt = `
select c.stored_at, (select count(*) from conservation_standing)
  from conservation_checkpoint c
 where c.is_current`

	standing = `
select f.finding_id, f.kind, coalesce(f.side, ''), coalesce(f.req_id, ''), f.user_id, f.asset_id, coalesce(s.expected, f.expected), coalesce(s.got, f.got), f.at
  from conservation_standing s
  join conservation_finding f using (finding_id)
 order by f.finding_id
 limit $1`
)

// Last returns the result of all checks so far, with at most limit findings; nil if no check has been
// completed.
func (b *Book) Last(ctx context.Context, limit int) (*Last, error) {
	var last Last
	batch := new(pgx.Batch)
	batch.Queue(standing, limit).Query(func(rows pgx.Rows) (err error) {
		last.Found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Standing, err error) {
			err = row.Scan(&s.ID, &s.Kind, &s.Side, &s.ReqID, &s.Account.UserID, &s.Account.AssetID, &s.Expected, &s.Got, &s.At)
			return s, err
		})
		return err
	})
	batch.Queue(checkedAt).QueryRow(func(row pgx.Row) error { return row.Scan(&last.At, &last.Standing) })
	err := b.db.SendBatch(ctx, batch).Close()
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the result of the checks of conservation: %w", err)
	}
	return &last, nil
}

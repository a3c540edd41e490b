package transfers

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/transfer"
)

// due takes transfers whose next attempt is due, and those that nobody has planned
// one for and nobody has moved for a while: their worker died. Every move takes the
// plan away, so what an earlier state waited for postpones nothing; and to take a
// transfer changes nothing that it is taken by. A restored database has none to take:
// nobody may move them before it is accepted.
const due = `
update transfers_tb t
   set swept_at = clock_timestamp()
 where t.transfer_id in (
       select x.transfer_id
         from transfers_tb x
        where x.open and coalesce(x.next_attempt_at, x.updated_at + $1::interval) <= clock_timestamp()
          and x.swept_at < coalesce($3, clock_timestamp())
          and (select is_authority())
        order by x.swept_at, x.transfer_id
        limit $2
          for no key update of x skip locked)
returning t.req_id, t.retry_count`

// Due is a transfer that the sweep has to step.
type Due struct {
	ReqID      string
	RetryCount int // of its step task's name
}

// Due takes up to limit transfers that are to be stepped now, those first that were
// not taken for longest, and none that was taken since the sweep began: two sweeps
// share the work. A zero began is now. rescueAfter is after how long a transfer
// without a plan has lost its worker. It returns the database's clock, by which the
// sweep's next batch goes.
func (s *Store) Due(ctx context.Context, rescueAfter time.Duration, limit int, began time.Time) (found []Due, now time.Time, err error) {
	since := &began
	if began.IsZero() {
		since = nil
	}
	b := new(pgx.Batch)
	b.Queue(`select clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	b.Queue(due, rescueAfter, limit, since).Query(func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Due])
		return err
	})
	if err := s.send(ctx, b); err != nil {
		return nil, now, fmt.Errorf("find transfers to step: %w", err)
	}
	return found, now, nil
}

// alarming are transfers whose money has been in flight for too long.
const alarming = transferColumns + `
 where t.open
   and (t.state = 30 and t.state_at < clock_timestamp() - case t.transfer_type when 3 then $2::interval else $1::interval end
     or t.state = -20 and t.failures >= $3)
 order by t.transfer_id
 limit $4`

// Alarming lists up to limit transfers that a person has to look at: for longer in
// TARGET_PENDING than the rules allow their type, or with as many refunds unknown in
// a row as the rules bear. The oldest come first.
func (s *Store) Alarming(ctx context.Context, rules transfer.Rules, limit int) ([]transfer.Transfer, error) {
	rows, err := s.db.Query(ctx, alarming, rules.PendingLimit, rules.PayoutLimit, rules.RefundLimit, limit)
	if err != nil {
		return nil, fmt.Errorf("find alarming transfers: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (transfer.Transfer, error) { return scanTransfer(row) })
}

// Busy is a user with unusually many transfers.
type Busy struct {
	UserID    int64
	Transfers int
}

// busy counts a column that no index has but the one in time: the planner would
// else walk the whole of the users' index.
const busy = `
select user_id, count(amount)
  from transfers_tb
 where created_at > (select clock_timestamp()) - $1::interval
 group by user_id
having count(amount) > $2
 order by count(amount) desc, user_id
 limit $3`

// Busy lists up to limit users who asked for more than most transfers within the
// time, the busiest first.
func (s *Store) Busy(ctx context.Context, within time.Duration, most, limit int) ([]Busy, error) {
	rows, err := s.db.Query(ctx, busy, within, most, limit)
	if err != nil {
		return nil, fmt.Errorf("find busy users: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Busy])
}

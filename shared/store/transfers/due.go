package transfers

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/transfer"
)

// due takes transfers whose next attempt is overdue, since its task is lost, and those
// that nobody has planned one for and nobody has moved for a while: their worker died.
// Every move takes the plan away, so what an earlier state waited for postpones
// nothing; and to take a transfer changes nothing that it is taken by. A restored
// database has none to take: nobody may move them before it is accepted.
//
// A row that was changed in the future shows that the database's clock was set back. Its
// plan lies as far ahead as the clock went back, so it is due now.
const due = `
update transfers_tb t
   set swept_at = clock_timestamp()
 where t.transfer_id in (
       select x.transfer_id
         from transfers_tb x
        where x.open
          and (coalesce(x.next_attempt_at, x.updated_at) + $1::interval <= clock_timestamp() or x.updated_at > clock_timestamp())
          and (x.swept_at < coalesce($3, clock_timestamp()) or x.swept_at > clock_timestamp())
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
// share the work. A zero began is now. rescueAfter is after how long a planned attempt
// has lost its task, and a transfer without a plan its worker. It returns the database's clock, by which the
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

// What is late, and the alert's own condition: for too long in TARGET_PENDING, or with
// as many refunds unknown in a row as the rules bear. A state that began further ahead
// than the limit shows that the database's clock was set back: nobody knows for how long
// it has lasted, and it is late.
const (
	latePending = `
 where t.open and t.state = 30
   and (clock_timestamp() - t.state_at not between
        -case t.transfer_type when 3 then $2::interval else $1::interval end
        and case t.transfer_type when 3 then $2::interval else $1::interval end)` + unacknowledged
	lateRefunds = `
 where t.open and t.state = -20 and t.failures >= $1` + unacknowledged

	// unacknowledged leaves out what a person has taken in hand since the database was
	// accepted last. Only what is late is looked up.
	unacknowledged = `
   and coalesce((select k.until <= clock_timestamp() or k.state <> t.state or k.at < t.state_at or exists (select from authority_change c where c.at >= k.at)
         from transfer_acknowledgement k where k.transfer_id = t.transfer_id order by k.id desc limit 1), true)`

	howLate   = `select count(*), greatest(max(clock_timestamp() - t.state_at), '0') from transfers_tb t`
	latestFew = ` order by t.state_at desc, t.transfer_id desc limit `
)

// Late are the transfers of one alert.
type Late struct {
	Count   int                 // of them all
	Longest time.Duration       // in its state, of them all
	Newest  []transfer.Transfer // those that came last, the newest first
}

// Alarming tells of the transfers that a person has to look at, up to limit of each
// kind by name: those for longer in TARGET_PENDING than the rules allow their type,
// and those with as many refunds unknown in a row as the rules bear. It leaves out those
// whose alert is acknowledged.
func (s *Store) Alarming(ctx context.Context, rules transfer.Rules, limit int) (pending, refunds Late, err error) {
	b := new(pgx.Batch)
	queueLate(b, &pending, latePending, `$3`, rules.PendingLimit, rules.PayoutLimit, limit)
	queueLate(b, &refunds, lateRefunds, `$2`, rules.RefundLimit, limit)
	if err := s.send(ctx, b); err != nil {
		return pending, refunds, fmt.Errorf("find alarming transfers: %w", err)
	}
	return pending, refunds, nil
}

// queueLate adds the two statements of one alert; the last argument is the limit of
// the second.
func queueLate(b *pgx.Batch, l *Late, condition, limit string, args ...any) {
	b.Queue(howLate+condition, args[:len(args)-1]...).QueryRow(func(row pgx.Row) error { return row.Scan(&l.Count, &l.Longest) })
	b.Queue(transferColumns+condition+latestFew+limit, args...).Query(func(rows pgx.Rows) (err error) {
		l.Newest, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (transfer.Transfer, error) { return scanTransfer(row) })
		return err
	})
}

// Busy is a user with unusually many transfers.
type Busy struct {
	UserID    int64
	Transfers int
}

// busy counts a column that no index has but the one in time: the planner would
// else walk the whole of the users' index. What was asked for in the future was asked for
// before the database's clock was set back, nobody knows when.
const busy = `
select user_id, count(amount)
  from transfers_tb
 where created_at > (select clock_timestamp()) - $1::interval and created_at <= (select clock_timestamp())
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

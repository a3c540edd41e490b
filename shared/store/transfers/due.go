package transfers

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/transfer"
)

// due takes transfers whose next attempt is overdue because its task is lost. It also takes those
// without a planned attempt that were not moved for a while, because their worker died. Each move
// deletes the plan, so a wait of an earlier state delays nothing. Taking a transfer does not change its
// order. A restored database has none to take, because nothing may be moved before its acceptance.
//
// A row with a change in the future shows that the database's clock was set back. Its plan is ahead by
// as much as the clock went back, so it is due now.
const due = `
update transfers_tb t
   set swept_at = clock_timestamp()
 where t.transfer_id in (
       select x.transfer_id
         from transfers_tb x
        where x.open
          and (coalesce(x.next_attempt_at, x.updated_at) + $1::interval <= clock_timestamp() or x.updated_at > clock_timestamp())
          and (x.swept_at < coalesce($3, clock_timestamp()) or x.swept_at > clock_timestamp())
          and (select is_accepted_database())
        order by x.swept_at, x.transfer_id
        limit $2
          for no key update of x skip locked)
returning t.req_id`

// Due takes up to limit transfers that are due now, by req_id, those first that were not taken for longest. It
// takes none that was taken since the sweep began: two sweeps share the work. A zero began is now.
// After rescueAfter a planned attempt counts as lost, and so does the worker of a transfer without
// a plan. Due returns the database's clock, which the sweep's next batch uses.
func (s *Store) Due(ctx context.Context, rescueAfter time.Duration, limit int, began time.Time) (found []string, now time.Time, err error) {
	since := pgtype.Timestamptz{Time: began, Valid: !began.IsZero()}
	found, now, err = results.AllNow(ctx, s.db, pgx.RowTo[string], due, rescueAfter, limit, since)
	return found, now, results.Wrap(err, "find transfers to step")
}

// Lateness is the alert's condition: too long in TARGET_PENDING, or as many consecutive unknown refunds
// as the rules allow. A state that began further in the future than the limit shows that the database's
// clock was set back: its duration is unknown, and it is late.
const (
	latePending = `
 where t.open and t.state = 30
   and (clock_timestamp() - t.state_at not between
        -case t.transfer_type when 3 then $2::interval else $1::interval end
        and case t.transfer_type when 3 then $2::interval else $1::interval end)` + unacknowledged
	lateRefunds = `
 where t.open and t.state = -20 and t.failures >= $1` + unacknowledged

	// unacknowledged excludes transfers that an operator has acknowledged since the database was last
	// accepted. Only late ones are looked up.
	unacknowledged = `
   and coalesce((select k.until <= clock_timestamp() or k.state <> t.state or k.at < t.state_at or exists (select from identity_change c where c.at >= k.at)
         from transfer_acknowledgement k where k.transfer_id = t.transfer_id order by k.id desc limit 1), true)`

	howLate   = `select count(*), greatest(max(clock_timestamp() - t.state_at), '0') from transfers_tb t`
	latestFew = ` order by t.state_at desc, t.transfer_id desc limit `
)

// Late holds the transfers of one alert.
type Late struct {
	Count   int                 // of all
	Longest time.Duration       // time in its state, of all
	Newest  []transfer.Transfer // the last ones, newest first
}

// Alarming returns the transfers that an operator must check, with up to limit of each kind by
// name. They are those longer in TARGET_PENDING than the rules allow their type, and those with as
// many consecutive unknown refunds as the rules allow. It excludes acknowledged ones.
func (s *Store) Alarming(ctx context.Context, rules transfer.Rules, limit int) (pending, refunds Late, err error) {
	b := new(pgx.Batch)
	queueLate(b, &pending, latePending, `$3`, rules.PendingLimit, rules.PayoutLimit, limit)
	queueLate(b, &refunds, lateRefunds, `$2`, rules.RefundLimit, limit)
	err = s.send(ctx, b)
	return pending, refunds, results.Wrap(err, "find alarming transfers")
}

// queueLate adds the two statements of one alert; the last argument is the limit of the second.
func queueLate(b *pgx.Batch, l *Late, condition, limit string, args ...any) {
	b.Queue(howLate+condition, args[:len(args)-1]...).QueryRow(results.Scan(&l.Count, &l.Longest))
	b.Queue(transferColumns+condition+latestFew+limit, args...).Query(results.Into(&l.Newest, scanTransfer))
}

// Busy is a user with unusually many transfers.
type Busy struct {
	UserID    int64
	Transfers int
}

// busy counts a column that only the time index has: otherwise the planner would read the whole users'
// index. It excludes requests with a time in the future: they were made before the database's clock was
// set back, at an unknown time.
const busy = `
select user_id, count(amount)
  from transfers_tb
 where created_at > (select clock_timestamp()) - $1::interval and created_at <= (select clock_timestamp())
 group by user_id
having count(amount) > $2
 order by count(amount) desc, user_id
 limit $3`

// Busy returns up to limit users with more than minimum transfers within the time, the busiest first.
func (s *Store) Busy(ctx context.Context, within time.Duration, minimum, limit int) ([]Busy, error) {
	all, err := results.All(ctx, s.db, pgx.RowToStructByPos[Busy], busy, within, minimum, limit)
	return all, results.Wrap(err, "find busy users")
}

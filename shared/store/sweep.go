package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// overdue finds submitters whose next step is overdue by the grace time. The step is a check,
// a broadcast or a signature for a bound nonce. It is also the allocation of the first unheld
// intent, the end of an expired one, or a rerun flag that no invocation has served. The
// statement reads only open rows. It excludes submitters in PROTECT, which an operator
// releases.
//
// A row that was changed in the future shows that the database's clock was set back. Its
// planned times lie as far ahead as the clock went back, so it is due now (see [reachable]).
const overdue = `
with recursive waiting as ( -- every submitter with a queue, by one step in the index each
  (select min(submitter::text) as submitter from managed_tx where queued)
  union all
  select (select min(q.submitter::text) from managed_tx q where q.queued and q.submitter > w.submitter)
    from waiting w
   where w.submitter is not null
), late as (
  select m.submitter
    from managed_tx m
   where m.open
     and (m.updated_at > clock_timestamp()
          or least(m.next_check_at, case when m.state = 'SUBMITTED' then m.next_resubmit_at end)
             < clock_timestamp() - $1::interval)
  union
  select s.submitter
    from waiting
    join submitter s using (submitter)
   where s.status = 'ACTIVE'
     and (select case when m.updated_at > clock_timestamp() then '-infinity' else coalesce(m.next_check_at, m.created_at) end
            from managed_tx m
           where m.submitter = s.submitter and ` + waits + ` and ` + isNotDeferred + `
           order by m.seq
           limit 1) < clock_timestamp() - $1::interval
     and ((select count(*) from managed_tx u where u.submitter = s.submitter and u.open) < s.max_in_flight or ` + recyclable + `)
  union
  select submitter
    from waiting
   where exists (select from managed_tx m
                  where m.submitter = waiting.submitter and ` + waits + ` and m.valid_until < (select clock_timestamp() - $1::interval))
  union
  select l.submitter
    from submitter_lease l
   where l.rerun_requested and (l.owner_node = '' or l.expires_at + $2::interval < clock_timestamp() or l.expires_at > clock_timestamp() + 2 * $5::interval)
)
update submitter s
   set swept_at = clock_timestamp()
 where s.submitter in (
       select x.submitter
         from submitter x
         join late using (submitter)
        where (x.swept_at < coalesce($4, clock_timestamp()) or x.swept_at > clock_timestamp()) and not exists (select from protect_incident p where p.submitter = x.submitter and p.closed_at is null)
        order by x.swept_at, x.submitter
        limit $3
          for no key update of x skip locked)
returning s.submitter`

// overdueProtected finds submitters in PROTECT whose watch task was lost. After them, once a
// minute each, it takes those without a watch task, because they have no open transaction.
// Only a chain query reads the foreign transactions that their release needs. This list is
// separate from overdue, so that these submitters never delay others.
const overdueProtected = `
update submitter s
   set swept_at = clock_timestamp()
 where s.submitter in (
       select x.submitter
         from submitter x
         join protect_incident p on p.submitter = x.submitter and p.closed_at is null
        cross join lateral (
              select coalesce(p.evidence ->> 'why' = 'REORG', false)
                     or exists (select from managed_tx m
                                 where m.submitter = x.submitter and m.open
                                   and (m.next_check_at < clock_timestamp() - $1::interval or m.updated_at > clock_timestamp())) as lost) watch
        where watch.lost
           or (x.swept_at < clock_timestamp() - interval '1 minute' or x.swept_at > clock_timestamp())
              and not exists (select from managed_tx m where m.submitter = x.submitter and m.open and m.next_check_at is not null)
        order by watch.lost desc, x.swept_at, x.submitter
        limit $2
          for no key update of x skip locked)
returning s.submitter`

// OverdueProtected takes up to limit submitters in PROTECT whose watch task was lost or that
// have none, the least recently taken first.
func (s *Store) OverdueProtected(ctx context.Context, grace time.Duration, limit int) ([]txmanager.Submitter, error) {
	rows, err := s.db.Query(ctx, overdueProtected, grace, limit)
	if err != nil {
		return nil, fmt.Errorf("find overdue submitters in PROTECT: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[txmanager.Submitter])
}

// Overdue takes up to limit submitters that a lost task left behind, the least recently taken
// first. It skips those taken since the sweep began (zero: now), because they stay overdue
// until their tasks have run. It returns the database's clock, which the sweep's next batch
// and its tasks use.
func (s *Store) Overdue(ctx context.Context, grace time.Duration, limit int, began time.Time) (found []txmanager.Submitter, now time.Time, err error) {
	since := &began
	if began.IsZero() {
		since = nil
	}
	b := new(pgx.Batch)
	b.Queue(`select clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	b.Queue(overdue, grace, s.rules.ClockSkewAllowance, limit, since, s.rules.Duration).Query(func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, pgx.RowTo[txmanager.Submitter])
		return err
	})
	if err := s.send(ctx, b); err != nil {
		return nil, now, fmt.Errorf("find overdue submitters: %w", err)
	}
	return found, now, nil
}

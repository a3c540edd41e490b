package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// overdue finds submitters whose next step is overdue by the grace time. The step is a check,
// a broadcast or a signature for a bound nonce. It is also the allocation of the first unheld
// intent, the end of an expired one, or a rerun flag that no invocation has served. The
// statement reads only open rows. It excludes submitters in PROTECT, which an operator
// releases.
//
// The poll at the next block looks for the outcome of a claimed broadcast. Its three equal times are
// due at once, so the grace time begins after the longest block time.
//
// A row that was changed in the future shows that the database's clock was set back. Its
// planned times lie as far ahead as the clock went back, so it is due now (see [reachable]).
var overdue = `
with recursive ` + queueing("") + `, late as (
  select m.submitter
    from managed_tx m
   where m.open
     and (m.updated_at > clock_timestamp()
          or case when m.state <> 'SUBMITTED' then m.next_check_at
                  when m.next_check_at = m.last_submit_at and m.next_resubmit_at = m.last_submit_at then m.last_submit_at + $6::interval
                  else least(m.next_check_at, m.next_resubmit_at) end < clock_timestamp() - $1::interval)
  union
  select s.submitter
    from waiting
    join submitter s using (submitter)
   where s.status = 'ACTIVE'
     and (select case when m.updated_at > clock_timestamp() then '-infinity' else coalesce(m.next_check_at, m.created_at) end
            from managed_tx m
           where m.submitter = s.submitter and ` + waits + ` and ` + isNotDeferred("m") + `
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
	all, err := results.All(ctx, s.db, pgx.RowTo[txmanager.Submitter], overdueProtected, grace, limit)
	return all, results.Wrap(err, "find overdue submitters in PROTECT")
}

// Overdue takes up to limit submitters that a lost task left behind, the least recently taken
// first. It skips those taken since the sweep began (zero: now), because they stay overdue
// until their tasks have run. It returns the database's clock, which the sweep's next batch
// and its tasks use.
func (s *Store) Overdue(ctx context.Context, grace time.Duration, limit int, began time.Time) (found []txmanager.Submitter, now time.Time, err error) {
	since := pgtype.Timestamptz{Time: began, Valid: !began.IsZero()}
	found, now, err = results.AllNow(ctx, s.db, pgx.RowTo[txmanager.Submitter], overdue,
		grace, s.rules.ClockSkewAllowance, limit, since, s.rules.Duration, s.opts.BlockTime)
	return found, now, results.Wrap(err, "find overdue submitters")
}

// Backlog has the counts and ages of waiting items, over all submitters.
type Backlog struct {
	Queued     int           // intents that wait for a nonce, less those that are held
	Held       int           // intents that no nonce is given to until their caller or an operator decides
	Fullest    int           // of them, in the longest queue of one submitter
	OldestHeld time.Duration // since the first signature for the nonce that has been held for longest; 0: none is held
	Stuck      int           // transactions that wait for a decision
	NoReceipt  int           // transactions that were sent and have no receipt yet
	Protected  int           // submitters in PROTECT: all, where the database is not the one written last
	Halts      int           // halts of transfers that stand

	WaitBalance int // submitters in whose queue something waits for the account to be funded
	WaitFee     int // submitters in whose queue something waits for lower fees
	BumpHeld    int // transactions that a bound keeps from being replaced at a higher fee

	HeldLongest time.Duration // since the held intent that was left alone for longest was changed last; 0: none is held
}

// backlog reads only open rows. An item whose start lies in the future, because the clock was
// set back, has waited 0 seconds. Of one submitter's nonces, the lowest has been held for
// longest.
const backlog = `
with queue as (
  select count(*) as length, bool_or(wait_cause = 'BALANCE') as poor, bool_or(wait_cause in ('FEE_CEILING', 'OWN_BOUNDS', 'POLICY')) as dear
    from managed_tx where queued and not held group by submitter
), open_txs as materialized (
  select submitter, nonce, tx_id, state, sub_state, updated_at, wait_cause from managed_tx where open
), lowest as (
  select distinct on (submitter) tx_id, updated_at from open_txs order by submitter, nonce
)
select (select coalesce(sum(length), 0) from queue), (select coalesce(max(length), 0) from queue),
       (select greatest(clock_timestamp() - min(coalesce(v.created_at, l.updated_at)), interval '0')
          from lowest l
          left join tx_version v on v.tx_id = l.tx_id and v.version = 1),
       (select count(*) from open_txs where state = 'STUCK'),
       (select count(*) from open_txs where state = 'SUBMITTED' or sub_state = 'PENDING'),
       case when is_accepted_database() then (select count(*) from protect_incident where closed_at is null)
            else (select count(*) from submitter) end,
       (select count(*) from queue where poor), (select count(*) from queue where dear),
       (select count(*) from open_txs where wait_cause = 'GAS_BUMP'),
       (select count(*) from managed_tx where queued and held),
       (select count(*) from transfer_halt where resumed_at is null),
       (select greatest(clock_timestamp() - min(updated_at), interval '0') from managed_tx where queued and held)`

// Backlog reads the counts and ages in one round trip.
func (s *Store) Backlog(ctx context.Context) (b Backlog, err error) {
	err = s.db.QueryRow(ctx, backlog).Scan(&b.Queued, &b.Fullest, &b.OldestHeld, &b.Stuck, &b.NoReceipt, &b.Protected,
		&b.WaitBalance, &b.WaitFee, &b.BumpHeld, &b.Held, &b.Halts, &b.HeldLongest)
	return b, results.Wrap(err, "read the backlog")
}

// KeepPartitions creates the missing partitions of the coming quarters, and returns how many
// it created. If none is missing it costs one read of the catalog. An error does no harm
// before the quarter begins. Afterwards rows without a partition go to the default one.
func (s *Store) KeepPartitions(ctx context.Context) (made int, err error) {
	err = s.db.QueryRow(ctx, `select ensure_partitions()`).Scan(&made)
	return made, results.Wrap(err, "make the partitions of the next quarters")
}

const setLastSweep = `
insert into last_sweep (sweep) values ($1)
    on conflict on constraint one_last_sweep do update set sweep = excluded.sweep`

// SetLastSweep stores the id of a sweep as that of the last one. It implements [telemetry.Sweeps].
func (s *Store) SetLastSweep(ctx context.Context, id string) error {
	_, err := s.db.Exec(ctx, setLastSweep, id)
	return results.Wrap(err, "store the last sweep")
}

// LastSweep is the id that [Store.SetLastSweep] stored last, in any process; "" before the first sweep.
func (s *Store) LastSweep(ctx context.Context) (id string, err error) {
	err = s.db.QueryRow(ctx, `select coalesce((select sweep from last_sweep), '')`).Scan(&id)
	return id, results.Wrap(err, "read the last sweep")
}

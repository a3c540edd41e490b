package store

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Overview is the state of the whole deployment.
type Overview struct {
	At        time.Time        `json:"at"`        // of the database
	States    []StateCount     `json:"states"`    // of what has not ended
	Rates     []Rate           `json:"rates"`     // of 1, 5 and 60 minutes
	RatesUpTo *time.Time       `json:"ratesUpTo"` // the end of the last counted minute; nil: none was counted in the last hour
	Oldest    *OldestTx        `json:"oldest"`    // the oldest one that has not ended; nil: none
	Attention []AttentionCount `json:"attention"`
}

// StateCount is a number of transactions.
type StateCount struct {
	State txmanager.State `json:"state"`
	Count int             `json:"count"`
	Held  int             `json:"held"` // of them, how many are held
}

// OldestTx is the transaction that has not ended for longest.
type OldestTx struct {
	TxID      string              `json:"txId"`
	Submitter txmanager.Submitter `json:"submitter"`
	State     txmanager.State     `json:"state"`
	CreatedAt time.Time           `json:"createdAt"`
}

// These statements read rows that have not ended, by their indexes. The oldest queued row of a submitter
// is the first of its queue, or of its held intents.
var (
	stateCounts = `
select state, count(*), 0 from managed_tx where open group by state
union all
select 'QUEUED', count(*), count(*) filter (where held) from managed_tx where queued`

	oldestTx = `
with recursive ` + queueing("") + `
select x.tx_id, x.submitter, x.state, x.created_at
  from (select m.tx_id, m.submitter, m.state, m.created_at from managed_tx m where m.open
        union all
        select f.tx_id, f.submitter, f.state, f.created_at
          from waiting w
         cross join (values (false), (true)) as h (held)
         cross join lateral (
               select * from managed_tx q where q.submitter = w.submitter and q.queued and q.held = h.held order by q.seq limit 1) as f) as x
 order by x.created_at, x.tx_id
 limit 1`
)

// Overview reads the state of the deployment, in one round trip.
func (s *Store) Overview(ctx context.Context, l AttentionLimits) (o Overview, err error) {
	var minutes []minute
	b := new(pgx.Batch)
	b.Queue(`select clock_timestamp()`).QueryRow(results.Scan(&o.At))
	b.Queue(stateCounts).Query(results.Into(&o.States, pgx.RowToStructByPos[StateCount]))
	b.Queue(oldestTx).Query(results.First(&o.Oldest, pgx.RowToStructByPos[OldestTx]))
	b.Queue(lastMinutes).Query(results.Into(&minutes, pgx.RowToStructByPos[minute]))
	b.Queue(attentionCounts, s.attentionArgs(l)).Query(results.Into(&o.Attention, pgx.RowToStructByPos[AttentionCount]))
	if err := s.send(ctx, b); err != nil {
		return o, results.Wrap(err, "read the overview")
	}
	if o.Rates = ratesOf(minutes); len(minutes) > 0 {
		o.RatesUpTo = new(minutes[0].Minute.Add(time.Minute))
	}
	return o, nil
}

// The sweep counts a minute once it has been over for minuteGrace: a commit that takes longer is not
// counted. It counts minutes of the last minutesBehind, minutesAtOnce in one commit, and keeps counts for
// minutesKept.
const (
	minuteGrace   = "5 seconds"
	minutesBehind = "60 minutes"
	minutesAtOnce = 5
	minutesKept   = "48 hours"
)

// countMinutes counts the minutes that are over and not counted yet. It reads the history of these minutes
// by its time, and the transactions that the chain ended. Of a minute with many it reads those whose id
// ends with a zero, and each counts for 16. A clock that was set back delays the counts.
const countMinutes = `
with span as materialized (
  select v.begins, least(u.over, v.begins + $1::integer * interval '1 minute') as ends
    from (select date_bin('1 minute', clock_timestamp() - interval '` + minuteGrace + `', 'epoch') as over) as u
   cross join lateral (select greatest((select max(minute) + interval '1 minute' from tx_minute), u.over - interval '` + minutesBehind + `') as begins) as v
), moved as materialized (
  select h.tx_id, h.at, h.from_state is null as is_new, h.state, h.sub_state
    from tx_history h
   where h.at >= (select begins from span) and h.at < (select ends from span)
     and case when h.from_state is null then h.state in ('QUEUED', 'IN_FLIGHT') else h.state in ('CONFIRMED', 'FAILED') end
), counted as (
  select date_bin('1 minute', at, 'epoch') as minute, count(*) filter (where is_new) as accepted,
         count(*) filter (where not is_new and state = 'CONFIRMED') as confirmed, count(*) filter (where not is_new and state = 'FAILED') as failed
    from moved
   group by 1
), lasted as (
  select c.minute, case when c.confirmed + c.failed > 4000 then 16 else 1 end as weight,
         least(greatest(floor(4 * ln(greatest(extract(epoch from e.at - m.created_at)::float8, 0.001)) / ln(2::float8)) + 22, 1), 105)::integer as place
    from moved e
    join counted c on c.minute = date_bin('1 minute', e.at, 'epoch')
    join managed_tx m on m.tx_id = e.tx_id
   where not e.is_new and (e.state = 'CONFIRMED' or e.sub_state = 'REVERTED')
     and (c.confirmed + c.failed <= 4000 or e.tx_id::text like '%0')
), places as (
  select minute, place, sum(weight)::integer as n from lasted group by 1, 2
)
insert into tx_minute (minute, accepted, confirmed, failed, seconds)
select s.minute, coalesce(c.accepted, 0), coalesce(c.confirmed, 0), coalesce(c.failed, 0),
       array(select coalesce(p.n, 0)
               from generate_series(1, (select max(q.place) from places q where q.minute = s.minute)) as g (place)
               left join places p on p.minute = s.minute and p.place = g.place
              order by g.place)
  from generate_series((select begins from span), (select ends from span) - interval '1 minute', interval '1 minute') as s (minute)
  left join counted c on c.minute = s.minute
    on conflict (minute) do nothing`

const forgetMinutes = `delete from tx_minute where minute < clock_timestamp() - interval '` + minutesKept + `'`

// CountMinutes counts the completed minutes for [Store.Overview], until all are counted or ctx ends. It
// takes one round trip, unless earlier sweeps have left several minutes.
func (s *Store) CountMinutes(ctx context.Context) error {
	for counted := minutesAtOnce; counted == minutesAtOnce; {
		b := new(pgx.Batch)
		b.Queue(countMinutes, minutesAtOnce).Exec(results.Count(&counted))
		b.Queue(forgetMinutes)
		if err := s.send(ctx, b); err != nil {
			return results.Wrap(err, "count the last minutes")
		}
	}
	return nil
}

// minute is what happened in a counted minute.
type minute struct {
	Minute                      time.Time
	Accepted, Confirmed, Failed int
	Seconds                     []int // see migrations/0017_minutes.sql
}

const lastMinutes = `
select minute, accepted, confirmed, failed, seconds
  from tx_minute
 where minute > (select clock_timestamp()) - interval '62 minutes'
 order by minute desc
 limit 60`

// Rate is what happened in the last counted minutes.
type Rate struct {
	Minutes   int    `json:"minutes"` // the length of the window
	Counted   int    `json:"counted"` // of its minutes, how many were counted
	Accepted  int    `json:"accepted"`
	Confirmed int    `json:"confirmed"`
	Failed    int    `json:"failed"`
	P50       *int64 `json:"p50Milliseconds"` // from accepted to final, rounded up by at most a fifth; nil: nothing ended on the chain
	P99       *int64 `json:"p99Milliseconds"`
}

// ratesOf are the rates of the last 1, 5 and 60 counted minutes.
func ratesOf(minutes []minute) []Rate {
	rates := []Rate{{Minutes: 1}, {Minutes: 5}, {Minutes: 60}}
	for i := range rates {
		r := &rates[i]
		var seconds []int
		for _, m := range minutes {
			if minutes[0].Minute.Sub(m.Minute) >= time.Duration(r.Minutes)*time.Minute {
				break
			}
			r.Counted, r.Accepted, r.Confirmed, r.Failed = r.Counted+1, r.Accepted+m.Accepted, r.Confirmed+m.Confirmed, r.Failed+m.Failed
			seconds = added(seconds, m.Seconds)
		}
		r.P50, r.P99 = percentile(seconds, 0.50), percentile(seconds, 0.99)
	}
	return rates
}

// added is the sum of two lists of counts.
func added(a, b []int) []int {
	sum := make([]int, max(len(a), len(b)))
	copy(sum, a)
	for i, n := range b {
		sum[i] += n
	}
	return sum
}

// percentile is a time in milliseconds in which that share of the counted transactions ended; nil: none did.
func percentile(seconds []int, share float64) *int64 {
	all := 0
	for _, n := range seconds {
		all += n
	}
	left := int(math.Ceil(share * float64(all)))
	for i, n := range seconds {
		if left -= n; left <= 0 && all > 0 {
			return new(int64(math.Round(1000 * math.Exp2(float64(i-20)/4))))
		}
	}
	return nil
}

package events

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/events"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// acquireStream takes the lease of a delivery queue or sets its rerun flag, as acquireOrMark
// does.
const acquireStream = `
update event_delivery_queue l
   set (owner_node, fencing_token, expires_at, rerun_requested, redeliver_after) = (
       select case when free then $3 else l.owner_node end,
              case when free then l.fencing_token + 1 else l.fencing_token end,
              case when free then now + $4 else l.expires_at end,
              not free,
              case when not free then l.redeliver_after end
         from (select now, l.owner_node in ('', $3)
                        or l.expires_at + $5 < now
                        or l.expires_at > now + 2 * $4::interval as free
                 from (select clock_timestamp() as now) as clock) as evaluated)
 where submitter = $1 and endpoint = $2 and (select is_accepted_database())
returning owner_node = $3, fencing_token, expires_at, expires_at + $5, clock_timestamp(), failures, next_attempt_at, pending`

// streamLast comes before the events are read, so that the read sees all events up to it.
const streamLast = `select last from event_delivery_queue where submitter = $1 and endpoint = $2`

// eventsOfStream are the first events that the webhook endpoint has not acknowledged.
const eventsOfStream = `
select e.position, e.tx_id, e.sequence, e.type, e.submitter, e.caller, e.body
  from event e
 where e.submitter = $1
   and e.position > (select delivered from event_delivery_queue where submitter = $1 and endpoint = $2)
 order by e.position
 limit $3`

func queuePage(b *pgx.Batch, s txmanager.Submitter, endpoint string, p *events.Page) {
	b.Queue(streamLast, s, endpoint).QueryRow(results.Maybe(&p.To))
	b.Queue(eventsOfStream, s, endpoint, events.PageSize).Query(func(rows pgx.Rows) (err error) {
		p.Events, err = pgx.CollectRows(rows, pgx.RowToStructByPos[txmanager.Event])
		if n := len(p.Events); n == events.PageSize {
			p.To = p.Events[n-1].Position // there may be more
		}
		return err
	})
}

// AcquireDeliveryQueue implements [events.Store]: begin, acquire, commit, load, in one round trip.
func (s *Log) AcquireDeliveryQueue(ctx context.Context, sub txmanager.Submitter, endpoint, owner string) (t events.AcquireResult, err error) {
	sentAt := time.Now()
	b := new(pgx.Batch)
	b.Queue("begin")
	b.Queue(acquireStream, sub, endpoint, owner, s.rules.Duration, s.rules.ClockSkewAllowance).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&t.Held, &t.Token, &t.ExpiresAt, &t.FreeAt, &t.Now, &t.Failures, &t.NextAttemptAt, &t.Pending)
		t.There = err == nil
		return results.Missing(err, nil)
	})
	b.Queue("commit")
	queuePage(b, sub, endpoint, &t.Page)
	if err := s.send(ctx, b); err != nil {
		return events.AcquireResult{}, fmt.Errorf("take the events of %s for %s: %w", sub, endpoint, err)
	}
	t.Lease = lease.New(string(sub), owner, t.Token, sentAt, s.rules.Duration)
	return t, nil
}

// heldStream is the fence of a delivery queue: its own row, which the statement locks.
const heldStream = `
 where submitter = @submitter and endpoint = @endpoint and owner_node = @owner and fencing_token = @token and expires_at > clock_timestamp()`

// delivered is how far the endpoint has acknowledged the events. An operator's redelivery meanwhile goes back
// behind it.
const delivered = `least(greatest(s.delivered, @to), s.redeliver_after)`

// settleStream stores what the webhook endpoint has acknowledged and the time of the next
// attempt, and renews the lease. An event that is delivered again has waited since its redelivery was requested.
const settleStream = `
update event_delivery_queue s
   set delivered = ` + delivered + `, redeliver_after = null, failures = @failures, last_error = nullif(@error, ''), next_attempt_at = clock_timestamp() + @wait,
       oldest_at = case when ` + delivered + ` < s.last then coalesce(
         (select greatest(e.at, s.redelivered_at) from event e where e.submitter = @submitter and e.position > ` + delivered + ` order by e.position limit 1), s.oldest_at) end,
       expires_at = clock_timestamp() + @duration` + heldStream + `
returning next_attempt_at`

// Settle implements [events.Store].
func (s *Log) Settle(ctx context.Context, l lease.Lease, endpoint string, o events.Outcome) (next events.SettleResult, err error) {
	sentAt := time.Now()
	b := new(pgx.Batch)
	b.Queue("begin")
	b.Queue(settleStream, store.NamedArgs{
		"submitter": l.Submitter,
		"endpoint":  endpoint,
		"owner":     l.Owner,
		"token":     l.Token,
		"to":        store.Bigint(o.To),
		"failures":  o.Failures,
		"error":     store.PrintableText(o.Error),
		"wait":      o.Wait,
		"duration":  s.rules.Duration,
	}).
		QueryRow(func(row pgx.Row) error { return store.Held(l, row.Scan(&next.NextAttemptAt)) })
	switch {
	case o.Silent:
		b.Queue(endpointSilent, endpoint, events.FirstWait, events.MaxWait)
	case o.Asked:
		b.Queue(endpointAnswers, endpoint)
	}
	queueAnswer(b, endpoint, o.Answer)
	b.Queue("commit")
	queuePage(b, txmanager.Submitter(l.Submitter), endpoint, &next.Page)
	if err := s.send(ctx, b); err != nil {
		return events.SettleResult{}, fmt.Errorf("settle events of %s for %s: %w", l.Submitter, endpoint, err)
	}
	next.Lease = lease.New(l.Submitter, l.Owner, l.Token, sentAt, s.rules.Duration)
	return next, nil
}

// releaseStream releases a delivery queue, unless the rerun flag is set; $5 overrides the
// flag.
const releaseStream = `
update event_delivery_queue
   set owner_node = '', rerun_requested = false
 where submitter = $1 and endpoint = $2 and owner_node = $3 and fencing_token = $4 and (not rerun_requested or $5)`

// ReleaseDeliveryQueue implements [events.Store].
func (s *Log) ReleaseDeliveryQueue(ctx context.Context, l lease.Lease, endpoint string, anyway bool) (released bool, err error) {
	tag, err := s.db.Exec(ctx, releaseStream, l.Submitter, endpoint, l.Owner, l.Token, anyway)
	return tag.RowsAffected() == 1, results.Wrap(err, "release the events of %s for %s", l.Submitter, endpoint)
}

// These statements keep the state of a webhook endpoint over all delivery queues. An endpoint
// that often gave no answer is skipped until its next time. Then one delivery queue tries it.
const (
	endpointSilent = `
insert into event_endpoint as r (endpoint, failures, next_attempt_at)
values ($1, 1, clock_timestamp() + $2::interval)
    on conflict (endpoint) do update
   set failures = r.failures + 1,
       next_attempt_at = clock_timestamp() + least($2::interval * power(2, least(r.failures, 20)), $3::interval)`

	endpointAnswers = `update event_endpoint set failures = 0 where endpoint = $1 and failures > 0`

	mayAsk = `
with probe as (
  update event_endpoint
     set next_attempt_at = clock_timestamp() + $3::interval
   where endpoint = $1 and failures >= $2 and paused_at is null and next_attempt_at not between clock_timestamp() and clock_timestamp() + $4::interval
  returning endpoint
)
select exists (select from probe) or not exists (select from event_endpoint where endpoint = $1 and (failures >= $2 or paused_at is not null))`
)

// MayDeliver implements [events.Store].
func (s *Log) MayDeliver(ctx context.Context, endpoint string) (may bool, err error) {
	err = s.db.QueryRow(ctx, mayAsk, endpoint, events.SilentFrom, s.rules.Duration, events.MaxWait).Scan(&may)
	return may, results.Wrap(err, "ask whether %s answers", endpoint)
}

// overdueStreams are the delivery queues that wait and have no lease holder. Of an endpoint
// that gives no answer there is one, if it may be tried; of a paused one there is none.
//
// Three cases show that the database's clock was set back: an event in the future, an attempt
// later than any plan, and a lease longer than any that is taken. The statement waits for none
// of them.
const overdueStreams = `
select submitter, endpoint
  from (select s.submitter, s.endpoint, s.oldest_at, coalesce(r.failures >= $5, false) as silent,
               row_number() over (partition by s.endpoint order by s.oldest_at, s.submitter) as place
          from event_delivery_queue s
          left join event_endpoint r on r.endpoint = s.endpoint
         where s.pending and s.endpoint = any($1) and r.paused_at is null
           and s.oldest_at not between clock_timestamp() - $2::interval and clock_timestamp()
           and s.next_attempt_at not between clock_timestamp() - $2::interval
               and clock_timestamp() + case when s.failures > 0 then least($8::interval * power(2, least(s.failures - 1, 20)), $6) else '0' end
           and (s.owner_node = '' or s.expires_at + $3::interval < clock_timestamp() or s.expires_at > clock_timestamp() + 2 * $7::interval)
           and not coalesce(r.failures >= $5 and r.next_attempt_at between clock_timestamp() and clock_timestamp() + $6::interval, false)) as waiting
 where place <= case when silent then 1 else $4::int end
 order by oldest_at`

// OverdueStreams lists up to limit delivery queues of each endpoint that a lost task left
// behind, the oldest first, and the database's clock.
func (s *Log) OverdueStreams(ctx context.Context, endpoints []string, grace time.Duration, limit int) (all []events.DeliveryQueue, now time.Time, err error) {
	all, now, err = results.AllNow(ctx, s.db, pgx.RowToStructByPos[events.DeliveryQueue], overdueStreams,
		endpoints, grace, s.rules.ClockSkewAllowance, limit, events.SilentFrom, events.MaxWait, s.rules.Duration, events.FirstWait)
	return all, now, results.Wrap(err, "find overdue events")
}

// EventBacklog counts the events that an endpoint has not been given.
type EventBacklog struct {
	Endpoint string
	Streams  int           // submitters with events that wait
	Oldest   time.Duration // since when the oldest waits; not below 0, also where the clock was set back
	Paused   time.Duration // since an operator paused the endpoint; 0: it is not paused
}

// EventBacklogs are those of the endpoints, each once, in one round trip.
func (s *Log) EventBacklogs(ctx context.Context, endpoints []string) ([]EventBacklog, error) {
	all, err := results.All(ctx, s.db, pgx.RowToStructByPos[EventBacklog], `
		select r.endpoint, count(s.submitter), greatest(clock_timestamp() - min(s.oldest_at), interval '0'),
		       greatest(clock_timestamp() - (select e.paused_at from event_endpoint e where e.endpoint = r.endpoint), interval '0')
		  from unnest($1::text[]) as r (endpoint)
		  left join event_delivery_queue s on s.endpoint = r.endpoint and s.pending
		 group by r.endpoint`, endpoints)
	return all, results.Wrap(err, "read the backlog of events")
}

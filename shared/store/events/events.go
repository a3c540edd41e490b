// Package events stores the events of transactions: their positions, the delivery queues of webhook
// endpoints, and the pages that callers read. It implements [events.Store].
//
// After an error the write may have happened. All times are from the database's clock.
package events

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/shared/events"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Log is the port to the tables of events.
type Log struct {
	db    *pgxpool.Pool
	rules lease.Rules
}

var _ events.Store = (*Log)(nil)

// New uses the pool of s; its owner closes it.
func New(s *store.Store) *Log { return &Log{s.Pool(), s.LeaseRules()} }

// send makes one round trip.
func (s *Log) send(ctx context.Context, b *pgx.Batch) error { return s.db.SendBatch(ctx, b).Close() }

// lockNumbers is the lock that a session holds until commit while it assigns positions.
const lockNumbers = `select pg_advisory_xact_lock(hashtext('number_events'))`

// numberEvents moves events out of the outbox and assigns the next positions. It is a separate
// statement after the lock, so that it sees everything that earlier holders have committed. An
// outbox id is drawn before its commit, so a lower id may still be committed later. Positions
// are assigned to committed events only, so no later event gets a lower one.
//
// The ids of one transaction follow its sequences. If one is committed, all before it are too,
// because each was made under the lock of the transaction's row.
//
// In a database under another epoch the positions continue far above those that its
// predecessor may have assigned.
const numberEvents = `
with counter as materialized (
  select c.last + case when c.epoch = a.epoch then 0 else 1000000000 end as last, a.epoch
    from event_counter c, database_identity a
   where (select is_accepted_database())
), taken as (
  delete from event_outbox
   where id in (select o.id from event_outbox o where exists (select from counter) order by o.id limit $2)
  returning *
), numbered as (
  select t.*, (t.body ->> 'timestamp')::timestamptz as made_at, c.last + row_number() over (order by t.id) as position
    from taken t, counter c
), kept as (
  insert into event (position, tx_id, sequence, type, submitter, caller, body)
  select position, tx_id, sequence, type, submitter, caller, body
    from numbered
      on conflict (tx_id, sequence) do nothing
), counted as (
  update event_counter
     set last = n.last, epoch = n.epoch
    from (select max(position) as last, (select epoch from counter) as epoch from numbered) as n
   where n.last is not null
), streams as (
  insert into event_delivery_queue as s (submitter, endpoint, delivered, last, oldest_at, next_attempt_at)
  select n.submitter, r.endpoint, min(n.position) - 1, max(n.position), min(n.made_at), min(n.made_at)
    from numbered n, unnest($1::text[]) as r (endpoint)
   group by n.submitter, r.endpoint
   order by n.submitter, r.endpoint
      on conflict (submitter, endpoint) do update
     set last = excluded.last, oldest_at = case when s.pending then s.oldest_at else excluded.oldest_at end
)
select count(*) from taken`

// maxNumbered is the largest number of events that get their positions in one commit.
const maxNumbered = 2000

// NumberEvents assigns positions to the events that were committed before the call, and queues
// them for delivery to the webhook endpoints (endpoints). Of very many events it may leave
// some for the next call. A new endpoint gets the events from now on.
func (s *Log) NumberEvents(ctx context.Context, endpoints []string) error {
	for range 50 {
		var numbered int
		b := new(pgx.Batch)
		b.Queue("begin")
		b.Queue(lockNumbers)
		b.Queue(numberEvents, endpoints, maxNumbered).QueryRow(results.Scan(&numbered))
		b.Queue("commit")
		if err := s.send(ctx, b); err != nil {
			return fmt.Errorf("number events: %w", err)
		}
		if numbered < maxNumbered {
			break
		}
	}
	return nil
}

var (
	eventColumns = `select e.position, e.tx_id, e.sequence, e.type, e.submitter, e.caller, e.body
  from event e
 where e.position > $1`

	eventsOfAll       = eventColumns + ` order by e.position limit $2`
	eventsOfSubmitter = eventColumns + ` and e.submitter = $3 and (` + store.Owned("e", "$4::text[]") + ` or $5) order by e.position limit $2`

	// This statement covers all submitters. It takes a separate index step for each name under
	// which the caller's events may be stored.
	eventsOfCaller = `
with names as (
  select n as caller from unnest($3::text[]) as n
   union
  select o.key from submitter s, jsonb_each_text(s.succeeded) as o where s.succeeded <> '{}' and o.value = any($3::text[])
)
select f.*
  from names n
 cross join lateral (` + eventColumns + ` and e.caller = n.caller and ` + store.Owned("e", "$3::text[]") + ` order by e.position limit $2) as f
 order by f.position
 limit $2`
)

// EventsDeletedError reports a position whose events were deleted.
type EventsDeletedError struct {
	Oldest uint64 // from where on they are
}

// Error names the position after which events are kept.
func (e EventsDeletedError) Error() string {
	return fmt.Sprintf("events up to position %d were deleted", e.Oldest)
}

// EventQuery asks for one page of the kept events, in order.
type EventQuery struct {
	After     *uint64             // the position that was read last; nil: from the oldest on
	Submitter txmanager.Submitter // "": of all
	Size      int                 // at most so many
}

// Events returns a page of the events that v may see, and the position to continue after. A
// caller sees its own transactions' events, an operator sees all. The position also covers
// events that v may not see. No event is ever added at or below a returned position. The error
// is [store.ErrCursor] if After was never assigned, or an [EventsDeletedError].
func (s *Log) Events(ctx context.Context, q EventQuery, v store.Viewer) (page []txmanager.Event, next uint64, err error) {
	after := uint64(0)
	if q.After != nil {
		after = *q.After
	}
	statement, args := eventsOfCaller, []any{store.Bigint(after), q.Size, v.AllNames()}
	switch {
	case q.Submitter != "":
		statement, args = eventsOfSubmitter, []any{store.Bigint(after), q.Size, q.Submitter, v.AllNames(), v.Operator}
	case v.Operator:
		statement, args = eventsOfAll, args[:2]
	}
	var last, forgotten uint64
	b := new(pgx.Batch)
	b.Queue("begin isolation level repeatable read read only") // what is forgotten, as of the page
	b.Queue(`select last, forgotten from event_counter`).QueryRow(results.Scan(&last, &forgotten))
	b.Queue(statement, args...).Query(results.Into(&page, pgx.RowToStructByPos[txmanager.Event]))
	b.Queue("commit")
	switch err := s.send(ctx, b); {
	case err != nil:
		return nil, 0, fmt.Errorf("read events: %w", err)
	case after > last:
		return nil, 0, store.ErrCursor
	case q.After != nil && after < forgotten:
		return nil, 0, EventsDeletedError{forgotten}
	case len(page) == q.Size:
		last = page[len(page)-1].Position
	}
	return page, last, nil
}

// forgetEvents deletes the oldest events if they are old enough, and no paused endpoint waits for them. Positions and
// ages have the same order.
const forgetEvents = `
with old as (
  delete from event
   where position in (select f.position from (select position, at from event order by position limit $2) as f
                       where f.at < clock_timestamp() - $1::interval
                         and f.position <= coalesce((select min(s.delivered) from event_delivery_queue s
                                                       join event_endpoint r on r.endpoint = s.endpoint
                                                      where s.pending and r.paused_at is not null and s.endpoint = any($3)), f.position))
  returning position
), counted as (
  update event_counter
     set forgotten = greatest(forgotten, o.last)
    from (select max(position) as last from old) as o
   where o.last is not null
)
select count(*) from old`

// ForgetEvents deletes up to limit events that are older than keep, delivered or not, and
// returns their number. It keeps the events that a paused one of the endpoints has not been given.
func (s *Log) ForgetEvents(ctx context.Context, endpoints []string, keep time.Duration, limit int) (forgotten int, err error) {
	err = s.db.QueryRow(ctx, forgetEvents, keep, limit, endpoints).Scan(&forgotten)
	return forgotten, results.Wrap(err, "forget old events")
}

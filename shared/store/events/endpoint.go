package events

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/events"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// These statements keep the last answer of an endpoint. It is one row for all submitters, so an answer with the same
// status is stored once in ten seconds.
const (
	firstAnswer = `
insert into event_endpoint (endpoint, last_status, last_answer, secrets, answered_at)
select $1, nullif($2, 0), $3, $4, clock_timestamp()
 where not exists (select from event_endpoint where endpoint = $1)
    on conflict do nothing`

	nextAnswer = `
update event_endpoint
   set last_status = nullif($2, 0), last_answer = $3, secrets = $4, answered_at = clock_timestamp()
 where endpoint = $1
   and (last_status is distinct from nullif($2, 0) or secrets is distinct from $4
        or answered_at is null or answered_at not between clock_timestamp() - interval '10 s' and clock_timestamp())`
)

// queueAnswer adds to a batch what stores an answer; nil: there is none.
func queueAnswer(b *pgx.Batch, endpoint string, a *events.Answer) {
	if a == nil {
		return
	}
	text := store.PrintableText(a.Text)
	b.Queue(nextAnswer, endpoint, a.Status, text, a.Secrets)
	b.Queue(firstAnswer, endpoint, a.Status, text, a.Secrets)
}

const openTest = `
select at from webhook_act
 where id = $1 and endpoint = $2 and action = 'TEST' and answered_at is null and at > clock_timestamp() - $3::interval`

// OpenTest implements [events.Store].
func (s *Log) OpenTest(ctx context.Context, endpoint string, test int64) (at time.Time, open bool, err error) {
	err = s.db.QueryRow(ctx, openTest, test, endpoint, events.TestWithin).Scan(&at)
	return at, err == nil, results.Wrap(results.Missing(err, nil), "read test %d of %s", test, endpoint)
}

const answerTest = `
update webhook_act set status = nullif($3, 0), answer = $4, answered_at = clock_timestamp()
 where id = $1 and endpoint = $2 and action = 'TEST' and answered_at is null`

// AnswerTest implements [events.Store].
func (s *Log) AnswerTest(ctx context.Context, endpoint string, test int64, a events.Answer) error {
	b := new(pgx.Batch)
	b.Queue(answerTest, test, endpoint, a.Status, store.PrintableText(a.Text))
	queueAnswer(b, endpoint, &a)
	return results.Wrap(s.send(ctx, b), "record the answer to test %d of %s", test, endpoint)
}

// Test is an operator's test of an endpoint.
type Test struct {
	ID         int64
	By         string
	At         time.Time
	Status     *int    // nil: there was no answer
	Answer     *string // its first bytes, or why there was none
	AnsweredAt *time.Time
}

const testColumns = `select id, by, at, status, answer, answered_at from webhook_act where `

const requestTest = `
insert into webhook_act (endpoint, action, by, reason)
select $1, 'TEST', $2, $3 where is_accepted_database()
returning id`

// RequestTest records an operator's test of an endpoint and returns its number. [Log.AnswerTest] completes it.
// The error wraps [store.ErrForeign].
func (s *Log) RequestTest(ctx context.Context, endpoint, by, reason string) (test int64, err error) {
	err = s.db.QueryRow(ctx, requestTest, endpoint, by, store.PrintableText(reason)).Scan(&test)
	return test, results.Wrap(results.Missing(err, store.ErrForeign), "record a test of %s", endpoint)
}

// Test reads a test.
func (s *Log) Test(ctx context.Context, test int64) (Test, error) {
	t, err := results.One(ctx, s.db, pgx.RowToStructByPos[Test], testColumns+`id = $1`, test)
	return t, results.Wrap(err, "read test %d", test)
}

// MaxBacklog bounds the events, and the submitters, that [Log.Endpoint] counts.
const MaxBacklog = 10_000

// Endpoint is the state of an endpoint.
type Endpoint struct {
	Submitters int   // with events that wait; above [MaxBacklog]: more than so many
	Events     int   // that wait, those of callers whom the endpoint leaves out too; bounded in the same way
	Oldest     *Late // nil: none waits

	PausedAt    *time.Time
	PausedBy    *string
	PauseReason *string

	Unanswered int // calls in a row without an answer, over all submitters
	AnsweredAt *time.Time
	Status     *int // of the last answer; nil: there was none
	Answer     *string
	Secrets    []string // fingerprints of those that signed the last request; nil: unknown
	LastTest   *Test
}

// Late is the submitter whose next event has waited longest.
type Late struct {
	Submitter     txmanager.Submitter
	Since         time.Time
	Attempts      int // failed ones in a row
	LastError     *string
	NextAttemptAt time.Time
}

const (
	countLateQueues = `
select count(*) from (select from event_delivery_queue s where s.endpoint = $1 and s.pending limit $2) as late`

	// It reads at most as many events, since each event is found by an index.
	countLateEvents = `
select count(*)
  from (select from (select s.submitter, s.delivered from event_delivery_queue s where s.endpoint = $1 and s.pending limit $2) as late
         cross join lateral (select from event e where e.submitter = late.submitter and e.position > late.delivered limit $2) as waits
         limit $2) as late`

	oldestLate = `
select s.submitter, s.oldest_at, s.failures, s.last_error, s.next_attempt_at
  from event_delivery_queue s
 where s.endpoint = $1 and s.pending
 order by s.oldest_at
 limit 1`

	endpointState = `
select paused_at, paused_by, pause_reason, failures, answered_at, last_status, last_answer, secrets from event_endpoint where endpoint = $1`

	lastTest = testColumns + `endpoint = $1 and action = 'TEST' order by id desc limit 1`
)

// Endpoint reads the state of an endpoint, in one round trip. An endpoint that was never called is zero.
func (s *Log) Endpoint(ctx context.Context, name string) (e Endpoint, err error) {
	b := new(pgx.Batch)
	b.Queue(countLateQueues, name, MaxBacklog+1).QueryRow(results.Scan(&e.Submitters))
	b.Queue(countLateEvents, name, MaxBacklog+1).QueryRow(results.Scan(&e.Events))
	b.Queue(oldestLate, name).Query(results.First(&e.Oldest, pgx.RowToStructByPos[Late]))
	b.Queue(endpointState, name).QueryRow(results.Maybe(&e.PausedAt, &e.PausedBy, &e.PauseReason, &e.Unanswered, &e.AnsweredAt, &e.Status, &e.Answer, &e.Secrets))
	b.Queue(lastTest, name).Query(results.First(&e.LastTest, pgx.RowToStructByPos[Test]))
	err = s.send(ctx, b)
	return e, results.Wrap(err, "read the state of endpoint %s", name)
}

// lockActs makes the acts of operators on one endpoint wait for each other.
const lockActs = `select pg_advisory_xact_lock(hashtext('webhook_act'), hashtext($1))`

const recordAct = `insert into webhook_act (endpoint, action, by, reason) values ($1, $2, $3, $4)`

// Pause stops the deliveries to an endpoint and keeps its events. changed is false if it is paused already. The
// error wraps [store.ErrForeign].
func (s *Log) Pause(ctx context.Context, endpoint, by, reason string) (changed bool, err error) {
	return s.act(ctx, endpoint, "PAUSE", by, reason, `
insert into event_endpoint as r (endpoint, paused_at, paused_by, pause_reason)
values ($1, clock_timestamp(), $2, $3)
    on conflict (endpoint) do update
   set paused_at = clock_timestamp(), paused_by = $2, pause_reason = $3
 where r.paused_at is null`, endpoint, by, store.PrintableText(reason))
}

// Resume ends a pause. changed is false if the endpoint is not paused. The error wraps [store.ErrForeign].
func (s *Log) Resume(ctx context.Context, endpoint, by, reason string) (changed bool, err error) {
	return s.act(ctx, endpoint, "RESUME", by, reason, `
update event_endpoint set paused_at = null, paused_by = null, pause_reason = null where endpoint = $1 and paused_at is not null`, endpoint)
}

// beginAct locks the acts on an endpoint, and carries out the context's proposal. The error is [store.ErrForeign] in
// a database that is not accepted.
func beginAct(ctx context.Context, tx pgx.Tx, endpoint string) error {
	if _, err := tx.Exec(ctx, lockActs, endpoint); err != nil {
		return err
	}
	if err := store.CarryOut(ctx, tx); err != nil {
		return err
	}
	return store.RequireAccepted(ctx, tx, store.ErrForeign)
}

// act makes a change and records it, if it changes a row.
func (s *Log) act(ctx context.Context, endpoint, action, by, reason, change string, args ...any) (changed bool, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if err := beginAct(ctx, tx, endpoint); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, change, args...)
		if changed = tag.RowsAffected() > 0; err != nil || !changed {
			return err
		}
		_, err = tx.Exec(ctx, recordAct, endpoint, action, by, store.PrintableText(reason))
		return err
	})
	return changed && err == nil, results.Wrap(err, "%s %s", strings.ToLower(action), endpoint)
}

// Redelivery requests events that an endpoint has been given before.
type Redelivery struct {
	Endpoint  string
	After     uint64              // the position after which they are delivered again
	Submitter txmanager.Submitter // "": of all
	By        string
	Reason    string
}

// redeliver sets delivery queues back. A queue without a later event stays. Its invocation learns it by
// redeliver_after.
const redeliver = `
update event_delivery_queue s
   set delivered = least(s.delivered, $2), redeliver_after = least(s.redeliver_after, $2), redelivered_at = clock_timestamp(),
       oldest_at = case when s.pending then s.oldest_at else clock_timestamp() end, failures = 0, next_attempt_at = clock_timestamp()
 where s.endpoint = $1 and s.last > $2 and ($3 = '' or s.submitter = $3)
returning s.submitter`

const recordRedelivery = `
insert into webhook_act (endpoint, action, by, reason, after_position, submitter) values ($1, 'REDELIVER', $2, $3, $4, nullif($5, ''))`

// Redeliver delivers the events after a position to the endpoint again, each submitter's in order, and returns the
// submitters that have such events. The error wraps [store.ErrForeign], or [store.ErrCursor] if the position was
// never assigned, or is an [EventsDeletedError].
func (s *Log) Redeliver(ctx context.Context, r Redelivery) (of []txmanager.Submitter, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockNumbers); err != nil { // which also sorts the locks of the queues
			return err
		}
		if err := beginAct(ctx, tx, r.Endpoint); err != nil {
			return err
		}
		var last, forgotten uint64
		switch err := tx.QueryRow(ctx, `select last, forgotten from event_counter`).Scan(&last, &forgotten); {
		case err != nil:
			return err
		case r.After > last:
			return store.ErrCursor
		case r.After < forgotten:
			return EventsDeletedError{forgotten}
		}
		of, err = results.All(ctx, tx, pgx.RowTo[txmanager.Submitter], redeliver, r.Endpoint, store.Bigint(r.After), r.Submitter)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, recordRedelivery, r.Endpoint, r.By, store.PrintableText(r.Reason), store.Bigint(r.After), r.Submitter)
		return err
	})
	return of, results.Wrap(err, "deliver events to %s again", r.Endpoint)
}

// Waiting lists up to limit submitters with events that wait for the endpoint, the oldest first.
func (s *Log) Waiting(ctx context.Context, endpoint string, limit int) (of []txmanager.Submitter, err error) {
	of, err = results.All(ctx, s.db, pgx.RowTo[txmanager.Submitter],
		`select s.submitter from event_delivery_queue s where s.endpoint = $1 and s.pending order by s.oldest_at limit $2`, endpoint, limit)
	return of, results.Wrap(err, "list who waits for %s", endpoint)
}

package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/batch"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// ErrUnknownSubmitter reports a submitter that is not registered.
var ErrUnknownSubmitter = errors.New("unknown submitter")

// leaseCall is a call to acquire a lease, or to begin its next iteration, and to load the state.
type leaseCall struct {
	submitter txmanager.Submitter
	owner     string
	token     int64 // of the iteration before; 0: acquire
	wide      bool
	patient   bool // it may wait for others to share the round trip
}

// leaseAnswer is the answer to a [leaseCall] in one round trip.
type leaseAnswer struct {
	txmanager.AcquireResult
	unloaded bool // the lease is held, and its state is to be loaded alone
}

// leaseCallColumns are the columns of the calls of one round trip.
var leaseCallColumns = []RecordColumn[leaseCall]{
	RecordValue("submitter", "text", func(c *leaseCall) txmanager.Submitter { return c.submitter }),
	RecordValue("owner", "text", func(c *leaseCall) string { return c.owner }),
	RecordValue("token", "bigint", func(c *leaseCall) int64 { return c.token }),
}

// acquireOrMark takes each lease that is free, and otherwise sets its rerun flag. It does so
// under the row's lock, so that no release can happen between the two. A lease is free if it
// was released, if it is the caller's own, or if it expired longer ago than the skew allowance.
// It is also free if it ends further ahead than twice a lease's duration, because the database's
// clock was set back. The clock is read after the row is locked.
//
// A call with a token begins the next iteration: it takes the lease that it holds under this
// token and that has not expired, and changes no other row.
//
// Rows are locked in the order of submitters. A row that another session has locked is passed
// over, and so has no result; with $3 the statement waits for it.
//
// The last column is true if the row showed another's expired lease. Its holder died, since an
// expired lease cannot be renewed. A lease that is released while this statement waits for the
// row does not count.
var acquireOrMark = `
with call as (
  select i.* from ` + RecordSet(leaseCallColumns, 3, "i") + `
), unlocked as materialized (
  select l.submitter
    from call i
    join submitter_lease l on l.submitter = i.submitter
   order by l.submitter
     for no key update of l skip locked
)
insert into submitter_lease as l (submitter, owner_node, fencing_token, expires_at, updated_at)
select s.submitter, i.owner, i.token + 1, clock_timestamp() + $1, clock_timestamp()
  from call i
  join submitter s on s.submitter = i.submitter
  left join submitter_lease e on e.submitter = i.submitter
 where case when e.submitter is null then i.token = 0 else $3 or e.submitter in (select submitter from unlocked) end
 order by s.submitter
    on conflict (submitter) do update
   set (owner_node, fencing_token, expires_at, rerun_requested, updated_at) = (
       select case when free then excluded.owner_node else l.owner_node end,
              case when free then l.fencing_token + 1 else l.fencing_token end,
              case when free then now + $1 else l.expires_at end,
              not free,
              now
         from (select now, l.owner_node in ('', excluded.owner_node)
                        or l.expires_at + $2 < now
                        or l.expires_at > now + 2 * $1::interval as free
                 from (select clock_timestamp() as now) as clock) as evaluated)
 where excluded.fencing_token = 1
    or l.owner_node = excluded.owner_node and l.fencing_token = excluded.fencing_token - 1 and l.expires_at > clock_timestamp()
returning submitter, owner_node, fencing_token, expires_at, expires_at + $2, coalesce((
       select b.owner_node not in ('', l.owner_node)
              and (b.expires_at + $2 < clock_timestamp() or b.expires_at > clock_timestamp() + 2 * $1::interval)
         from submitter_lease b
        where b.submitter = l.submitter), false)`

const (
	// maxSharedLeases is the limit of the calls of one round trip.
	maxSharedLeases = 200

	// maxLeaseTrip is how long a round trip may last that several callers wait for.
	maxLeaseTrip = 5 * time.Second
)

// newLeases is the group of the calls that take leases. Its round trips end before the leases that they
// took must be renewed.
func (s *Store) newLeases(wait time.Duration) *batch.Group[leaseCall, leaseAnswer] {
	return batch.New(batch.Options[leaseCall, leaseAnswer]{
		Send:      s.answerLeases,
		Key:       func(c leaseCall) string { return string(c.submitter) },
		MaxCalls:  maxSharedLeases,
		Timeout:   min(s.rules.Duration-s.rules.RenewBelow, maxLeaseTrip),
		Wait:      wait,
		MayWait:   func(c leaseCall) bool { return c.patient },
		SlowAfter: slowCommitAfter,
		Alone:     maxAlone,
		Lane:      &s.lane,
	})
}

type patience struct{}

// WithPatience returns a context in which one call of [Store.Acquire], the first, may wait for others to
// share its round trip: see [Options.AcquireWait].
func WithPatience(ctx context.Context) context.Context {
	return context.WithValue(ctx, patience{}, new(atomic.Bool))
}

// usePatience reports whether a call in ctx may wait. It is true once.
func usePatience(ctx context.Context) bool {
	used, ok := ctx.Value(patience{}).(*atomic.Bool)
	return ok && !used.Swap(true)
}

// Acquire implements [txmanager.Store]: begin, acquire, commit, load, in one round trip, which
// it may share with others. The token is committed before the load, so that a create which
// commits after the load cannot still read the token before it. The error wraps
// [ErrUnknownSubmitter] if s is not registered.
func (s *Store) Acquire(ctx context.Context, sub txmanager.Submitter, owner string, wide bool) (txmanager.AcquireResult, error) {
	t, err := s.takeLease(ctx, leaseCall{submitter: sub, owner: owner, wide: wide, patient: usePatience(ctx)})
	if err == nil && t.State.ForeignDatabase {
		err = s.ProtectRestored(ctx)
	}
	if err != nil {
		return txmanager.AcquireResult{}, err
	}
	return t, nil
}

// BeginIteration implements [txmanager.Store]: begin, next token, commit, load, in one round
// trip, which it may share with others.
func (s *Store) BeginIteration(ctx context.Context, l lease.Lease, wide bool) (txmanager.SubmitterState, error) {
	t, err := s.takeLease(ctx, leaseCall{submitter: txmanager.Submitter(l.Submitter), owner: l.Owner, token: l.Token, wide: wide})
	if err != nil {
		return txmanager.SubmitterState{}, err
	}
	return t.State, nil
}

// maxSharedLoad limits each statement of a load of several submitters, and [Store.sharedLoadLimit]
// leaves time for all of them. A lone load that takes more than one part in costlyPart of it is costly.
const (
	maxSharedLoad = time.Second
	costlyPart    = 16

	// costlyFor is how long a load counts as costly: a busy process measures too much.
	costlyFor = 10 * time.Second
)

func (s *Store) sharedLoadLimit() time.Duration {
	return min(maxSharedLoad, (s.rules.Duration-s.rules.RenewBelow)/5)
}

// takeLease makes the call in a round trip with others, or alone if its load is costly. A state that the
// round trip has not loaded is loaded alone. It waits for the answer of a round trip that may take the
// lease, even after ctx has ended: the caller must release it.
//
// A wait for a lock that exceeds lock_timeout means that a client is frozen while it sends a
// batch. takeLease ends that client's session once its transaction is older than a lease.
func (s *Store) takeLease(ctx context.Context, c leaseCall) (txmanager.AcquireResult, error) {
	take := s.leases.Finish
	if s.costly.last(c.submitter) {
		take = s.takeAlone
	}
	t, err := take(ctx, c)
	if blocked(err) {
		if err := s.endFrozen(ctx); err != nil {
			return txmanager.AcquireResult{}, err
		}
		t, err = s.takeAlone(ctx, c)
	}
	if err == nil && t.unloaded {
		held, began := t.State.Lease, time.Now()
		t.State, err = s.load(ctx, c.submitter, c.wide)
		t.State.Lease = held
		s.costly.note(c.submitter, time.Since(began) > s.sharedLoadLimit()/costlyPart)
	}
	return t.AcquireResult, err
}

func (s *Store) takeAlone(ctx context.Context, c leaseCall) (leaseAnswer, error) {
	began := time.Now()
	r := s.answerLeases(ctx, []leaseCall{c})[0]
	if r.Err == nil && time.Since(began) <= s.sharedLoadLimit()/costlyPart {
		s.costly.note(c.submitter, false)
	}
	return r.Value, r.Err
}

// answerLeases makes the calls in one round trip.
func (s *Store) answerLeases(ctx context.Context, calls []leaseCall) []batch.Result[leaseAnswer] {
	t := leaseTrip{rules: s.rules, calls: calls, rows: make([]*txmanager.AcquireResult, len(calls)), loads: make([]pendingLoad, len(calls)), sentAt: time.Now()}
	for i, c := range calls {
		t.loads[i] = pendingLoad{submitter: c.submitter, wide: c.wide}
	}
	b := new(pgx.Batch)
	b.Queue("begin")
	if len(calls) > 1 { // a first lease waits for the one that another session makes: then each goes alone
		b.Queue("set local lock_timeout = '250ms'")
	}
	b.Queue(acquireOrMark, RecordArrays([]any{s.rules.Duration, s.rules.ClockSkewAllowance, len(calls) == 1}, leaseCallColumns, calls)...).Query(t.scan)
	b.Queue("commit").Exec(results.Done(&t.committed))
	if len(calls) > 1 {
		b.Queue(`select set_config('statement_timeout', $1, true)`, strconv.FormatInt(s.sharedLoadLimit().Milliseconds(), 10)) // until the batch ends
	}
	s.queueLoads(b, t.loads)
	err := s.send(ctx, b)
	t.overdue = ctx.Err() != nil
	t.answeredAt = time.Now()
	results := make([]batch.Result[leaseAnswer], len(calls))
	for i := range calls {
		results[i].Value, results[i].Err = t.answer(i, err)
	}
	return results
}

// leaseTrip is one round trip of calls that take leases.
type leaseTrip struct {
	rules lease.Rules
	calls []leaseCall
	rows  []*txmanager.AcquireResult // nil: the statement passed over the row, or there is none
	loads []pendingLoad

	sentAt, answeredAt time.Time
	committed          bool
	overdue            bool // its time was over
}

// scan reads the rows of [acquireOrMark].
func (t *leaseTrip) scan(rows pgx.Rows) error {
	places := make(map[txmanager.Submitter]int, len(t.calls))
	for i, c := range t.calls {
		places[c.submitter] = i
	}
	var sub txmanager.Submitter
	var owner string
	var r txmanager.AcquireResult
	return results.Each([]any{&sub, &owner, &r.Token, &r.ExpiresAt, &r.TakeoverAt, &r.TakenOver}, func() {
		i := places[sub]
		r.Held = owner == t.calls[i].owner
		t.rows[i] = new(r)
	})(rows)
}

// answer is the answer to one call, after the round trip has ended with err. What failed for several
// calls is left to each of them alone. So is an acquire that was not answered in time: it takes its
// owner's own lease again. An iteration would be fenced by its own first call.
func (t *leaseTrip) answer(i int, err error) (a leaseAnswer, _ error) {
	shared, call, load := len(t.calls) > 1, t.calls[i], t.loads[i]
	switch row := t.rows[i]; {
	case !t.committed && shared && (t.overdue && call.token == 0 || IsRolledBack(err)), t.committed && shared && row == nil:
		return a, batch.AloneError{Cause: cmp.Or(err, errNotLocked)}
	case !t.committed:
		return a, err
	case row == nil:
		return a, call.refused()
	default:
		a.AcquireResult = *row
	}
	if err = cmp.Or(err, load.err); err != nil && shared {
		a.unloaded, err = a.Held, nil
	}
	a.State = load.state.WithLoadTime(t.answeredAt)
	a.State.Lease = lease.New(string(call.submitter), call.owner, a.Token, t.sentAt, t.rules.Duration)
	return a, err
}

// refused is why the statement has no row for a call that was alone.
func (c leaseCall) refused() error {
	if c.token == 0 {
		return fmt.Errorf("%s: %w", c.submitter, ErrUnknownSubmitter)
	}
	return Held(lease.Lease{Submitter: string(c.submitter), Token: c.token}, pgx.ErrNoRows)
}

// IsRolledBack reports whether the database refused a statement, and so rolls back the transaction of a
// batch that it has not committed. Before the commit is acknowledged nothing was stored, and each of
// several calls can be repeated alone. The connection stays.
func IsRolledBack(err error) bool {
	return results.Refusal(err).SeverityUnlocalized == "ERROR"
}

const renew = `
update submitter_lease
   set expires_at = clock_timestamp() + $4, updated_at = clock_timestamp()
 where submitter = $1 and owner_node = $2 and fencing_token = $3 and expires_at > clock_timestamp()
returning fencing_token`

// Renew implements [txmanager.Store].
func (s *Store) Renew(ctx context.Context, l lease.Lease) (lease.Lease, error) {
	var token int64
	sentAt := time.Now()
	row := s.db.QueryRow(ctx, renew, l.Submitter, l.Owner, l.Token, s.rules.Duration)
	if err := Held(l, row.Scan(&token)); err != nil {
		return l, err
	}
	return lease.New(l.Submitter, l.Owner, token, sentAt, s.rules.Duration), nil
}

// Held turns "no such row" from a statement on the caller's own lease row into
// lease.ErrFenced.
func Held(l lease.Lease, err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("lease of %s under token %d: %w", l.Submitter, l.Token, lease.ErrFenced)
	}
	return err
}

// endFrozen ends the sessions of this database role whose transaction is older than a lease
// lasts. No transaction takes so long, unless its client was frozen after it had sent a part
// of a batch. The server then waits for the rest for as long as the socket lives. No time-out
// of Postgres before 17 ends that wait (idle_in_transaction_session_timeout needs a
// ReadyForQuery first). Ending a healthy session is safe: its client's commit is unknown, and
// the client reads it back.
const endFrozen = `
select pg_terminate_backend(pid)
  from pg_stat_activity
 where datname = current_database() and usename = current_user and pid <> pg_backend_pid()
   and xact_start < clock_timestamp() - $1::interval`

func (s *Store) endFrozen(ctx context.Context) error {
	_, err := s.db.Exec(ctx, endFrozen, s.rules.Duration)
	return results.Wrap(err, "end frozen sessions")
}

// blocked reports whether a wait for a lock reached lock_timeout.
func blocked(err error) bool { return results.Refusal(err).Code == "55P03" }

// send runs a batch in one round trip and every callback queued with it.
func (s *Store) send(ctx context.Context, b *pgx.Batch) error {
	return fence(s.db.SendBatch(ctx, b).Close())
}

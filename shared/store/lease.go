package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// ErrUnknownSubmitter reports a submitter that is not registered.
var ErrUnknownSubmitter = errors.New("unknown submitter")

// acquireOrMark takes the lease if it is free, and otherwise sets the rerun flag. It is one
// statement under the row lock, so that no release can happen between the two. A lease is free
// if it was released, if it is the caller's own, or if it expired longer ago than the skew
// allowance. It is also free if it ends further ahead than twice a lease's duration, because
// the database's clock was set back. The clock is read after the row is locked.
//
// dead is true if the row showed another's expired lease. Its holder died, since an expired
// lease cannot be renewed. A lease that is released while this statement waits for the row
// does not count.
const acquireOrMark = `
with before as (
  select owner_node not in ('', $2)
         and (expires_at + $4 < clock_timestamp() or expires_at > clock_timestamp() + 2 * $3::interval) as dead
    from submitter_lease
   where submitter = $1
)
insert into submitter_lease as l (submitter, owner_node, fencing_token, expires_at, updated_at)
select submitter, $2, 1, clock_timestamp() + $3, clock_timestamp()
  from submitter
 where submitter = $1
    on conflict (submitter) do update
   set (owner_node, fencing_token, expires_at, rerun_requested, updated_at) = (
       select case when free then $2 else l.owner_node end,
              case when free then l.fencing_token + 1 else l.fencing_token end,
              case when free then now + $3 else l.expires_at end,
              not free,
              now
         from (select now, l.owner_node in ('', $2)
                        or l.expires_at + $4 < now
                        or l.expires_at > now + 2 * $3::interval as free
                 from (select clock_timestamp() as now) as clock) as evaluated)
returning owner_node = $2, fencing_token, expires_at, expires_at + $4, coalesce((select dead from before), false)`

// Acquire implements [txmanager.Store]: begin, acquire, commit, load, in one round trip. The
// token is committed before the load, so that a create which commits after the load cannot
// still read the token before it. The error wraps [ErrUnknownSubmitter] if s is not
// registered.
//
// A wait for a lock that exceeds lock_timeout means that a client is frozen while it sends a
// batch. Acquire ends that client's session once its transaction is older than a lease.
func (s *Store) Acquire(ctx context.Context, sub txmanager.Submitter, owner string, wide bool) (txmanager.AcquireResult, error) {
	t, err := s.take(ctx, sub, owner, wide)
	if !blocked(err) {
		return t, err
	}
	if err := s.endFrozen(ctx); err != nil {
		return txmanager.AcquireResult{}, err
	}
	return s.take(ctx, sub, owner, wide)
}

func (s *Store) take(ctx context.Context, sub txmanager.Submitter, owner string, wide bool) (txmanager.AcquireResult, error) {
	var t txmanager.AcquireResult
	sentAt := time.Now()
	b := new(pgx.Batch)
	b.Queue("begin")
	b.Queue(acquireOrMark, sub, owner, s.rules.Duration, s.rules.ClockSkewAllowance).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&t.Held, &t.Token, &t.ExpiresAt, &t.TakeoverAt, &t.TakenOver)
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%s: %w", sub, ErrUnknownSubmitter)
		}
		return err
	})
	b.Queue("commit")
	s.queueLoad(b, sub, wide, &t.State)
	if err := s.send(ctx, b); err != nil {
		return txmanager.AcquireResult{}, err
	}
	if t.State.ForeignDatabase {
		if err := s.distrustDatabase(ctx); err != nil {
			return txmanager.AcquireResult{}, err
		}
	}
	t.State = t.State.WithLoadTime(time.Now())
	t.State.Lease = lease.New(string(sub), owner, t.Token, sentAt, s.rules.Duration)
	return t, nil
}

// nextIteration raises the token and clears the rerun flag.
const nextIteration = `
update submitter_lease
   set fencing_token = fencing_token + 1, rerun_requested = false,
       expires_at = clock_timestamp() + $4, updated_at = clock_timestamp()
 where submitter = $1 and owner_node = $2 and fencing_token = $3 and expires_at > clock_timestamp()
returning fencing_token`

// BeginIteration implements [txmanager.Store]: begin, next token, commit, load, in one round
// trip.
func (s *Store) BeginIteration(ctx context.Context, l lease.Lease, wide bool) (txmanager.SubmitterState, error) {
	var w txmanager.SubmitterState
	var token int64
	sentAt := time.Now()
	b := new(pgx.Batch)
	b.Queue("begin")
	b.Queue(nextIteration, l.Submitter, l.Owner, l.Token, s.rules.Duration).QueryRow(func(row pgx.Row) error {
		return Held(l, row.Scan(&token))
	})
	b.Queue("commit")
	s.queueLoad(b, txmanager.Submitter(l.Submitter), wide, &w)
	if err := s.send(ctx, b); err != nil {
		return txmanager.SubmitterState{}, err
	}
	w = w.WithLoadTime(time.Now())
	w.Lease = lease.New(l.Submitter, l.Owner, token, sentAt, s.rules.Duration)
	return w, nil
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
func blocked(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "55P03"
}

// send runs a batch in one round trip and every callback queued with it.
func (s *Store) send(ctx context.Context, b *pgx.Batch) error {
	return fence(s.db.SendBatch(ctx, b).Close())
}

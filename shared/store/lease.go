package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// ErrUnknownSubmitter reports a submitter that nobody has registered.
var ErrUnknownSubmitter = errors.New("unknown submitter")

// acquireOrMark takes the lease if it is free, and sets the wake mark if it is
// not: one statement under the row lock, so that no release can slip between
// the two. It is free if it was released, if it is our own, if it ran out longer
// ago than the skew allowance, or if it ends further ahead than twice a lease
// lasts (the database's clock was set back). The clock is read once the row is
// locked.
//
// dead says, of the row before, that another's lease had run out: nobody can renew that
// one any more, so its holder died. A lease that is released while its row is waited for
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
   set (owner_node, fencing_token, expires_at, wake, updated_at) = (
       select case when free then $2 else l.owner_node end,
              case when free then l.fencing_token + 1 else l.fencing_token end,
              case when free then now + $3 else l.expires_at end,
              not free,
              now
         from (select now, l.owner_node in ('', $2)
                        or l.expires_at + $4 < now
                        or l.expires_at > now + 2 * $3::interval as free
                 from (select clock_timestamp() as now) as clock) as judged)
returning owner_node = $2, fencing_token, expires_at, expires_at + $4, coalesce((select dead from before), false)`

// Acquire implements [txmanager.Store]: begin, acquire, commit, load, in one round
// trip. The token is committed before the load, so that a create which commits
// after the load cannot still read the token before it. The error wraps
// [ErrUnknownSubmitter] where nobody has registered s.
//
// A lock that stands in the way for longer than the lock's time-out is of a
// client that is frozen in the middle of sending a batch: its session is ended
// once its transaction is older than a lease.
func (s *Store) Acquire(ctx context.Context, sub txmanager.Submitter, owner string, wide bool) (txmanager.Acquired, error) {
	t, err := s.take(ctx, sub, owner, wide)
	if !blocked(err) {
		return t, err
	}
	if err := s.endFrozen(ctx); err != nil {
		return txmanager.Acquired{}, err
	}
	return s.take(ctx, sub, owner, wide)
}

func (s *Store) take(ctx context.Context, sub txmanager.Submitter, owner string, wide bool) (txmanager.Acquired, error) {
	var t txmanager.Acquired
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
		return txmanager.Acquired{}, err
	}
	if t.State.ForeignDatabase {
		if err := s.distrustDatabase(ctx); err != nil {
			return txmanager.Acquired{}, err
		}
	}
	t.State = t.State.WithLoadTime(time.Now())
	t.State.Lease = lease.New(string(sub), owner, t.Token, sentAt, s.rules.Duration)
	return t, nil
}

// goRound raises the token and takes the wake mark down.
const goRound = `
update submitter_lease
   set fencing_token = fencing_token + 1, wake = false,
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
	b.Queue(goRound, l.Submitter, l.Owner, l.Token, s.rules.Duration).QueryRow(func(row pgx.Row) error {
		return held(l, row.Scan(&token))
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
	if err := held(l, row.Scan(&token)); err != nil {
		return l, err
	}
	return lease.New(l.Submitter, l.Owner, token, sentAt, s.rules.Duration), nil
}

// held reads "no such row" of a statement on our own lease row as fenced.
func held(l lease.Lease, err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("lease of %s under token %d: %w", l.Submitter, l.Token, lease.ErrFenced)
	}
	return err
}

// giveBack ends a tenure, unless the wake mark is set.
const giveBack = `
update submitter_lease
   set owner_node = '', updated_at = clock_timestamp()
 where submitter = $1 and owner_node = $2 and fencing_token = $3 and not wake
returning fencing_token`

// abandon ends a tenure whatever the mark says, and raises the token.
const abandon = `
update submitter_lease
   set owner_node = '', wake = false, fencing_token = fencing_token + 1, updated_at = clock_timestamp()
 where submitter = $1 and owner_node = $2 and fencing_token = $3
returning fencing_token`

// lookAgain is asked once a release has committed: a create that saw the lease
// held, or the window full, made no task, because whoever ends that sees its
// intent here. In the transaction of the release it would not be seen.
var lookAgain = `
with recursive ` + openQueue("$3", "$2") + `
select (select count(*) from (select from open limit $2) as queued),
       (select status <> 'ACTIVE' from submitter where submitter = $1)`

// queueLookAgain adds that look behind the commit.
func (s *Store) queueLookAgain(b *pgx.Batch, l lease.Lease, done *txmanager.CommitResult) {
	b.Queue(lookAgain, l.Submitter, txmanager.AdvanceNowQueue, s.macKeys).QueryRow(func(row pgx.Row) error {
		return row.Scan(&done.Queued, &done.Suspended)
	})
}

// queueRelease adds the end of the tenure to a fenced batch.
func queueRelease(b *pgx.Batch, l lease.Lease, r txmanager.LeaseEnd, done *txmanager.CommitResult) {
	statement := map[txmanager.LeaseEnd]string{txmanager.ReleaseUnlessRerun: giveBack, txmanager.ReleaseAnyway: abandon}[r]
	if statement == "" {
		return
	}
	b.Queue(statement, l.Submitter, l.Owner, l.Token).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&done.Token)
		if errors.Is(err, pgx.ErrNoRows) { // the wake mark
			return nil
		}
		done.Released = err == nil
		return err
	})
}

// endFrozen ends the sessions of our own role whose transaction began longer ago
// than a lease lasts. None of ours takes so long, unless its client was frozen
// after it had sent a part of a batch: the server then waits for the rest for as
// long as the socket lives, and no time-out of Postgres before 17 ends that
// (idle_in_transaction_session_timeout wants a ReadyForQuery first). Ending one
// too many does no harm: its client's commit is unknown, and is read back.
const endFrozen = `
select pg_terminate_backend(pid)
  from pg_stat_activity
 where datname = current_database() and usename = current_user and pid <> pg_backend_pid()
   and xact_start < clock_timestamp() - $1::interval`

func (s *Store) endFrozen(ctx context.Context) error {
	if _, err := s.db.Exec(ctx, endFrozen, s.rules.Duration); err != nil {
		return fmt.Errorf("end frozen sessions: %w", err)
	}
	return nil
}

// blocked says that a lock was waited for until lock_timeout.
func blocked(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "55P03"
}

// send runs a batch in one round trip and every callback queued with it.
func (s *Store) send(ctx context.Context, b *pgx.Batch) error {
	return fence(s.db.SendBatch(ctx, b).Close())
}

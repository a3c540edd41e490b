package pgproxy_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/emulator/proxy/pgproxy"
	"github.com/fencepost/fencepost/migrations"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

type created struct {
	store.StoredIntent
	error
}

func createInBackground(ctx context.Context, s *store.Store, in store.Intent) <-chan created {
	c := make(chan created, 1)
	go func() {
		got, err := s.Create(ctx, in, 10)
		c <- created{got, err}
	}()
	return c
}

func freezeCreate() pgproxy.Fault {
	return pgproxy.Fault{Kind: pgproxy.Freeze, Match: pgproxy.Containing("insert into managed_tx")}
}

// With its only connection frozen, a caller waits until its own deadline, and nothing is stored. After the
// thaw everything works as before.
func TestExhaustedPoolEndsWithTheCallersDeadline(t *testing.T) {
	t.Parallel()
	sc := newScene(t, 1, nil)
	sc.proxy.Arm(freezeCreate())
	first := intent("first")
	held := createInBackground(t.Context(), sc.store, first)
	sc.awaitFrozen()

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	check.Err(t, "create with no connection to be had", context.DeadlineExceeded)(sc.store.Create(ctx, intent("second"), 10))
	check.Equal(t, "transactions before the thaw", sc.txs(), 0)
	sc.proxy.Thaw()
	if got := <-held; got.error != nil || got.TxID != first.TxID || !got.New {
		t.Errorf("create after the thaw: got %+v, want it stored", got)
	}
	check.Equal(t, "transactions (the first alone)", sc.txs(), 1)
}

// A commit that reaches the server long after its client gave up still counts. A repetition waits for it
// and stores no second transaction.
func TestCommitReleasedLateIsMetByTheRetry(t *testing.T) {
	t.Parallel()
	sc := newScene(t, 1, nil)
	retrier := sc.open(1, nil)
	sc.proxy.Arm(freezeCreate())
	first, retry := intent("r1"), intent("r1")
	ctx, giveUp := context.WithCancel(t.Context())
	held := createInBackground(ctx, sc.store, first)
	sc.awaitFrozen()
	giveUp()
	if got := <-held; !errors.Is(got.error, context.Canceled) {
		t.Fatalf("create given up: got %v, want cancelled", got.error)
	}
	second := createInBackground(t.Context(), retrier, retry)
	storetest.Await(t, "the retry waits for the first", func() bool {
		return value[bool](t, sc.conn, `select exists (select from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock' and query like '%insert into managed_tx%')`)
	})
	sc.proxy.Thaw()
	if got := <-second; got.error != nil || got.TxID != first.TxID || got.New {
		t.Errorf("retry: got %+v, want the first's %s", got, first.TxID)
	}
}

// If a frozen connection is cut, the server rolls back.
func TestFrozenConnectionCanBeCut(t *testing.T) {
	t.Parallel()
	sc := newScene(t, 1, nil)
	sc.proxy.Arm(freezeCreate())
	in := intent("r1")
	held := createInBackground(t.Context(), sc.store, in)
	sc.awaitFrozen()
	check.Equal(t, "connections cut", sc.proxy.CutAll(), 1)
	if got := <-held; got.error == nil {
		t.Error("create on a connection that was cut: got no error")
	}
	check.Equal(t, "create again", check.Value(sc.store.Create(t.Context(), in, 10))(t).TxID, in.TxID)
	check.Equal(t, "transactions", sc.txs(), 1)
}

func TestFreezeEndsAfterItsTime(t *testing.T) {
	t.Parallel()
	sc := newScene(t, 1, nil)
	f := freezeCreate()
	f.For = 30 * time.Millisecond
	sc.proxy.Arm(f)
	began := time.Now()
	check.OK(t)(sc.store.Create(t.Context(), intent("r1"), 10))
	if got := time.Since(began); got < f.For || sc.proxy.Counts().Hits[pgproxy.Freeze] != 1 {
		t.Errorf("create took %v, want it frozen for %v", got, f.For)
	}
}

// A lease row locked by a client frozen in the middle of its batch delays others by lock_timeout at most.
// They get the lease once the connection is gone. No timeout of the server ends such a transaction: it is
// neither running a statement nor idle.
func TestFrozenHolderDelaysOthersByLockTimeout(t *testing.T) {
	t.Parallel()
	sc := newScene(t, 1, nil)
	sc.proxy.Arm(pgproxy.Fault{Kind: pgproxy.Freeze, Match: pgproxy.Containing("insert into submitter_lease")})
	taken := make(chan error, 1)
	go func() { taken <- errOf(sc.store.Acquire(t.Context(), alice, "a/1", true)) }()
	sc.awaitFrozen()
	other := sc.open(1, func(o *store.Options) { o.LockTimeout = 100 * time.Millisecond })
	if _, err := other.Acquire(t.Context(), alice, "b/1", true); sqlState(err) != "55P03" {
		t.Errorf("take of another: got %v, want 55P03 lock_not_available", err)
	}
	sc.proxy.CutAll()
	if err := <-taken; err == nil {
		t.Error("the frozen take, cut: got no error")
	}
	storetest.Await(t, "the other takes the lease", func() bool {
		got, err := other.Acquire(t.Context(), alice, "b/1", true)
		return err == nil && got.Held
	})
}

// Neither side notices the other's end: the client's last messages arrive when the freeze ends.
func TestFreezeOutlivesItsClient(t *testing.T) {
	t.Parallel()
	database := emptyDatabase(t)
	p, direct := proxied(t, database), connect(t, database)
	c := connect(t, p.URL(database))
	p.Arm(pgproxy.Fault{Kind: pgproxy.Freeze})
	wrote := make(chan error, 1)
	go func() { wrote <- ways["a batch with commit"](t.Context(), c, 1) }()
	storetest.Await(t, "the batch is frozen", func() bool { return p.Counts().Hits[pgproxy.Freeze] == 1 })
	// When its socket is closed, pgx cancels what the server runs. That must be neither the insert nor, after the thaw, the commit.
	storetest.Await(t, "the commit is bound, and so the insert has run", func() bool {
		return value[bool](t, direct, `select exists (select from pg_stat_activity where datname = current_database() and query = 'commit' and wait_event = 'ClientRead')`)
	})
	_ = c.PgConn().Conn().Close()
	if err := <-wrote; err == nil {
		t.Error("on a closed socket: got no error")
	}
	<-c.PgConn().CleanupDone()
	check.Equal(t, "rows before the thaw", value[int](t, direct, `select count(*) from t`), 0)
	p.Thaw()
	storetest.Await(t, "the commit arrives", func() bool { return value[int](t, direct, `select count(*) from t`) == 1 })
}

// The server's messages are held too, until its socket takes no more.
func TestFreezeHoldsAnswersToo(t *testing.T) {
	t.Parallel()
	database := emptyDatabase(t)
	p, direct := proxied(t, database), connect(t, database)
	c := connect(t, p.URL(database))
	p.Arm(pgproxy.Fault{Kind: pgproxy.Freeze})
	const rows = 50_000
	var got atomic.Int64
	b := new(pgx.Batch)
	b.Queue(`begin`)
	b.Queue(`select repeat('x', 1000) from generate_series(1, $1)`, rows).Query(func(answer pgx.Rows) error {
		for answer.Next() {
			got.Add(1)
		}
		return answer.Err()
	})
	b.Queue(`commit`)
	read := make(chan error, 1)
	go func() { read <- c.SendBatch(t.Context(), b).Close() }()
	still, before := 0, int64(0)
	storetest.Await(t, "the server waits to be read, and the client gets nothing", func() bool {
		waits := value[bool](t, direct, `select exists (select from pg_stat_activity where datname = current_database() and wait_event = 'ClientWrite')`)
		now := got.Load()
		if still++; !waits || now != before {
			still, before = 0, now
		}
		return still == 20
	})
	p.Thaw()
	if err := <-read; err != nil || got.Load() != rows {
		t.Errorf("after the thaw: got %d rows, %v; want %d", got.Load(), err, rows)
	}
}

// If the server's statement timeout ends a statement, the client gets that error, nothing is stored, and a
// fault that waits for a commit keeps waiting.
func TestStatementTimeoutDoesNotCommit(t *testing.T) {
	t.Parallel()
	sc := newScene(t, 1, func(o *store.Options) { o.StatementTimeout = 100 * time.Millisecond })
	do(t, sc.conn, `
		create function dawdle() returns trigger language plpgsql as $$ begin perform pg_sleep(60); return new; end $$;
		create trigger dawdle before insert on managed_tx for each row execute function dawdle()`)
	sc.proxy.Arm(pgproxy.Fault{Kind: pgproxy.CutAfterCommit, Match: pgproxy.Containing("insert into managed_tx")})
	in := intent("r1")
	if _, err := sc.store.Create(t.Context(), in, 10); sqlState(err) != "57014" {
		t.Errorf("create that takes too long: got %v, want 57014 query_canceled", err)
	}
	if got := sc.proxy.Counts(); got.Commits != 0 || got.Hits[pgproxy.CutAfterCommit] != 0 || sc.proxy.Armed() != 1 {
		t.Errorf("got %+v and %d armed, want no commit, no hit and the fault still armed", got, sc.proxy.Armed())
	}
	do(t, sc.conn, `drop trigger dawdle on managed_tx`)
	sc.proxy.Disarm()
	check.Equal(t, "create again", check.Value(sc.store.Create(t.Context(), in, 10))(t).TxID, in.TxID)
	check.Equal(t, "transactions", sc.txs(), 1)
}

// sqlState returns the code of the server's error, or "".
func sqlState(err error) string {
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok {
		return refusal.Code
	}
	return ""
}

// H18: a client frozen in the middle of a fenced batch holds the lease row locked, and no timeout of the
// server ends that. Another invocation ends the session once its transaction is older than a lease, and
// takes over.
func TestH18FrozenInMidBatchIsEndedByTheNewHolder(t *testing.T) {
	t.Parallel()
	short := func(o *store.Options) {
		o.Lease = lease.Rules{Duration: 3 * time.Second, ClockSkewAllowance: 10 * time.Millisecond}
		o.LockTimeout = 300 * time.Millisecond
	}
	sc := newScene(t, 1, short)
	successor := sc.open(2, short)
	check.OK(t)(sc.store.Create(t.Context(), intent("r1"), 10))
	frozen := sc.take(sc.store, "a/1")
	sc.proxy.Arm(pgproxy.Fault{Kind: pgproxy.Freeze, Match: pgproxy.Containing("require_lease")})
	written := make(chan error, 1)
	go func() { written <- errOf(sc.store.Commit(t.Context(), allocation(frozen))) }()
	storetest.Await(t, "the write is frozen and holds its lock", func() bool {
		return sc.proxy.Counts().Hits[pgproxy.Freeze] == 1 && value[bool](t, sc.conn, `select exists (
			select from pg_locks where relation = 'submitter_lease'::regclass and mode = 'RowShareLock')`)
	})
	blocked := 0
	storetest.Await(t, "another takes the lease", func() bool {
		got, err := successor.Acquire(t.Context(), alice, "b/1", true)
		if err != nil {
			blocked++
		}
		return err == nil && got.Held && got.Token == frozen.Lease.Token+1 && len(got.State.Queue) == 1
	})
	if blocked == 0 {
		t.Error("takes that were blocked: got none, want the lock to have stood in the way")
	}
	sc.proxy.Thaw()
	if err := <-written; err == nil {
		t.Error("the frozen write: got no error, want its session ended")
	}
}

// As deployed, the server ends a transaction of a client that is frozen in mid-message after a lease's
// length, with the role of each function that locks a submitter's lease.
func TestTransactionTimeoutFreesTheRowsOfAFrozenClient(t *testing.T) {
	t.Parallel()
	for _, function := range []string{"admin", "advance", "confirm", "hooks", "receipt", "resubmit"} {
		t.Run(function, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t, 1, nil)
			if major := value[int](t, sc.conn, `select current_setting('server_version_num')::int / 10000`); major < 17 {
				t.Skipf("Left out: Postgres %d has no transaction_timeout", major)
			}
			timeout := storetest.Rules.Duration
			as := sc.roleURL(function)
			frozen := sc.open(1, func(o *store.Options) {
				o.URL = fmt.Sprintf("%s&transaction_timeout=%d", sc.proxy.URL(as), timeout.Milliseconds())
			})
			sc.proxy.Arm(pgproxy.Fault{Kind: pgproxy.Freeze, Match: pgproxy.Containing("insert into submitter_lease")})
			taken := make(chan error, 1)
			go func() { taken <- errOf(frozen.Acquire(t.Context(), alice, "a/1", true)) }()
			sc.awaitFrozen()
			began := time.Now()
			storetest.Await(t, "the lease's row is free", func() bool {
				got, err := sc.direct.Acquire(t.Context(), alice, "b/1", true)
				return err == nil && got.Held
			})
			if waited := time.Since(began); waited < timeout/2 || waited > timeout+20*time.Second {
				t.Errorf("the row was free after %s, want %s", waited, timeout)
			}
			sc.proxy.Thaw()
			if err := <-taken; err == nil {
				t.Error("the frozen client's transaction: got no error, want it ended by the server")
			}
		})
	}
}

// roleURL makes a role with a function's rights.
func (sc scene) roleURL(function string) string {
	sc.Helper()
	role, password := "frozen_"+strings.ToLower(rand.Text()), rand.Text()
	do(sc, sc.conn, fmt.Sprintf("create role %s login password '%s'", role, password))
	check.OK(sc)(migrations.Grant(sc.Context(), sc.direct.URL, migrations.Grants{Functions: map[string][]string{role: {function}}}))
	u := check.Value(url.Parse(sc.direct.URL))(sc)
	u.User = url.UserPassword(role, password)
	return u.String()
}

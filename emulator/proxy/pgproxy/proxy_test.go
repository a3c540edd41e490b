package pgproxy_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/proxy/pgproxy"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// through returns a connection through p that sends statements in the given mode.
func through(t *testing.T, p *pgproxy.Proxy, databaseURL string, mode pgx.QueryExecMode) *pgx.Conn {
	t.Helper()
	config := check.Value(pgx.ParseConfig(p.URL(databaseURL)))(t)
	config.DefaultQueryExecMode = mode
	return connectBy(t, config)
}

// ways are the ways in which a client can write n and commit.
var ways = map[string]func(ctx context.Context, c *pgx.Conn, n int) error{
	"one statement": func(ctx context.Context, c *pgx.Conn, n int) error {
		return errOf(c.Exec(ctx, `insert into t values ($1)`, n))
	},
	"a simple query": func(ctx context.Context, c *pgx.Conn, n int) error {
		return errOf(c.Exec(ctx, fmt.Sprintf(`insert into t values (%d)`, n)))
	},
	"many in a simple query": func(ctx context.Context, c *pgx.Conn, n int) error {
		return errOf(c.Exec(ctx, fmt.Sprintf(`begin; insert into t values (%d); COMMIT WORK; select 1`, n)))
	},
	"begin and commit": func(ctx context.Context, c *pgx.Conn, n int) error {
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			return errOf(tx.Exec(ctx, `insert into t values ($1)`, n))
		})
	},
	"a batch": func(ctx context.Context, c *pgx.Conn, n int) error {
		b := new(pgx.Batch)
		b.Queue(`select count(*) from t`)
		b.Queue(`with new as (insert into t values ($1) returning n) select n from new`, n)
		return c.SendBatch(ctx, b).Close()
	},
	"a batch with commit": func(ctx context.Context, c *pgx.Conn, n int) error {
		b := new(pgx.Batch)
		b.Queue(`begin`)
		b.Queue(`insert into t values ($1)`, n)
		b.Queue(`commit`)
		b.Queue(`select count(*) from t`)
		return c.SendBatch(ctx, b).Close()
	},
}

// Each cut strikes once at its moment, in whichever way the client sends its transaction.
func TestCutsFindTheCommitOfEveryWayToWrite(t *testing.T) {
	t.Parallel()
	modes := []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	}
	for name, write := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := emptyDatabase(t)
			p, direct := proxied(t, database), connect(t, database)
			n := 0
			for _, mode := range modes {
				for kind, committed := range cutKinds {
					n++
					c := through(t, p, database, mode)
					p.Arm(pgproxy.Fault{Kind: kind, Match: pgproxy.Containing("into t")})
					before := p.Counts()
					if err := write(t.Context(), c, n); err == nil {
						t.Errorf("%v, %v: got no error", mode, kind)
					}
					after := p.Counts()
					check.Equal(t, fmt.Sprintf("%v, %v: committed", mode, kind), value[bool](t, direct, `select exists (select from t where n = $1)`, n), committed)
					if got := after.Commits - before.Commits; got == 1 != committed {
						t.Errorf("%v, %v: commits seen: got %d, want committed %t", mode, kind, got, committed)
					}
					if got := after.Hits[kind] - before.Hits[kind]; got != 1 || p.Armed() != 0 {
						t.Fatalf("%v, %v: got %d hits and %d left, want 1 and 0", mode, kind, got, p.Armed())
					}
				}
			}
		})
	}
}

type received struct {
	net.Conn
	bytes atomic.Int64
}

func (r *received) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.bytes.Add(int64(n))
	return n, err
}

// Of the answer INSERT 0 1 (16 bytes) and ReadyForQuery (6) a client gets all, half or nothing.
func TestClientGetsAllHalfOrNothing(t *testing.T) {
	t.Parallel()
	database := emptyDatabase(t)
	p := proxied(t, database)
	for kind, want := range map[pgproxy.Kind]int64{
		0: 22, pgproxy.CutBeforeCommit: 0, pgproxy.CutAfterCommit: 0, pgproxy.CutMidReply: 11,
	} {
		config := check.Value(pgx.ParseConfig(p.URL(database)))(t)
		var client *received
		config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			dialled := &received{Conn: conn}
			if client == nil { // a later connection cancels the query
				client = dialled
			}
			return dialled, err
		}
		c := connectBy(t, config)
		if kind != 0 {
			p.Arm(pgproxy.Fault{Kind: kind})
		}
		before := client.bytes.Load()
		_ = ways["a simple query"](t.Context(), c, int(kind))
		check.Equal(t, fmt.Sprintf("%v: bytes", kind), client.bytes.Load()-before, want)
	}
}

// A fault strikes only its matches, and as often as it says. Other traffic passes unchanged.
func TestFaultsStrikeTheirMatchesOnly(t *testing.T) {
	t.Parallel()
	database := emptyDatabase(t)
	p := proxied(t, database)
	p.Arm(pgproxy.Fault{Kind: pgproxy.CutBeforeCommit, Times: 2, Match: pgproxy.Containing("into t values ($1)")})
	for n := range 5 {
		c := connect(t, p.URL(database))
		do(t, c, `create temporary table other (n int)`)
		do(t, c, `insert into other values (1)`)
		do(t, c, `begin`)
		do(t, c, `insert into t values ($1)`, -n)
		do(t, c, `rollback`)
		check.Equal(t, "rows", value[int](t, c, `select count(*) from other`), 1)
		_, err := c.Exec(t.Context(), `insert into t values ($1)`, n)
		if struck := n < 2; (err != nil) != struck {
			t.Errorf("insert %d: got %v, want struck %t", n, err, struck)
		}
	}
	want := pgproxy.Counts{Hits: map[pgproxy.Kind]int{pgproxy.CutBeforeCommit: 2}, Commits: 5 + 5 + 3}
	got := p.Counts()
	got.RoundTrips = 0
	check.Same(t, "counts", got, want)
}

// A failed transaction does not commit: its answer passes, and the fault waits for the next one.
func TestFailedTransactionsAreNotStruckAfterCommit(t *testing.T) {
	t.Parallel()
	for name, write := range ways {
		for _, kind := range []pgproxy.Kind{pgproxy.CutAfterCommit, pgproxy.CutMidReply} {
			t.Run(name+"/"+kind.String(), func(t *testing.T) {
				t.Parallel()
				database := emptyDatabase(t)
				p := proxied(t, database)
				c := connect(t, p.URL(database))
				do(t, c, `insert into t values (1)`)
				p.Arm(pgproxy.Fault{Kind: kind})
				if err := write(t.Context(), c, 1); sqlState(err) != "23505" {
					t.Errorf("second row: got %v, want 23505 unique_violation", err)
				}
				_, _ = c.Exec(t.Context(), `rollback`)
				if got := p.Counts(); got.Commits != 1 || got.Hits[kind] != 0 || p.Armed() != 1 {
					t.Errorf("got %+v and %d armed, want the first commit only and the fault armed", got, p.Armed())
				}
				if err := write(t.Context(), c, 2); err == nil {
					t.Error("the next transaction: got no error")
				}
			})
		}
	}
}

// Login passes the proxy: the right password works, a wrong one fails, and a client that prefers
// encryption continues without.
func TestLoginPassesUnchanged(t *testing.T) {
	t.Parallel()
	database := emptyDatabase(t)
	p := proxied(t, database)
	u := check.Value(url.Parse(p.URL(database + "&host=192.0.2.1&port=1")))(t)
	q := u.Query()
	q.Set("sslmode", "prefer")
	u.RawQuery = q.Encode()
	check.Equal(t, "the right password", value[int](t, connect(t, u.String()), `select 1`), 1)
	u.User = url.UserPassword("postgres", "wrong")
	if _, err := pgx.Connect(t.Context(), u.String()); sqlState(err) != "28P01" {
		t.Errorf("wrong password: got %v, want 28P01 invalid_password", err)
	}
	q.Set("sslmode", "require")
	u.RawQuery = q.Encode()
	if _, err := pgx.Connect(t.Context(), u.String()); err == nil || sqlState(err) != "" {
		t.Errorf("encryption required: got %v, want it refused", err)
	}
}

func TestCancelRequestsPass(t *testing.T) {
	t.Parallel()
	database := emptyDatabase(t)
	p, direct := proxied(t, database), connect(t, database)
	c := connect(t, p.URL(database))
	slept := make(chan error, 1)
	go func() { slept <- errOf(c.Exec(t.Context(), `select pg_sleep(60)`)) }()
	storetest.Await(t, "the server sleeps", func() bool {
		return value[bool](t, direct, `select exists (select from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database())`)
	})
	check.OK(t)(c.PgConn().CancelRequest(t.Context()))
	if err := <-slept; sqlState(err) != "57014" {
		t.Errorf("got %v, want 57014 query_canceled", err)
	}
}

func TestRefuseAndCutAll(t *testing.T) {
	t.Parallel()
	database := emptyDatabase(t)
	p := proxied(t, database)
	c := connect(t, p.URL(database))
	p.Refuse(true)
	if _, err := pgx.Connect(t.Context(), p.URL(database)); err == nil {
		t.Error("connect while refusing: got no error")
	}
	check.Equal(t, "on an open connection", value[int](t, c, `select 1`), 1)
	check.Equal(t, "connections cut", p.CutAll(), 1)
	if err := c.Ping(t.Context()); err == nil {
		t.Error("on a connection that was cut: got no error")
	}
	p.Refuse(false)
	connect(t, p.URL(database))
	p.Close()
	check.Equal(t, "connections after Close", p.CutAll(), 0)
}

// A proxy ends with its context, also without a server.
func TestProxyEndsWithItsContext(t *testing.T) {
	t.Parallel()
	database := emptyDatabase(t)
	ctx, end := context.WithCancel(t.Context())
	gone := check.Value(pgproxy.Start(ctx, pgproxy.Options{Target: "127.0.0.1:1"}))(t)
	if _, err := pgx.Connect(t.Context(), gone.URL(database)); err == nil {
		t.Error("connect with no server: got no error")
	}
	end()
	storetest.Await(t, "the port is closed", func() bool {
		again, err := pgproxy.Start(t.Context(), pgproxy.Options{Target: "127.0.0.1:1", Addr: gone.Addr()})
		if err == nil {
			again.Close()
		}
		return err == nil
	})
	gone.Close()
}

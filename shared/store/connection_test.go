package store_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// A client that is frozen in a fenced write loses its transaction and its lock within the
// connection's time-outs. The next owner takes over well within a lease.
func TestH18PausedClientDoesNotBlockTakeover(t *testing.T) {
	t.Parallel()
	rules := lease.Rules{Duration: 10 * time.Second, ClockSkewAllowance: 10 * time.Millisecond}
	db := storetest.At(t, storetest.URL(t), rules)
	w := twoQueued(t, db)
	before := contents(t, db, written...)
	db.Run(t, `update submitter_lease set expires_at = clock_timestamp() + interval '200 ms'`)
	paused := connectionOf(t, db, rules, 500*time.Millisecond)
	for _, statement := range []string{
		`begin`,
		`select from submitter_lease where submitter = '` + string(alice) + `' for share`,
		`update managed_tx set last_error = 'by the paused client' where state = 'QUEUED'`,
	} {
		if _, err := paused.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	frozenAt := time.Now()
	taking := storetest.Blocked(t, db, "insert into submitter_lease", func() (txmanager.AcquireResult, error) { return db.Acquire(t.Context(), alice, "b/1", true) })
	taken := <-taking
	wantHeld(t, "takeover", taken, w.Lease.Token+1)
	if took := time.Since(frozenAt); took >= rules.Duration {
		t.Errorf("takeover: took %v, want less than a lease (%v)", took, rules.Duration)
	}
	if _, err := paused.Exec(context.WithoutCancel(t.Context()), "commit"); err == nil {
		t.Error("the paused client's commit: got no error")
	}
	check.Same(t, "the paused client wrote", contents(t, db, written...), before)
}

// connectionOf is one connection of another store on the same database.
func connectionOf(t *testing.T, db storetest.Bundle, rules lease.Rules, idle time.Duration) *pgxpool.Conn {
	t.Helper()
	options := storetest.Options(db.URL, rules)
	options.IdleInTransactionTimeout = idle
	s := storetest.Open(t, options)
	conn := check.Value(s.Raw(t.Context()))(t)
	t.Cleanup(conn.Release)
	return conn
}

// Each connection has all the limits that keep a lock on a lease row from outliving the lease.
func TestConnectionsHaveTheLimits(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	conn := connectionOf(t, db, storetest.Rules, 1234*time.Millisecond)
	for name, want := range map[string]string{
		"idle_in_transaction_session_timeout": "1234ms",
		"lock_timeout":                        "3s",
		"statement_timeout":                   "5s",
		"tcp_keepalives_idle":                 "3",
		"tcp_keepalives_interval":             "1",
		"tcp_keepalives_count":                "3",
		"transaction_isolation":               "read committed",
	} {
		var got string
		if err := conn.QueryRow(t.Context(), "show "+name).Scan(&got); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
		}
	}
}

// A custom dialer connects to its own database, whatever the URL's host. No process resolves
// that host.
func TestDialInPlaceOfTheHost(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	at := check.Value(pgconn.ParseConfig(db.URL))(t)
	network, address := pgconn.NetworkAddress(at.Host, at.Port)
	var dialled atomic.Int64
	options := storetest.Options("host=nowhere.invalid user="+at.User+" password="+at.Password+" dbname="+at.Database+" sslmode=disable", storetest.Rules)
	options.Dial = func(ctx context.Context, _, asked string) (net.Conn, error) {
		dialled.Add(1)
		if !strings.HasPrefix(asked, "nowhere.invalid:") {
			t.Errorf("dialled: got %s, want the URL's host as it stands", asked)
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	s := check.Value(store.Open(t.Context(), options))(t)
	defer s.Close()
	if err := s.Ping(t.Context()); err != nil || dialled.Load() == 0 {
		t.Errorf("ping: got %v after %d dials, want it answered by way of the dialer", err, dialled.Load())
	}
}

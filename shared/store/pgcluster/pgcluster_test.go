package pgcluster

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/shared/check"
)

// launch starts a cluster that ends with the test.
func launch(t *testing.T, opts Options) *Cluster {
	t.Helper()
	c := check.Value(Start(t.Context(), opts))(t)
	t.Cleanup(func() { check.Err(t, "stop", nil)(c.Stop()) })
	return c
}

// connect opens a connection that ends with the test.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn := check.Value(pgx.Connect(t.Context(), url))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// scan returns the only value of a query.
func scan[T any](t *testing.T, conn *pgx.Conn, query string) T {
	t.Helper()
	var value T
	if err := conn.QueryRow(t.Context(), query).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

// execute runs a statement that must succeed.
func execute(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	check.OK(t)(conn.Exec(t.Context(), statement))
}

// await polls until the condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("still not so after a minute: %s", what)
		case <-tick.C:
		}
	}
}

// exists reports whether there is something at the path.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// alive reports whether there is a process of that id.
func alive(pid int) bool {
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// A new connection computes one round of the password's hash, where Postgres can choose: many thousands would take much of
// the time of tests.
func TestPasswordsAreHashedOnce(t *testing.T) {
	t.Parallel()
	c := launch(t, Options{})
	conn := connect(t, c.URL("postgres"))
	if scan[int](t, conn, "select current_setting('server_version_num')::int") < 160_000 {
		t.Skip("Postgres 15 has a fixed number of rounds")
	}
	execute(t, conn, "create role another login password 'another'")
	const rounds = "select string_agg(distinct split_part(split_part(rolpassword, '$', 2), ':', 1), ' ') from pg_authid where rolcanlogin"
	check.Equal(t, "rounds of the passwords' hashes", scan[string](t, conn, rounds), "1")
}

func TestStartAppliesTheOptions(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		opts Options
		want map[string]string
	}{
		"tests":   {Options{}, map[string]string{"fsync": "off", "shared_buffers": "128MB"}},
		"durable": {Options{Fsync: true, SharedBuffersMB: 16}, map[string]string{"fsync": "on", "shared_buffers": "16MB"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := launch(t, test.opts)
			conn := connect(t, c.URL("postgres"))
			test.want["max_connections"] = "200"
			test.want["max_prepared_transactions"] = "0"
			test.want["TimeZone"] = "UTC"
			test.want["synchronous_commit"] = "on"
			test.want["full_page_writes"] = "on"
			test.want["server_encoding"] = "UTF8"
			test.want["listen_addresses"] = "127.0.0.1"
			got := map[string]string{}
			for setting := range test.want {
				got[setting] = scan[string](t, conn, "show "+setting)
			}
			check.Same(t, "settings", got, test.want)
		})
	}
}

func TestOnlyThePasswordOpensTheCluster(t *testing.T) {
	t.Parallel()
	c := launch(t, Options{})
	for _, host := range []string{"127.0.0.1", c.keeper.dir} {
		config := check.Value(pgx.ParseConfig(c.URL("postgres")))(t)
		config.Host = host
		conn := check.Value(pgx.ConnectConfig(t.Context(), config))(t)
		_ = conn.Close(t.Context())

		config.Password = "postgres"
		_, err := pgx.ConnectConfig(t.Context(), config)
		if refusal, ok := errors.AsType[*pgconn.PgError](err); !ok || refusal.Code != "28P01" {
			t.Errorf("connect at %s with a wrong password: got %v, want invalid_password (28P01)", host, err)
		}
	}
	folder := check.Value(os.Stat(c.keeper.dir))(t)
	check.Equal(t, "mode of the folder", folder.Mode().Perm(), os.FileMode(0o700))
}

func TestStartTakesAnotherPortWhenItsPortIsTaken(t *testing.T) {
	t.Parallel()
	taken := check.Value(net.Listen("tcp4", "127.0.0.1:0"))(t)
	defer taken.Close()
	tries := 0
	c := launch(t, Options{nextPort: func() (int, error) {
		if tries++; tries < 3 {
			return taken.Addr().(*net.TCPAddr).Port, nil
		}
		return randomPort()
	}})
	check.Equal(t, "tries", tries, 3)
	connect(t, c.URL("postgres"))
}

func TestStartTellsWhatTheServerSays(t *testing.T) {
	t.Parallel()
	c, err := Start(t.Context(), Options{SharedBuffersMB: -1})
	if err == nil {
		_ = c.Stop()
		t.Fatal("start with shared_buffers -1MB: got no error")
	}
	if want := `is outside the valid range for parameter "shared_buffers"`; !strings.Contains(err.Error(), want) {
		t.Errorf("error: got %v, want it to contain %q", err, want)
	}
}

func TestStartGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c, err := Start(ctx, Options{nextPort: func() (int, error) {
		cancel()
		return randomPort()
	}})
	if err == nil {
		_ = c.Stop()
	}
	check.Err(t, "start", context.Canceled)(err)
}

func TestRestartKeepsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	for name, immediate := range map[string]bool{"fast": false, "immediate": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := launch(t, Options{})
			before := connect(t, c.URL("postgres"))
			execute(t, before, "create table written (n int)")
			execute(t, before, "insert into written select generate_series(1, 1000)")
			execute(t, before, "begin")
			execute(t, before, "insert into written values (0)")

			check.OK(t)(c.Restart(t.Context(), immediate))
			if _, err := before.Exec(t.Context(), "commit"); err == nil {
				t.Error("commit on a connection from before the restart: got no error")
			}
			after := connect(t, c.URL("postgres"))
			check.Equal(t, "rows", scan[int](t, after, "select count(*) from written"), 1000)
			assertRecovered(t, c, immediate)
		})
	}
}

// assertRecovered checks in the log whether the last start followed a crash.
func assertRecovered(t *testing.T, c *Cluster, want bool) {
	t.Helper()
	log := check.Value(os.ReadFile(c.keeper.dir + "/log"))(t)
	check.Equal(t, "recovery after the restart", strings.Contains(string(log), "automatic recovery in progress"), want)
}

func TestRestartStartsAServerThatDied(t *testing.T) {
	t.Parallel()
	c := launch(t, Options{})
	server := serverPID(t, c.keeper.dir)
	check.OK(t)(syscall.Kill(server, syscall.SIGQUIT))
	await(t, "the server is gone", func() bool { return !alive(server) })
	check.OK(t)(c.Restart(t.Context(), false))
	connect(t, c.URL("postgres"))
}

func TestStopEndsTheServerAndRemovesTheFolder(t *testing.T) {
	t.Parallel()
	c := launch(t, Options{})
	server := serverPID(t, c.keeper.dir)
	connect(t, c.URL("postgres"))
	for range 2 {
		check.OK(t)(c.Stop())
	}
	await(t, "the server is gone", func() bool { return !alive(server) }) // at once, but for init to reap it
	if exists(c.keeper.dir) {
		t.Error("the folder is still there")
	}
	check.Err(t, "restart after stop", errStopped)(c.Restart(t.Context(), false))
}

func TestSharedIsOneCluster(t *testing.T) {
	t.Parallel()
	first := check.Value(Shared())(t)
	second := check.Value(Shared())(t)
	if first != second {
		t.Error("got two clusters, want one")
	}
	address := check.Value(url.Parse(first.URL("a b")))(t)
	check.Equal(t, "database in the URL", address.Path, "/a b")
}

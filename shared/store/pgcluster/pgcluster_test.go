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

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// launch starts a cluster that ends with the test.
func launch(t *testing.T, opts Options, nextPort func() (int, error)) *Cluster {
	t.Helper()
	c, err := start(t.Context(), opts, nextPort)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return c
}

// connect opens a connection that ends with the test.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
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
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
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

func TestStartAppliesTheOptions(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		opts Options
		want map[string]string
	}{
		"tests": {
			Options{},
			map[string]string{"fsync": "off", "max_connections": "200", "shared_buffers": "128MB"},
		},
		"durable": {
			Options{Fsync: true, MaxConnections: 30, SharedBuffersMB: 16},
			map[string]string{"fsync": "on", "max_connections": "30", "shared_buffers": "16MB"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := launch(t, test.opts, randomPort)
			conn := connect(t, c.URL("postgres"))
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
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnlyThePasswordOpensTheCluster(t *testing.T) {
	t.Parallel()
	c := launch(t, Options{}, randomPort)
	for _, host := range []string{"127.0.0.1", c.keeper.dir} {
		config, err := pgx.ParseConfig(c.URL("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		config.Host = host
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Fatalf("connect at %s with the password: %v", host, err)
		}
		_ = conn.Close(t.Context())

		config.Password = "postgres"
		_, err = pgx.ConnectConfig(t.Context(), config)
		var refusal *pgconn.PgError
		if !errors.As(err, &refusal) || refusal.Code != "28P01" {
			t.Errorf("connect at %s with a wrong password: got %v, want invalid_password (28P01)", host, err)
		}
	}
	folder, err := os.Stat(c.keeper.dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := folder.Mode().Perm(), os.FileMode(0o700); got != want {
		t.Errorf("mode of the folder: got %v, want %v", got, want)
	}
}

func TestStartTakesAnotherPortWhenItsPortIsTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	tries := 0
	c := launch(t, Options{}, func() (int, error) {
		if tries++; tries < 3 {
			return taken.Addr().(*net.TCPAddr).Port, nil
		}
		return randomPort()
	})
	if tries != 3 {
		t.Errorf("tries: got %d, want 3", tries)
	}
	connect(t, c.URL("postgres"))
}

func TestStartTellsWhatTheServerSays(t *testing.T) {
	t.Parallel()
	c, err := Start(t.Context(), Options{MaxConnections: -1})
	if err == nil {
		_ = c.Stop()
		t.Fatal("start with max_connections -1: got no error")
	}
	if want := `-1 is outside the valid range for parameter "max_connections"`; !strings.Contains(err.Error(), want) {
		t.Errorf("error: got %v, want it to contain %q", err, want)
	}
}

func TestStartGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c, err := start(ctx, Options{}, func() (int, error) {
		cancel()
		return randomPort()
	})
	if err == nil {
		_ = c.Stop()
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("start: got error %v, want %v", err, context.Canceled)
	}
}

func TestRestartKeepsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	for name, immediate := range map[string]bool{"fast": false, "immediate": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := launch(t, Options{}, randomPort)
			before := connect(t, c.URL("postgres"))
			execute(t, before, "create table written (n int)")
			execute(t, before, "insert into written select generate_series(1, 1000)")
			execute(t, before, "begin")
			execute(t, before, "insert into written values (0)")

			if err := c.Restart(t.Context(), immediate); err != nil {
				t.Fatal(err)
			}
			if _, err := before.Exec(t.Context(), "commit"); err == nil {
				t.Error("commit on a connection from before the restart: got no error")
			}
			after := connect(t, c.URL("postgres"))
			if got := scan[int](t, after, "select count(*) from written"); got != 1000 {
				t.Errorf("rows: got %d, want 1000", got)
			}
			assertRecovered(t, c, immediate)
		})
	}
}

// assertRecovered checks in the log whether the last start followed a crash.
func assertRecovered(t *testing.T, c *Cluster, want bool) {
	t.Helper()
	log, err := os.ReadFile(c.keeper.dir + "/log")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Contains(string(log), "automatic recovery in progress"); got != want {
		t.Errorf("recovery after the restart: got %t, want %t", got, want)
	}
}

func TestRestartStartsAServerThatDied(t *testing.T) {
	t.Parallel()
	c := launch(t, Options{}, randomPort)
	server := serverPID(t, c.keeper.dir)
	if err := syscall.Kill(server, syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	await(t, "the server is gone", func() bool { return !alive(server) })
	if err := c.Restart(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	connect(t, c.URL("postgres"))
}

func TestStopEndsTheServerAndRemovesTheFolder(t *testing.T) {
	t.Parallel()
	c := launch(t, Options{}, randomPort)
	server := serverPID(t, c.keeper.dir)
	connect(t, c.URL("postgres"))
	for range 2 {
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the server is gone", func() bool { return !alive(server) }) // at once, but for init to reap it
	if exists(c.keeper.dir) {
		t.Error("the folder is still there")
	}
	if err := c.Restart(t.Context(), false); !errors.Is(err, errStopped) {
		t.Errorf("restart after stop: got %v, want %v", err, errStopped)
	}
}

func TestSharedIsOneCluster(t *testing.T) {
	t.Parallel()
	first, err := Shared()
	if err != nil {
		t.Fatal(err)
	}
	second, err := Shared()
	if err != nil {
		t.Fatal(err)
	}
	if first != second {
		t.Error("got two clusters, want one")
	}
	address, err := url.Parse(first.URL("a b"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := address.Path, "/a b"; got != want {
		t.Errorf("database in the URL: got %q, want %q", got, want)
	}
}

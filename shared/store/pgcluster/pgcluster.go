// Package pgcluster runs throwaway Postgres clusters for tests and for the
// emulator, from the server programs installed on the machine.
//
// A cluster lives in a temporary folder and listens on 127.0.0.1 and on a
// socket in that folder, both closed to everyone without its random password.
// It never outlives the process that started it: a small shell process, the
// keeper, stops the server and removes the folder as soon as that process stops
// the cluster, exits or is killed. Only killing the keeper too leaves something
// behind.
package pgcluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// Options says how a cluster is set up. The zero value suits tests.
type Options struct {
	// Fsync makes commits survive a crash of the machine, at the price that a
	// real database pays. Without it they still survive a crash of Postgres.
	Fsync bool

	// MaxConnections is max_connections; 0 means 200.
	MaxConnections int

	// SharedBuffersMB is shared_buffers in MiB; 0 means 128.
	SharedBuffersMB int

	// Binaries is the folder of the server's programs; "": those of the machine.
	Binaries string

	// ClockLibrary is the path of libfaketime, see [FindClockLibrary]. With it
	// [Cluster.SetClock] moves the server's clock. Empty: the clock is the machine's.
	ClockLibrary string
}

// Cluster is a running Postgres cluster. Its methods may be called from several
// goroutines at once.
type Cluster struct {
	keeper   *keeper
	port     int
	password string
	opts     Options
	stop     func() error

	movableClock bool // Options.ClockLibrary was given

	copying sync.Mutex // one copy of a database at a time
	clones  atomic.Int64

	building sync.Mutex      // one template at a time
	built    map[string]bool // guarded by building
}

// Start makes a new cluster and returns once it takes connections, well under a
// second later on an idle machine. The caller must call [Cluster.Stop].
//
// A process that is root runs the server as user postgres or, if there is none,
// as nobody. An error says what to install if the machine has no server.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	return start(ctx, opts, randomPort)
}

// start is Start with the source of ports to try.
func start(ctx context.Context, opts Options, nextPort func() (int, error)) (*Cluster, error) {
	password := rand.Text()
	return launchCluster(ctx, opts, nextPort, password, "init "+password)
}

// launchCluster starts a cluster whose data the keeper makes by the order that is given.
func launchCluster(ctx context.Context, opts Options, nextPort func() (int, error), password, make string) (*Cluster, error) {
	binaries := opts.Binaries
	if binaries == "" {
		var err error
		if binaries, err = findBinaries(packaged); err != nil {
			return nil, fmt.Errorf("start Postgres: %w", err)
		}
	}
	keeper, err := startKeeper(temporaryFolder(), binaries, opts.ClockLibrary)
	if err != nil {
		return nil, fmt.Errorf("start Postgres: %w", err)
	}
	c := &Cluster{
		keeper: keeper, movableClock: opts.ClockLibrary != "", password: password, opts: opts,
		stop: sync.OnceValue(keeper.end), built: map[string]bool{},
	}
	if err := c.boot(ctx, nextPort, make); err != nil {
		return nil, fmt.Errorf("start Postgres: %w", errors.Join(err, c.Stop()))
	}
	return c, nil
}

// temporaryFolder returns where to make the cluster's folder. The name of its
// socket has to fit into 103 bytes, the least that a supported system allows.
func temporaryFolder() string {
	const longest = 103 - len("/fencepost-pg-XXXXXX/.s.PGSQL.65535.lock")
	if folder := os.TempDir(); len(folder) <= longest {
		return folder
	}
	return "/tmp"
}

// boot brings a cluster whose keeper just started to where it takes
// connections. The order make has the keeper make its data.
func (c *Cluster) boot(ctx context.Context, nextPort func() (int, error), make string) error {
	if err := c.keeper.folder(ctx); err != nil {
		return err
	}
	if err := c.keeper.order(ctx, make); err != nil {
		return err
	}
	const tries = 5
	var err error
	for range tries {
		if c.port, err = nextPort(); err != nil {
			return err
		}
		if err = c.configure(); err != nil {
			return err
		}
		if err = c.keeper.order(ctx, "start"); err == nil || !isPortTaken(err) {
			break
		}
	}
	if err != nil {
		return err
	}
	return c.ping(ctx)
}

// configure writes the settings. They replace what initdb chose: a cluster is
// set up the same way on every machine and version.
func (c *Cluster) configure() error {
	opts := c.opts
	// fsync alone is what tests can do without: commits still wait for the log
	// and pages are still whole, so a killed server recovers all of them.
	text := fmt.Sprintf(`listen_addresses = '127.0.0.1'
port = %d
unix_socket_directories = '%s'
max_connections = %d
shared_buffers = %dMB
fsync = %t
max_prepared_transactions = 0
timezone = 'UTC'
log_timezone = 'UTC'
`, c.port, c.keeper.dir, cmp.Or(opts.MaxConnections, 200), cmp.Or(opts.SharedBuffersMB, 128), opts.Fsync)
	// The file is initdb's, so it keeps the owner that the server demands.
	if err := os.WriteFile(filepath.Join(c.keeper.dir, "data", "postgresql.conf"), []byte(text), 0o600); err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	return nil
}

// ping connects once.
func (c *Cluster) ping(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, c.URL("postgres"))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return conn.Close(ctx)
}

// URL returns the URL at which the superuser reaches the database of that name,
// which need not exist. It holds the password and stays the same over restarts.
func (c *Cluster) URL(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("postgres", c.password),
		Host:     fmt.Sprintf("127.0.0.1:%d", c.port),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Restart stops the server, cutting all connections, and starts it again on the
// same port. Immediate stops it as a crash would: open transactions are lost,
// and the start recovers what was committed. A server that has died is started.
//
// After an error the server may be down; Restart may be tried again, unless ctx
// ended: then the cluster is gone and only Stop remains.
func (c *Cluster) Restart(ctx context.Context, immediate bool) error {
	mode := "fast"
	if immediate {
		mode = "immediate"
	}
	if err := c.keeper.order(ctx, "stop "+mode); err != nil {
		return fmt.Errorf("restart Postgres: %w", err)
	}
	if err := c.keeper.order(ctx, "start"); err != nil {
		return fmt.Errorf("restart Postgres: %w", err)
	}
	if err := c.ping(ctx); err != nil {
		return fmt.Errorf("restart Postgres: %w", err)
	}
	return nil
}

// Stop stops the server without mercy and removes the folder. It returns when
// both are done; a second call does nothing and returns the same.
func (c *Cluster) Stop() error {
	return c.stop()
}

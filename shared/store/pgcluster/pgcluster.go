// Package pgcluster runs temporary Postgres clusters for tests and for the emulator, with the server
// programs of the machine.
//
// A cluster is in a temporary folder and listens on 127.0.0.1 and on a socket in that folder; both
// require its random password. It never outlives the process that started it. A small shell process,
// the keeper, stops the server and removes the folder as soon as that process stops the cluster, exits
// or is killed. Only killing the keeper too leaves something behind.
package pgcluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/shared/store/internal/results"
)

// Options configure a cluster. The zero value suits tests.
type Options struct {
	// Fsync makes commits survive a crash of the machine, at the cost of a real database. Without it
	// they still survive a crash of Postgres.
	Fsync bool

	// SharedBuffersMB is shared_buffers in MiB; 0 means 128.
	SharedBuffersMB int

	// Binaries is the folder of the server's programs; "": those of the machine.
	Binaries string

	// ClockLibrary is the path of libfaketime, see [FindClockLibrary]. With it
	// [Cluster.SetClock] moves the server's clock. Empty: the clock is the machine's.
	ClockLibrary string

	nextPort func() (int, error) // the source of ports to try; nil: [randomPort]
}

// Cluster is a running Postgres cluster. Its methods can be called concurrently.
type Cluster struct {
	keeper   *keeper
	port     int
	password string
	opts     Options
	stop     func() error

	copying sync.Mutex // one copy of a database at a time
	clones  atomic.Int64

	templates sync.Map // by name: *template
}

// Start makes a new cluster and returns once it accepts connections, in less than a second on an idle
// machine. The caller must call [Cluster.Stop].
//
// A root process runs the server as the user `postgres` or, if there is none, `nobody`. If the machine has
// no server the error says what to install.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	if opts.nextPort == nil {
		opts.nextPort = randomPort
	}
	password := rand.Text()
	return start(ctx, opts, password, "init "+password)
}

// start starts a cluster whose data the keeper creates by the given order.
func start(ctx context.Context, opts Options, password, make string) (*Cluster, error) {
	binaries := opts.Binaries
	if binaries == "" {
		var err error
		if binaries, err = find(errNoBinaries, server, inPath("pg_ctl"), packaged); err != nil {
			return nil, fmt.Errorf("start Postgres: %w", err)
		}
	}
	keeper, err := startKeeper(parentFolder(opts), binaries, opts.ClockLibrary)
	if err != nil {
		return nil, fmt.Errorf("start Postgres: %w", err)
	}
	c := &Cluster{
		keeper: keeper, password: password, opts: opts,
		stop: sync.OnceValue(keeper.end),
	}
	if err := c.boot(ctx, make); err != nil {
		return nil, fmt.Errorf("start Postgres: %w", errors.Join(err, c.Stop()))
	}
	return c, nil
}

// MemoryFolder is the environment variable that names a folder in memory, where Postgres's user may
// make files. Clusters without fsync have their folders there. Making and dropping databases is much
// cheaper there than on a disk.
const MemoryFolder = "PGCLUSTER_MEMORY"

// parentFolder returns the parent of the cluster's folder. The name of its socket must fit into 103
// bytes, the minimum of the supported systems.
func parentFolder(opts Options) string {
	const longest = 103 - len("/fencepost-pg-XXXXXX/.s.PGSQL.65535.lock")
	if folder := os.Getenv(MemoryFolder); folder != "" && !opts.Fsync && len(folder) <= longest {
		return folder
	}
	if folder := os.TempDir(); len(folder) <= longest {
		return folder
	}
	return "/tmp"
}

// boot starts a cluster's server after its keeper, and returns when it accepts connections. The order
// make creates its data.
func (c *Cluster) boot(ctx context.Context, make string) error {
	if err := c.keeper.folder(ctx); err != nil {
		return err
	}
	if err := c.keeper.order(ctx, make); err != nil {
		return err
	}
	const tries = 5
	var err error
	for range tries {
		if c.port, err = c.opts.nextPort(); err != nil {
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
	return c.execute(ctx, "select")
}

// configure writes the settings. They replace initdb's, so that a cluster is the same on every machine
// and version.
func (c *Cluster) configure() error {
	opts := c.opts
	// Tests need no fsync: commits still wait for the log and pages are still complete, so a killed
	// server recovers all of them.
	text := fmt.Sprintf(`listen_addresses = '127.0.0.1'
port = %d
unix_socket_directories = '%s'
max_connections = 200
shared_buffers = %dMB
fsync = %t
max_prepared_transactions = 0
timezone = 'UTC'
log_timezone = 'UTC'
`, c.port, c.keeper.dir, cmp.Or(opts.SharedBuffersMB, 128), opts.Fsync)
	if major, err := os.ReadFile(filepath.Join(c.keeper.dir, "data", "PG_VERSION")); err == nil && strings.TrimSpace(string(major)) != "15" {
		text += "scram_iterations = 1\n" // as the keeper's: of the passwords of roles, which are random too
	}
	// initdb made the file, so it keeps the owner that the server requires.
	return results.Wrap(os.WriteFile(filepath.Join(c.keeper.dir, "data", "postgresql.conf"), []byte(text), 0o600), "configure")
}

// URL returns the superuser's URL for the database with that name, which need not exist. It contains
// the password and stays the same after restarts.
func (c *Cluster) URL(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("postgres", c.password),
		Host:     c.Addr(),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Restart stops the server, cutting all connections, and starts it again on the same port. Immediate
// stops it as a crash would: open transactions are lost, and the start recovers the commits. A dead
// server is started.
//
// After an error the server may be down. Restart can be repeated, unless ctx ended: then the cluster is
// gone and only Stop can be called.
func (c *Cluster) Restart(ctx context.Context, immediate bool) error {
	return results.Wrap(c.replace(ctx, stopOrder(immediate)), "restart Postgres")
}

// stopOrder is the keeper's order to stop the server, as a crash would if immediate.
func stopOrder(immediate bool) string {
	if immediate {
		return "stop immediate"
	}
	return "stop fast"
}

// Stop stops the server immediately and removes the folder. It returns when both are done; a second
// call does nothing and returns the same.
func (c *Cluster) Stop() error {
	return c.stop()
}

// randomPort returns a free port of 127.0.0.1. It is below the ranges of the kernels' local ports for
// outgoing connections (32768 and up on Linux), so that it is still free after a restart. It is above
// the range of the tests' processes.
func randomPort() (int, error) {
	const lowest, end, tries = 30000, 32000, 100
	var errs []error
	for range tries {
		port := lowest + mathrand.IntN(end-lowest)
		listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		return port, listener.Close()
	}
	return 0, fmt.Errorf("find a free port: %w", errors.Join(errs...))
}

// isPortTaken reports whether a start failed because another process took the port after it was found
// free. Postgres reports that only in its log, in the words of the C library.
func isPortTaken(err error) bool {
	return strings.Contains(err.Error(), "Address already in use")
}

// Shared returns the cluster of this process, which the first call starts with
// the zero [Options]. It ends with the process and must not be stopped. If it
// could not be started, every call returns that error.
//
// A test's context must not end the cluster of all tests, so the start has a separate deadline; a
// loaded machine needs seconds.
var Shared = sync.OnceValues(func() (*Cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return Start(ctx, Options{})
})

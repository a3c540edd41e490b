// Package acceptancetest builds the programs of a deployment and starts it for a test. It has what the
// packages of acceptance tests share.
package acceptancetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/emulator/fake/ubscore"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/runbooks"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
	"github.com/fencepost/fencepost/shared/web/webtest"
)

// Within bounds everything that a test waits for.
const Within = 8 * time.Minute

// Quick are settings under which a dead holder's lease expires in two seconds, and what a node did not answer is sent
// again soon.
var Quick = map[string]string{
	"FENCEPOST_LEASE_DURATION": "2s", "FENCEPOST_LEASE_RENEW_INTERVAL": "900ms", "FENCEPOST_CLOCK_SKEW_ALLOWANCE": "100ms",
	"FENCEPOST_DATABASE_LOCK_TIMEOUT": "1500ms", "FENCEPOST_DATABASE_IDLE_IN_TRANSACTION_TIMEOUT": "500ms",
	"FENCEPOST_DATABASE_STATEMENT_TIMEOUT": "1800ms", "FENCEPOST_RPC_TIMEOUT": "2s", "FENCEPOST_RESUBMIT_INTERVAL": "1s", "FENCEPOST_SWEEP_GRACE": "2s",
}

// QuickTransfers are settings under which the sweep finds lost work of transfers within seconds.
var QuickTransfers = map[string]string{
	"FENCEPOST_TRANSFER_CALL_TIMEOUT": "2s", "FENCEPOST_TRANSFER_RESCUE_AFTER": "3s",
	"FENCEPOST_TRANSFER_RETRY_FIRST": "200ms", "FENCEPOST_TRANSFER_RETRY_MOST": "1s", "FENCEPOST_DATABASE_MAX_CONNS": "8",
}

// Settings returns all of the settings. Of one that is there twice it has the last value.
func Settings(all ...map[string]string) map[string]string {
	sum := make(map[string]string)
	for _, m := range all {
		maps.Copy(sum, m)
	}
	return sum
}

// Program is built once for all tests of a package, by [Main].
type Program struct {
	Path  string
	build func(ctx context.Context, folder string, flags ...string) (path string, err error)
}

// Server and Core are the function server and the trading core. A deployment runs those that Main has built.
var (
	Server = &Program{build: stack.Build}
	Core   = &Program{build: ubscore.Build}
)

// NewProgram returns the program of a folder of the module.
func NewProgram(of string) *Program {
	return &Program{build: func(ctx context.Context, folder string, flags ...string) (string, error) {
		return stack.BuildProgram(ctx, folder, of, flags...)
	}}
}

// Main builds the programs, runs the tests of the package in the folder, and exits. It fails also by
// the error of end, by a race in a process, and by a call of a runbook that no test made.
func Main(m *testing.M, folder string, end func(passed bool) error, programs ...*Program) {
	built, err := os.MkdirTemp("", "fencepost-acceptance-")
	for _, p := range programs {
		if err == nil {
			p.Path, err = p.build(context.Background(), built, RaceFlags...)
		}
	}
	code := 1
	if err == nil {
		code = m.Run()
		err = errors.Join(end(code == 0), processes.Races())
		if code == 0 && err == nil {
			err = runbooks.Unproven(folder)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.RemoveAll(built)
	os.Exit(code)
}

// Deployment is a running stack with direct access to its database and chain.
type Deployment struct {
	*stack.Stack
	DB    *pgxpool.Pool
	Node  *ethclient.Client
	Log   *Log
	watch *webtest.Watch // checks every answer
}

// described returns the API's description. It is read once, because that takes longer than many tests.
var described = sync.OnceValues(func() (*webtest.Contract, error) {
	text, err := os.ReadFile(Root() + "functions/openapi.yaml")
	if err != nil {
		return nil, err
	}
	return webtest.Load(text)
})

// Start starts a stack on the shared cluster, unless the options name another. Options.Around sees the
// answers after they were checked.
func Start(ctx context.Context, o stack.Options) (_ *Deployment, err error) {
	defer steps.Return(&err)
	d := &Deployment{Log: new(Log), watch: &webtest.Watch{Contract: steps.Value(described())}}
	if o.Cluster == nil {
		o.Cluster = steps.Value(pgcluster.Shared())
	}
	outer := o.Around
	o.Around = func(next http.Handler) http.Handler {
		if next = d.watch.Around(next); outer != nil {
			next = outer(next)
		}
		return next
	}
	o.Output = d.Log
	o.Binary, o.Core.Binary = cmp.Or(o.Binary, Server.Path), cmp.Or(o.Core.Binary, Core.Path)
	d.Stack = steps.Value(stack.Start(ctx, o))
	if d.DB, err = pgxpool.New(ctx, d.Database); err == nil {
		d.Node, err = ethclient.DialContext(ctx, d.Chain.URL())
	}
	if err != nil {
		return nil, errors.Join(err, d.Stack.Close())
	}
	return d, nil
}

// StartFor starts a deployment that ends with t.
func StartFor(ctx context.Context, t testing.TB, o stack.Options) *Deployment {
	t.Helper()
	d := Must(Start(ctx, o))(t)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("stop: %v", err)
		}
		if t.Failed() {
			t.Log(d.Log.End())
		}
	})
	return d
}

// Close stops the deployment. Its error tells also which answers did not have the documented form.
func (d *Deployment) Close() error {
	d.Node.Close()
	d.DB.Close()
	return errors.Join(d.Stack.Close(), d.watch.Err())
}

// Root is the path from the test's folder to the module's.
func Root() (path string) {
	for range 5 {
		if _, err := os.Stat(path + "go.mod"); err == nil {
			break
		}
		path += "../"
	}
	return path
}

// Log keeps what processes write.
type Log struct {
	mu   sync.Mutex
	text []byte
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

// Has reports whether the log contains the text.
func (l *Log) Has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.text, []byte(text))
}

// String returns the whole log.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// Lines returns the lines that contain all of the texts.
func (l *Log) Lines(texts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(l.text) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !bytes.Contains(line, []byte(text)) }) {
			found = append(found, string(line))
		}
	}
	return found
}

// End returns the end of the log, for a test that failed.
func (l *Log) End() string {
	const most = 40_000
	text := l.String()
	return fmt.Sprintf("the processes' log, its end:\n%s", text[max(0, len(text)-most):])
}

// Wait waits for the condition until ctx ends. It asks less often as time goes on: each question costs time of the tests
// beside this one.
func Wait(ctx context.Context, met func() bool) error {
	for pause := 20 * time.Millisecond; !met(); pause = min(pause+pause/10, 120*time.Millisecond) {
		if retry.Pause(ctx, pause); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// Poll waits for the condition. It needs no context: it is for clean-up too.
func Poll(t testing.TB, what string, met func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Within)
	defer cancel()
	if Wait(ctx, met) != nil {
		t.Fatalf("still not so after %s: %s", Within, what)
	}
}

// Check ends the test if there is an error. The message begins with what the test was doing.
func Check(t testing.TB, err error, doing ...any) {
	t.Helper()
	if err != nil {
		t.Fatal(append(doing, err)...)
	}
}

// Says reports texts that are missing in got.
func Says(t testing.TB, what, got string, want ...string) {
	t.Helper()
	for _, text := range want {
		if !strings.Contains(got, text) {
			t.Errorf("%s: got %s, want %q in it", what, got, text)
		}
	}
}

// Must returns the value to the test that is then named, or ends that test if there is an error.
func Must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Check(t, err)
		return v
	}
}

// Parallel runs a subtest beside the others.
func Parallel(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		test(t)
	})
}

// AtEnd calls f at the end of t, if t has passed by then.
func AtEnd(t testing.TB, f func()) {
	t.Cleanup(func() {
		if !t.Failed() {
			f()
		}
	})
}

// Await waits until the query's only value is true. A query that fails is repeated.
func (d *Deployment) Await(t testing.TB, what, query string, args ...any) {
	t.Helper()
	Poll(t, what, func() bool {
		var met bool
		return d.DB.QueryRow(context.Background(), query, args...).Scan(&met) == nil && met
	})
}

// BackUp copies the database in its present state. It ends all connections to the database.
func (d *Deployment) BackUp(t testing.TB) {
	t.Helper()
	d.runWhileClosed(t, `create database "LIVE_backup" template "LIVE"`)
}

// PutBack replaces the database by the backup. It ends all connections to the database.
func (d *Deployment) PutBack(t testing.TB) {
	t.Helper()
	d.runWhileClosed(t, `alter database "LIVE" rename to "LIVE_lost"`, `alter database "LIVE_backup" rename to "LIVE"`)
}

// runWhileClosed runs statements while the database accepts no connection. LIVE stands for its name in them.
func (d *Deployment) runWhileClosed(t testing.TB, statements ...string) {
	t.Helper()
	ctx := context.Background()
	u := Must(url.Parse(d.Database))(t)
	name := strings.Trim(u.Path, "/")
	u.Path = "/postgres"
	conn := Must(pgx.Connect(ctx, u.String()))(t)
	defer conn.Close(ctx)
	all := append([]string{
		`alter database "LIVE" allow_connections false`,
		`select pg_terminate_backend(pid) from pg_stat_activity where datname = 'LIVE' and pid <> pg_backend_pid()`,
	}, statements...)
	for _, s := range append(all, `alter database "LIVE" allow_connections true`) {
		Must(conn.Exec(ctx, strings.ReplaceAll(s, "LIVE", name)))(t)
	}
	d.DB.Reset()
}

// Rows returns the rows of a query of one column.
func Rows[T any](t testing.TB, d *Deployment, query string, args ...any) []T {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Within)
	defer cancel()
	return Must(pgx.CollectRows(Must(d.DB.Query(ctx, query, args...))(t), pgx.RowTo[T]))(t)
}

// ChangeOne runs a statement that must change one row.
func (d *Deployment) ChangeOne(t testing.TB, statement string, args ...any) {
	t.Helper()
	tag, err := d.DB.Exec(context.Background(), statement, args...)
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("%s: got %v, %v; want one row", statement, tag, err)
	}
}

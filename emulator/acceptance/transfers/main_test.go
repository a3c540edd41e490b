// Package transfers proves the promises of internal transfers end to end: real function processes
// behind a URL map, real Postgres, and a real trading core. The network between them loses, delays and
// repeats packets. Tests have the names that the specification gives them.
//
// Most tests share one deployment, each with separate users, and finish as every episode does: see
// [user.end]. Tests that halt all users, or kill the core, have a separate deployment.
package transfers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/emulator/fake/ubscore"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/emulator/verify/checkers/money"
	"github.com/fencepost/fencepost/shared/runbooks"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
	"github.com/fencepost/fencepost/shared/web/webtest"
)

// server and core are the programs, built once for all tests, with the race
// detector where the tests have it.
var server, core string

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the URL map's: that a killed process answers nothing is what is tested
	folder, err := os.MkdirTemp("", "fencepost-transfers-")
	if err == nil {
		server, err = stack.Build(context.Background(), folder, raceFlags...)
	}
	if err == nil {
		core, err = ubscore.Build(context.Background(), folder, raceFlags...)
	}
	code := 1
	if err == nil {
		code = m.Run()
		err = errors.Join(endShared(code == 0), processes.Races())
		if code == 0 && err == nil {
			err = runbooks.Unproven("emulator/acceptance/transfers")
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.RemoveAll(folder)
	os.Exit(code)
}

// within bounds everything that a test waits for.
const within = 8 * time.Minute

// deployment is a running stack with direct access to its database.
type deployment struct {
	*stack.Stack
	DB    *pgxpool.Pool
	log   *keptLog
	watch *webtest.Watch // checks every answer
}

// quick makes the sweep find lost work within seconds.
var quick = map[string]string{
	"FENCEPOST_TRANSFER_CALL_TIMEOUT": "2s", "FENCEPOST_TRANSFER_RESCUE_AFTER": "3s",
	"FENCEPOST_TRANSFER_RETRY_FIRST": "200ms", "FENCEPOST_TRANSFER_RETRY_MOST": "1s", "FENCEPOST_DATABASE_MAX_CONNS": "8",
}

func build(ctx context.Context, o stack.Options) (_ *deployment, err error) {
	h := &deployment{log: new(keptLog)}
	if h.watch, err = webtest.NewWatch("../../../functions/openapi.yaml"); err != nil {
		return nil, err
	}
	o.Around = h.watch.Around
	if o.Cluster, err = pgcluster.Shared(); err != nil {
		return nil, err
	}
	o.Binary, o.Core.Binary, o.Transfers, o.Output = server, core, true, h.log
	o.Submitters = 1
	if o.Processes == 0 {
		o.Processes = 2
	}
	settings := make(map[string]string)
	for _, from := range []map[string]string{quick, o.Settings} {
		for name, value := range from {
			settings[name] = value
		}
	}
	o.Settings = settings
	if h.Stack, err = stack.Start(ctx, o); err != nil {
		return nil, err
	}
	if h.DB, err = pgxpool.New(ctx, h.Database); err != nil {
		return nil, errors.Join(err, h.Stack.Close())
	}
	return h, nil
}

func (h *deployment) close() error {
	h.DB.Close()
	return errors.Join(h.Stack.Close(), h.watch.Err())
}

// shared is the deployment of all tests that do not disturb other tests' users. It is swept each
// second.
var shared = sync.OnceValues(func() (*deployment, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	opened = true
	return build(ctx, stack.Options{SweepEvery: time.Second, CheckEvery: time.Second})
})

var opened bool // a test has opened shared

// endShared checks the whole shared deployment, if the tests have passed, and closes it.
func endShared(verify bool) error {
	if !opened {
		return nil
	}
	h, err := shared()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if verify {
		err = h.verify(ctx)
	}
	if err != nil {
		h.log.show()
	}
	return errors.Join(err, h.close())
}

// verify runs the checkers on everything that happened in the deployment, and queries the deployment
// itself.
func (h *deployment) verify(ctx context.Context) error {
	found, err := money.Check(ctx, money.Run{Database: h.Database, Core: h.Core.Ledger(), Settled: true})
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return errors.New(money.Report(found))
	}
	status, answer, err := h.Call(ctx, stack.OperatorAccount, http.MethodPost, "/admin/v1/conservation/check", map[string]any{"full": true})
	if err != nil || status != http.StatusOK {
		return fmt.Errorf("the deployment's own check: got %d %s, %w; want 200", status, answer, err)
	}
	var findings, halts, checks int
	err = h.DB.QueryRow(ctx, `
select (select count(*) from conservation_finding), (select count(*) from transfer_halt), (select max(version) from conservation_checkpoint)`,
	).Scan(&findings, &halts, &checks)
	if err != nil || findings > 0 || halts > 0 || checks == 0 {
		return fmt.Errorf("the deployment's own checks: got %d findings and %d halts by %d steps, %w; want none by some", findings, halts, checks, err)
	}
	return nil
}

// setup returns the shared deployment.
func setup(t *testing.T) *deployment {
	t.Helper()
	h, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// own returns a deployment for t alone, where only the test runs sweeps and checks.
func own(t *testing.T, o stack.Options) *deployment {
	t.Helper()
	if o.SweepEvery == 0 {
		o.SweepEvery = -1
	}
	if o.CheckEvery == 0 {
		o.CheckEvery = -1
	}
	h, err := build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.close(); err != nil {
			t.Errorf("stop: %v", err)
		}
		if t.Failed() {
			h.log.show()
		}
	})
	return h
}

// keptLog keeps the processes' log.
type keptLog struct {
	mu   sync.Mutex
	text []byte
}

// Write implements [io.Writer].
func (l *keptLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

// lines returns the lines that contain all of the texts.
func (l *keptLog) lines(texts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
next:
	for line := range bytes.Lines(l.text) {
		for _, text := range texts {
			if !bytes.Contains(line, []byte(text)) {
				continue next
			}
		}
		found = append(found, string(line))
	}
	return found
}

// wantLogged waits until the log has such a line, since the log is a little behind the
// process' answers.
func (l *keptLog) wantLogged(t *testing.T, texts ...string) (found []string) {
	t.Helper()
	poll(t, "a line with "+strings.Join(texts, " and "), func() bool {
		found = l.lines(texts...)
		return len(found) > 0
	})
	return found
}

func (l *keptLog) show() {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 40_000
	fmt.Fprintf(os.Stderr, "the processes' log, its end:\n%s", l.text[max(0, len(l.text)-most):])
}

// poll waits for a condition.
func poll(t *testing.T, what string, met func() bool) {
	t.Helper()
	deadline := time.After(within)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !met() {
		select {
		case <-deadline:
			t.Fatalf("still not so after %s: %s", within, what)
		case <-tick.C:
		}
	}
}

// Package payouts proves the promises of payouts across a whole deployment: real function processes,
// real Postgres, a real chain, and a payer's key that is really used. It reads the money's movements
// from the chain, block by block, and from Funding's journal, and compares the deployment's own
// answers with them.
package payouts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/emulator/fake/ubscore"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/emulator/verify/checkers/money"
	"github.com/fencepost/fencepost/shared/runbooks"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
	"github.com/fencepost/fencepost/shared/web/webtest"
)

// server and core are the programs, built once for all tests, with the race detector
// where the tests have it.
var server, core string

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the URL map's: that a killed process answers nothing is what is tested
	folder, err := os.MkdirTemp("", "fencepost-payouts-")
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
			err = runbooks.Unproven("emulator/acceptance/payouts")
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

// deployment is a running stack with direct access to its database and chain.
type deployment struct {
	*stack.Stack
	DB     *pgxpool.Pool
	client *ethclient.Client
	log    *keptLog
	watch  *webtest.Watch // checks every answer

	scanned scanned
}

// quick makes the sweep find lost work within seconds, and a payment final within a second.
var quick = map[string]string{
	"FENCEPOST_LEASE_DURATION": "2s", "FENCEPOST_LEASE_RENEW_INTERVAL": "900ms", "FENCEPOST_CLOCK_SKEW_ALLOWANCE": "100ms",
	"FENCEPOST_DATABASE_LOCK_TIMEOUT": "1500ms", "FENCEPOST_DATABASE_IDLE_IN_TRANSACTION_TIMEOUT": "500ms",
	"FENCEPOST_DATABASE_STATEMENT_TIMEOUT": "1800ms", "FENCEPOST_RPC_TIMEOUT": "2s", "FENCEPOST_RESUBMIT_INTERVAL": "1s",
	"FENCEPOST_SWEEP_GRACE": "2s", "FENCEPOST_CONFIRMATIONS_REQUIRED": "3", "FENCEPOST_CONFIRMATIONS_STALE_RECEIPT_TIMEOUT": "1s",
	"FENCEPOST_TRANSFER_CALL_TIMEOUT": "2s", "FENCEPOST_TRANSFER_RESCUE_AFTER": "3s",
	"FENCEPOST_TRANSFER_RETRY_FIRST": "200ms", "FENCEPOST_TRANSFER_RETRY_MOST": "1s", "FENCEPOST_DATABASE_MAX_CONNS": "8",
	"FENCEPOST_TRANSFER_PAYOUT_FINALITY": "40s",
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
	o.Binary, o.Core.Binary, o.Payouts, o.Output = server, core, true, h.log
	o.Submitters = max(o.Submitters, 1)
	o.Processes, o.Window = 2, 8
	if o.BlockTime == 0 {
		o.BlockTime = 200 * time.Millisecond
	}
	settings := maps.Clone(quick)
	maps.Copy(settings, o.Settings)
	o.Settings = settings
	if h.Stack, err = stack.Start(ctx, o); err != nil {
		return nil, err
	}
	if h.DB, err = pgxpool.New(ctx, h.Database); err != nil {
		return nil, errors.Join(err, h.Stack.Close())
	}
	if h.client, err = ethclient.DialContext(ctx, h.Chain.URL()); err != nil {
		h.DB.Close()
		return nil, errors.Join(err, h.Stack.Close())
	}
	return h, nil
}

func (h *deployment) close() error {
	h.client.Close()
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
		err = h.verify(ctx, true)
	}
	if err != nil {
		h.log.show()
	}
	return errors.Join(err, h.close())
}

// verify runs the checkers on everything that happened in the deployment, and queries the deployment
// itself.
func (h *deployment) verify(ctx context.Context, settled bool) error {
	found, err := money.Check(ctx, money.Run{Database: h.Database, Core: h.Core.Ledger(), Settled: settled})
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

// own returns a deployment for t alone, where only the test runs sweeps. It is checked when t has
// passed; settled means that everything has ended by then.
func own(t *testing.T, settled bool, o stack.Options) *deployment {
	t.Helper()
	if o.SweepEvery == 0 {
		o.SweepEvery = -1
	}
	o.CheckEvery = -1
	h, err := build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		if !t.Failed() {
			if err := h.verify(ctx, settled); err != nil {
				t.Error(err)
			}
		}
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

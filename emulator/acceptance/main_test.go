// Package acceptance proves the promises of the transaction manager end to end:
// real function processes, real Postgres, a real chain, the real Cloud Tasks
// client. Tests have the names that the specification gives them.
package acceptance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/shared/runbooks"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web/webtest"
)

// binary is the function server, built once for all tests. It has the race detector if the tests have
// it.
var binary string

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "fencepost-acceptance-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary, err = stack.Build(context.Background(), folder, raceFlags...)
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
		if err = errors.Join(runbooks.Unproven("emulator/acceptance"), processes.Races()); code == 0 && err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.RemoveAll(folder)
	os.Exit(code)
}

// within bounds every wait of a test.
const within = 8 * time.Minute

// bench is a running stack with direct access to its database and chain.
type bench struct {
	*stack.Stack
	DB  *pgxpool.Pool
	ctx context.Context
	log *testLog
}

// setup starts a stack for t with few submitters and quick blocks. Only the test runs the sweep.
func setup(t *testing.T, o stack.Options) bench {
	t.Helper()
	if o.Cluster == nil {
		var err error
		if o.Cluster, err = pgcluster.Shared(); err != nil {
			t.Fatal(err)
		}
	}
	if o.Binary == "" {
		o.Binary = binary
	}
	if o.BlockTime == 0 {
		o.BlockTime = 250 * time.Millisecond
	}
	if o.Submitters == 0 {
		o.Submitters = 2
	}
	if o.SweepEvery == 0 {
		o.SweepEvery = -1
	}
	log := &testLog{t: t}
	o.Output = log
	watch, err := webtest.NewWatch("../../functions/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	o.Around = watch.Around
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	s, err := stack.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), watch.Err()); err != nil {
			t.Errorf("stop: %v", err)
		}
		log.show()
	})
	db, err := pgxpool.New(ctx, s.Database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return bench{s, db, ctx, log}
}

// testLog keeps the functions' log and shows it if the test failed.
type testLog struct {
	t    *testing.T
	mu   sync.Mutex
	text []byte
}

// has reports whether the log contains the text.
func (l *testLog) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.text, []byte(text))
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

func (l *testLog) show() {
	if l.t.Failed() {
		const most = 40_000
		l.t.Logf("the functions' log, its end:\n%s", l.text[max(0, len(l.text)-most):])
	}
}

// transfer returns an intent that sends one wei to an unused address.
func transfer(s txmanager.Submitter, requestID string) map[string]any {
	return map[string]any{
		"submitter": s, "requestId": requestID,
		"payload": map[string]any{"to": "0x00000000000000000000000000000000000cafe0", "value": "1"},
	}
}

// post posts an intent and returns the status and the txId.
func (b bench) post(t *testing.T, intent map[string]any) (status int, txID string) {
	t.Helper()
	status, answer, err := b.Call(b.ctx, stack.CallerAccount, http.MethodPost, "/api/v1/tx", intent)
	if err != nil {
		t.Fatalf("post %v: %v", intent["requestId"], err)
	}
	var body struct{ TxID string }
	if status < 300 {
		if err := json.Unmarshal(answer, &body); err != nil {
			t.Fatalf("post %v: %s: %v", intent["requestId"], answer, err)
		}
	}
	return status, body.TxID
}

// record is the query's answer about a transaction.
type record struct {
	TxID, RequestID, State string
	SubState, TxHash       *string
	LastError              *string
	Nonce                  *uint64
	Receipt                json.RawMessage
	Confirmations          []struct{ Number uint64 }
}

// ask queries a transaction as account.
func (b bench) ask(t *testing.T, account, txID string) (status int, r record) {
	t.Helper()
	status, answer, err := b.Call(b.ctx, account, http.MethodGet, "/api/v1/tx/"+txID, nil)
	if err != nil {
		t.Fatalf("query %s: %v", txID, err)
	}
	if status == http.StatusOK {
		if err := json.Unmarshal(answer, &r); err != nil {
			t.Fatalf("query %s: %s: %v", txID, answer, err)
		}
	}
	return status, r
}

// await waits until the database shows n transactions of s in the state.
func (b bench) await(t *testing.T, s txmanager.Submitter, state txmanager.State, n int) {
	t.Helper()
	var have int
	err := poll(b.ctx, func() bool {
		err := b.DB.QueryRow(b.ctx, `select count(*) from managed_tx where submitter = $1 and state = $2`, s, state).Scan(&have)
		return err == nil && have >= n
	})
	if err != nil {
		t.Fatalf("transactions of %s in %s: got %d, want %d: %v", s, state, have, n, err)
	}
}

// poll waits for a condition until ctx ends.
func poll(ctx context.Context, met func() bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !met() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

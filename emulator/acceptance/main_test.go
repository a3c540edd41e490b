// Package acceptance proves the promises of the transaction manager end to end:
// real function processes, real Postgres, a real chain, the real Cloud Tasks
// client. Tests have the names that the specification gives them.
package acceptance

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
	checks "github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

func TestMain(m *testing.M) {
	acceptancetest.Main(m, "emulator/acceptance", func(bool) error { return nil }, acceptancetest.Server)
}

var (
	check    = acceptancetest.Check
	poll     = acceptancetest.Wait
	parallel = acceptancetest.Parallel
	same     = checks.Same
	says     = acceptancetest.Says

	withSettings = acceptancetest.Settings
)

func must[T any](v T, err error) func(testing.TB) T { return acceptancetest.Must(v, err) }

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	checks.Equal(t, what, got, want)
}

// bench is a running stack with direct access to its database and chain.
type bench struct {
	*acceptancetest.Deployment
	ctx context.Context
	turn
}

// turn is the part of a test that has a stack after others; see [inTurn].
type turn struct {
	first, number int    // of its submitters; number 0: the test has the stack alone
	block         uint64 // the chain's first block of this turn
}

func (b bench) Submitters() []txmanager.Submitter {
	all := b.Stack.Submitters()
	if b.number == 0 {
		return all
	}
	return all[b.first : b.first+b.number]
}

// setup starts a stack for t with few submitters, two processes and quick blocks. Only the test runs the sweep.
func setup(t testing.TB, o stack.Options) bench {
	t.Helper()
	o.BlockTime, o.SweepEvery = cmp.Or(o.BlockTime, 250*time.Millisecond), cmp.Or(o.SweepEvery, -1)
	o.Submitters, o.Processes = cmp.Or(o.Submitters, 2), cmp.Or(o.Processes, 2)
	ctx, cancel := context.WithTimeout(t.Context(), acceptancetest.Within)
	t.Cleanup(cancel)
	return bench{Deployment: acceptancetest.StartFor(ctx, t, o), ctx: ctx}
}

// transfer returns an intent that sends one wei to an unused address.
func transfer(s txmanager.Submitter, requestID string) map[string]any {
	return map[string]any{
		"submitter": s, "requestId": requestID,
		"payload": map[string]any{"to": "0x00000000000000000000000000000000000cafe0", "value": "1"},
	}
}

func (b bench) post(t *testing.T, intent map[string]any) (status int, txID string) {
	t.Helper()
	a := b.call(t, stack.CallerAccount, http.MethodPost, "/api/v1/tx", intent)
	check(t, a.err, "post", intent["requestId"])
	var body struct{ TxID string }
	if a.status < 300 {
		check(t, json.Unmarshal([]byte(a.text), &body), a.text)
	}
	return a.status, body.TxID
}

// wantPost posts the intent, and checks the answer's status, and its txId if one is given.
func (b bench) wantPost(t *testing.T, what string, intent map[string]any, status int, known ...string) {
	t.Helper()
	if got, txID := b.post(t, intent); got != status || len(known) > 0 && txID != known[0] {
		t.Errorf("%s: got %d %s, want %d %v", what, got, txID, status, known)
	}
}

// inFlight stops mining, posts the intent, and waits until it is sent.
func (b bench) inFlight(t *testing.T, intent map[string]any) (txID string) {
	t.Helper()
	b.Chain.StopMining()
	txID = b.postUntilAnswered(t, intent)
	b.await(t, intent["submitter"].(txmanager.Submitter), txmanager.Tracking, 1)
	return txID
}

// postMany posts n intents, r-0 to r-(n-1).
func (b bench) postMany(t *testing.T, s txmanager.Submitter, n int) {
	t.Helper()
	for i := range n {
		b.postUntilAnswered(t, transfer(s, fmt.Sprintf("r-%d", i)))
	}
}

func (b bench) each(n int) map[txmanager.Submitter]int {
	all := make(map[txmanager.Submitter]int)
	for _, s := range b.Submitters() {
		all[s] = n
	}
	return all
}

type answered struct {
	t      *testing.T
	status int
	text   string
	err    error
}

func (b bench) call(t *testing.T, account, method, path string, body any) answered {
	status, text, err := b.Call(b.ctx, account, method, path, body)
	return answered{t, status, string(text), err}
}

// want checks the answer's status, and that it has each of the texts.
func (a answered) want(what string, status int, texts ...string) {
	a.t.Helper()
	missing := func(text string) bool { return !strings.Contains(a.text, text) }
	if a.err != nil || a.status != status || slices.ContainsFunc(texts, missing) {
		a.t.Errorf("%s: got %d %s, %v; want %d with %q", what, a.status, a.text, a.err, status, texts)
	}
}

// need ends the test unless the answer has this status.
func (a answered) need(what string, status int) {
	a.t.Helper()
	if a.want(what, status); a.err != nil || a.status != status {
		a.t.FailNow()
	}
}

// decode reads an answer with status 200.
func (a answered) decode(into any) {
	a.t.Helper()
	a.need("an answer to read", http.StatusOK)
	check(a.t, json.Unmarshal([]byte(a.text), into), a.text)
}

// repeat repeats a call while the answer asks for that.
func (b bench) repeat(t *testing.T, what string, make func() answered, again func(a answered) bool) (status int, text string) {
	t.Helper()
	var a answered
	err := poll(b.ctx, func() bool {
		a = make()
		return a.err == nil && !strings.Contains(a.text, "NOT_LEADER") && !again(a)
	})
	if err != nil {
		t.Errorf("%s: never answered, at last %d %s, %v", what, a.status, a.text, a.err)
	}
	return a.status, a.text
}

type record struct {
	TxID, RequestID, State string
	SubState, TxHash       *string
	LastError              *string
	Nonce                  *uint64
	Receipt                json.RawMessage
	Confirmations          []struct{ Number uint64 }
}

func (b bench) ask(t *testing.T, account, txID string) (status int, r record) {
	t.Helper()
	a := b.call(t, account, http.MethodGet, "/api/v1/tx/"+txID, nil)
	if check(t, a.err, "query", txID); a.status == http.StatusOK {
		a.decode(&r)
	}
	return a.status, r
}

// becomes waits until the transaction is as wanted, and returns it.
func (b bench) becomes(t *testing.T, txID, what string, met func(record) bool) (r record) {
	t.Helper()
	if err := poll(b.ctx, func() bool { _, r = b.ask(t, stack.OperatorAccount, txID); return met(r) }); err != nil {
		t.Fatalf("%s: got %s %s %s, want it %s: %v", txID, r.State, text(r.SubState), text(r.LastError), what, err)
	}
	return r
}

func (b bench) wantState(t *testing.T, what, txID, want string) {
	t.Helper()
	if _, r := b.ask(t, stack.OperatorAccount, txID); r.State != want {
		t.Errorf("%s: got %s %s %s, want %s", what, r.State, text(r.SubState), text(r.LastError), want)
	}
}

// wantPlaceholder checks that a placeholder took the transaction's nonce, and the reason.
func (b bench) wantPlaceholder(t *testing.T, what, txID, reason string) {
	t.Helper()
	if _, r := b.ask(t, stack.OperatorAccount, txID); r.State != "FAILED" || text(r.SubState) != "PLACEHOLDER" || !strings.Contains(text(r.LastError), reason) {
		t.Errorf("%s: got %s %s %s, want FAILED PLACEHOLDER for %q", what, r.State, text(r.SubState), text(r.LastError), reason)
	}
}

// await waits until the database shows n transactions of s in the state.
func (b bench) await(t *testing.T, s txmanager.Submitter, state txmanager.State, n int) {
	t.Helper()
	have := 0
	err := poll(b.ctx, func() bool {
		have = b.count(`select count(*) from managed_tx where submitter = $1 and state = $2`, s, state)
		return have >= n
	})
	if err != nil {
		t.Fatalf("transactions of %s in %s: got %d, want %d: %v", s, state, have, n, err)
	}
}

// until waits for the condition. The text is the message of a test that waits in vain.
func (b bench) until(t *testing.T, wrong string, met func() bool) {
	t.Helper()
	check(t, poll(b.ctx, met), wrong)
}

// swept waits for the condition, and runs the sweep every five seconds meanwhile.
func (b bench) swept(t *testing.T, wrong string, met func() bool) {
	t.Helper()
	lastSweep := time.Now()
	b.until(t, wrong, func() bool {
		if time.Since(lastSweep) > 5*time.Second {
			_ = b.RunSweep(b.ctx) // a failed sweep is repeated
			lastSweep = time.Now()
		}
		return met()
	})
}

// count returns the result of a counting query; -1 if it fails.
func (b bench) count(query string, args ...any) (n int) {
	if err := b.DB.QueryRow(b.ctx, query, args...).Scan(&n); err != nil {
		return -1
	}
	return n
}

func (b bench) awaitCount(t *testing.T, wrong string, want int, query string, args ...any) {
	t.Helper()
	b.until(t, wrong, func() bool { return b.count(query, args...) == want })
}

func (b bench) wantCount(t *testing.T, what string, want int, query string, args ...any) {
	t.Helper()
	equal(t, what, b.count(query, args...), want)
}

// windows runs a test in each of the windows.
func windows(t *testing.T, all []int, test func(t *testing.T, window int)) {
	t.Helper()
	for _, window := range all {
		parallel(t, fmt.Sprintf("window %d", window), func(t *testing.T) { test(t, window) })
	}
}

func value[T any](t *testing.T, b bench, query string, args ...any) (v T) {
	t.Helper()
	check(t, b.DB.QueryRow(b.ctx, query, args...).Scan(&v), query)
	return v
}

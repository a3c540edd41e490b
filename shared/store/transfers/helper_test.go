package transfers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// usdt is an asset of id 1; alice and bob are users.
var usdt = transfer.Asset{ID: 1, Name: "USDT", Precision: 6, MinUnits: 1, MaxUnits: 1_000_000_000_000, Active: true, Enabled: true}

const (
	alice = 7
	bob   = 8
)

var terms = transfer.Terms{SafetyFactor: 10}

// bench is a database of one test with the transfers' tables and one asset.
type bench struct {
	storetest.Bundle
	*transfers.Store
}

func newBench(t testing.TB) bench { return benchOf(t, storetest.New(t)) }

func benchOf(t testing.TB, db storetest.Bundle) bench {
	t.Helper()
	b := bench{db, transfers.New(db.Store)}
	b.put(t, usdt)
	return b
}

func (b bench) put(t testing.TB, a transfer.Asset) {
	t.Helper()
	check.OK(t)(b.PutAsset(t.Context(), a))
}

// offer stores an asset with payout terms, and registers its payer.
func (b bench) offer(t testing.TB, a transfer.Asset) {
	t.Helper()
	b.Register(t, txmanager.Submitter(a.Payout.Submitter), 1, store.PayoutCaller)
	b.put(t, a)
}

// request is a transfer of 1.5 USDT by alice, from Funding to Spot.
func request(cid string) transfer.Request {
	amount, _ := transfer.ParseAmount("1.5")
	return transfer.Request{
		ReqID: ulid.Make().String(), CID: cid, UserID: alice,
		From: transfer.Funding, To: transfer.Spot, Asset: "USDT", Amount: amount,
	}
}

// created stores a request that must be new.
func (b bench) created(t testing.TB, r transfer.Request) transfer.Transfer {
	t.Helper()
	c, err := b.Create(t.Context(), r, terms)
	if err != nil || !c.New {
		t.Fatalf("create: got %+v, %v; want it new", c, err)
	}
	return c.Transfer
}

// at returns a new transfer in the given state.
func (b bench) at(t testing.TB, s transfer.State) transfer.Transfer {
	t.Helper()
	x := b.created(t, request(""))
	for _, step := range map[transfer.State][]transfer.Transition{
		transfer.SourcePending: {{Path: []transfer.State{0, 10}}},
		transfer.SourceDone:    {{Path: []transfer.State{0, 10, 20}}},
		transfer.TargetPending: {{Path: []transfer.State{0, 10, 20, 30}}},
		transfer.Committed:     {{Path: []transfer.State{0, 10, 20, 30, 40}}},
		transfer.Failed:        {{Path: []transfer.State{0, 10}}, {Path: []transfer.State{10, -10}, Reason: transfer.AccountFrozen}},
		transfer.Compensating:  {{Path: []transfer.State{0, 10, 20, 30}}, {Path: []transfer.State{30, -20}, Reason: transfer.AccountDisabled}},
		transfer.RolledBack:    {{Path: []transfer.State{0, 10, 20, 30}}, {Path: []transfer.State{30, -20}, Reason: transfer.AccountDisabled}, {Path: []transfer.State{-20, -30}}},
	}[s] {
		step.ReqID = x.ReqID
		m, err := b.Move(t.Context(), step)
		if err != nil || !m.Done {
			t.Fatalf("move along %v: got %+v, %v; want it done", step.Path, m, err)
		}
		x = m.Now
	}
	return x
}

// blocked makes the call in the background, and returns once its statement that contains the fragment waits for a lock.
func (b bench) blocked(t testing.TB, fragment string, call func() error) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	b.AwaitBlocked(t, fragment)
	return ended
}

// second is the error of a call with one other result.
func second[T any](_ T, err error) error { return err }

// states returns the history of a transfer, as ids.
func (b bench) states(t testing.TB, reqID string) string {
	t.Helper()
	story := check.Value(b.Why(t.Context(), reqID))(t)
	var all []string
	for _, h := range story.History {
		all = append(all, fmt.Sprint(int16(h.State)))
	}
	return strings.Join(all, " ")
}

// value returns the only value of a query.
func value[T any](t testing.TB, b bench, query string, args ...any) (v T) {
	t.Helper()
	if err := b.DB.QueryRow(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// vault is a ledger in memory that fulfils the contract: each (req_id, op) once, with a permanent
// answer. Answers can be refused or lost.
type vault struct {
	mu     sync.Mutex
	stored map[string]transfer.Outcome // by op and req_id
	moved  map[string]int              // effects by op
	asked  int
	refuse map[transfer.Op]transfer.Reason
	lose   map[transfer.Op]int // number of answers that are lost, after the effect
	drop   map[transfer.Op]int // number of calls that do not arrive
	says   transfer.Outcome    // the answer to a call that does not arrive
	before func(transfer.Op)   // called before each call, outside the lock
}

func newVault() *vault {
	return &vault{
		stored: map[string]transfer.Outcome{}, moved: map[string]int{},
		refuse: map[transfer.Op]transfer.Reason{}, lose: map[transfer.Op]int{}, drop: map[transfer.Op]int{},
		says: transfer.Outcome{Err: errLost},
	}
}

func (v *vault) Withdraw(_ context.Context, c transfer.Call) transfer.Outcome {
	return v.do(transfer.Withdraw, c)
}

func (v *vault) Deposit(_ context.Context, c transfer.Call) transfer.Outcome {
	return v.do(transfer.Deposit, c)
}

func (v *vault) Refund(_ context.Context, c transfer.Call) transfer.Outcome {
	return v.do(transfer.Refund, c)
}

var errLost = errors.New("the answer was lost")

func (v *vault) do(op transfer.Op, c transfer.Call) transfer.Outcome {
	if v.before != nil {
		v.before(op)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked++
	key := string(op) + " " + c.ReqID
	if v.drop[op] > 0 {
		v.drop[op]--
		return v.says
	}
	o, known := v.stored[key]
	if !known && op == transfer.Refund && v.stored["withdraw "+c.ReqID].Verdict != transfer.Success {
		return transfer.Outcome{Err: errors.New("nothing was withdrawn")}
	}
	if !known {
		o = transfer.Outcome{Verdict: transfer.Success}
		if reason, ok := v.refuse[op]; ok && op != transfer.Refund {
			o = transfer.Outcome{Verdict: transfer.Refused, Reason: reason}
		} else {
			v.moved[string(op)]++
		}
		v.stored[key] = o
	}
	if v.lose[op] > 0 {
		v.lose[op]--
		return transfer.Outcome{Err: errLost}
	}
	return o
}

func (v *vault) Resolve(_ context.Context, op transfer.Op, c transfer.Call) transfer.Outcome {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := string(op) + " " + c.ReqID
	if o, known := v.stored[key]; known {
		return o
	}
	if op == transfer.Refund {
		return transfer.Outcome{Err: errors.New("a refund has no refusal")}
	}
	v.stored[key] = transfer.Outcome{Verdict: transfer.Refused, Reason: transfer.ResolvedByOperator}
	return v.stored[key]
}

// effects returns the vault's effects, as "withdraw 1 deposit 0 refund 0".
func (v *vault) effects() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return fmt.Sprintf("withdraw %d deposit %d refund %d", v.moved["withdraw"], v.moved["deposit"], v.moved["refund"])
}

// rig is a coordinator over a bench, with one vault for all accounts.
type rig struct {
	bench
	*vault
	*transfer.Coordinator
	log *lines
}

func newRig(t testing.TB) rig { return rigOf(t, newBench(t), nil) }

// rigOf puts book between the coordinator and the store, if it is not nil.
func rigOf(t testing.TB, b bench, book transfer.Store) rig {
	t.Helper()
	if book == nil {
		book = b.Store
	}
	r := rig{bench: b, vault: newVault(), log: &lines{}}
	return r.over(t, book, r.vault)
}

// over is the rig with another book, and with one ledger for all accounts.
func (r rig) over(t testing.TB, book transfer.Store, ledger transfer.Ledger) rig {
	t.Helper()
	all := map[transfer.AccountType]transfer.Ledger{transfer.Funding: ledger, transfer.Spot: ledger, transfer.Chain: ledger}
	r.Coordinator = check.Value(transfer.New(book, r.Store, all, transfer.DefaultRules(), telemetry.NewLogger(r.log, slog.LevelDebug, "")))(t)
	return r
}

// drive drives the transfer and requires the wanted state.
func (r rig) drive(t testing.TB, reqID string, want transfer.State) transfer.Transfer {
	t.Helper()
	got, err := r.Drive(t.Context(), reqID)
	if err != nil || got.State != want {
		t.Fatalf("drive: got %s (%s), %v; want %s", got.State, got.LastUnknown, err, want)
	}
	return got
}

// lines is a log that tests can read.
type lines struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

// severities returns those of each line with the field, in order.
func (l *lines) severities(field string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for line := range strings.SplitSeq(strings.TrimSpace(l.String()), "\n") {
		var record map[string]any
		if json.Unmarshal([]byte(line), &record) == nil && record[field] != nil {
			all = append(all, fmt.Sprint(record["severity"]))
		}
	}
	return strings.Join(all, " ")
}

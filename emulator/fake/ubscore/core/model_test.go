package core_test

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/book"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/core"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/transfer"
)

// clock is set by the test.
type clock struct {
	mu     sync.Mutex
	now    time.Time
	passed time.Duration
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// pass advances the clock and the uptime; add only sets the clock.
func (c *clock) pass(d time.Duration) {
	c.add(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passed += d
}

func (c *clock) Elapsed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.passed
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// model is the rules again in their simplest form: maps, and a list of all answers.
type model struct {
	balances map[book.AccountKey]uint64
	statuses map[book.AccountKey]book.Status
	assets   map[int32]uint8
	answers  map[string]remembered // by kind and reqId; never forgotten
}

type remembered struct {
	request book.Request
	reason  transfer.Reason
}

func name(r book.Request) string { return fmt.Sprint(r.Kind, r.ReqID) }

// evaluate returns the refusal of the request, and whether the result is known.
func (m *model) evaluate(r book.Request, resolve bool) (reason transfer.Reason, known bool) {
	k := book.AccountKey{UserID: r.UserID, AssetID: r.AssetID}
	balance, exists := m.balances[k]
	_, asset := m.assets[r.AssetID]
	overflow := new(big.Int).Add(new(big.Int).SetUint64(balance), new(big.Int).SetUint64(r.Units)).Cmp(new(big.Int).SetUint64(math.MaxUint64)) > 0
	taking := r.Kind == book.Withdraw || r.Kind == book.OutsideWithdrawal
	switch {
	case r.Kind == book.Refund:
		taken := r
		taken.Kind = book.Withdraw
		before, ok := m.answers[name(taken)]
		return "", !resolve && ok && before.reason == "" && before.request == taken && !overflow
	case resolve:
		return transfer.ResolvedByOperator, true
	case r.Kind == book.AddAsset && (r.AssetID <= 0 || asset && m.assets[r.AssetID] != r.Precision):
		return transfer.InvalidAsset, true
	case r.Kind == book.AddAsset:
		return "", true
	case r.Units == 0 && r.Kind != book.SetStatus:
		return transfer.InvalidAmount, true
	case r.UserID <= 0:
		return transfer.InvalidUser, true
	case !asset:
		return transfer.InvalidAsset, true
	case r.Kind == book.SetStatus && !exists:
		return transfer.TargetAccountNotFound, true
	case r.Kind == book.SetStatus:
		return "", true
	case taking && !exists:
		return transfer.SourceAccountNotFound, true
	case taking && m.statuses[k] == book.Frozen:
		return transfer.AccountFrozen, true
	case m.statuses[k] == book.Disabled:
		return transfer.AccountDisabled, true
	case taking && balance < r.Units:
		return transfer.InsufficientBalance, true
	case !taking && overflow:
		return transfer.Overflow, true
	}
	return "", true
}

func (m *model) effect(r book.Request) {
	k := book.AccountKey{UserID: r.UserID, AssetID: r.AssetID}
	switch r.Kind {
	case book.AddAsset:
		m.assets[r.AssetID] = r.Precision
	case book.SetStatus:
		m.statuses[k] = r.Status
	case book.Withdraw, book.OutsideWithdrawal:
		m.balances[k] -= r.Units
	default:
		m.balances[k] += r.Units
		if m.statuses[k] == 0 {
			m.statuses[k] = book.Active
		}
	}
}

// machine is a core beside its model.
type machine struct {
	options  core.Options
	clock    *clock
	core     *core.Core
	model    model
	requests []book.Request
	created  map[string]book.Micros // by reqId: a transfer sends the same time with each attempt
}

func (m *machine) request(t *rapid.T) book.Request {
	r := book.Request{
		Kind:    book.Kind(rapid.IntRange(int(book.Withdraw), int(book.AddAsset)).Draw(t, "kind")),
		AssetID: rapid.Int32Range(0, 3).Draw(t, "asset"),
		ReqID:   fmt.Sprintf("r-%d", rapid.IntRange(0, 60).Draw(t, "reqId")),
	}
	age := time.Duration(rapid.Int64Range(0, 3*int64(m.options.Horizon)).Draw(t, "age"))
	if m.created[r.ReqID] == 0 {
		m.created[r.ReqID] = book.MicrosOf(m.clock.Now().Add(-age))
	}
	r.CreatedAt = m.created[r.ReqID]
	switch r.Kind {
	case book.AddAsset:
		r.Precision = uint8(rapid.IntRange(6, 7).Draw(t, "precision"))
		return r
	case book.SetStatus:
		r.Status = book.Status(rapid.IntRange(1, 3).Draw(t, "status"))
	default:
		r.Units = rapid.OneOf(rapid.Uint64Range(0, 9), rapid.Just(uint64(math.MaxUint64-3))).Draw(t, "units")
	}
	r.UserID = rapid.Int64Range(0, 2).Draw(t, "user")
	return r
}

// contradicting returns another request under the same key.
func contradicting(r book.Request) book.Request {
	switch r.Kind {
	case book.AddAsset:
		r.Precision ^= 1
	case book.SetStatus:
		r.Status = r.Status%book.Disabled + 1
	default:
		r.Units++
	}
	return r
}

// ask sends a new, repeated or contradicting request, and checks the answer against the model.
func (m *machine) ask(t *rapid.T) {
	r := m.request(t)
	if len(m.requests) > 0 && rapid.Bool().Draw(t, "known") {
		before := rapid.SampledFrom(m.requests).Draw(t, "before")
		switch rapid.IntRange(0, 3).Draw(t, "how") {
		case 0:
			before = contradicting(before)
		case 1, 2:
			if before.Kind == book.Withdraw {
				before.Kind = book.Refund
			}
		}
		r = before
	}
	m.requests = append(m.requests, r)
	resolve := rapid.IntRange(0, 9).Draw(t, "resolve") == 0
	do := m.core.Do
	if resolve {
		do = m.core.Resolve
	}
	got, err := do(t.Context(), r)
	m.compare(t, r, resolve, got, err)
}

func (m *machine) compare(t *rapid.T, r book.Request, resolve bool, got book.Entry, err error) {
	stored, known := m.model.answers[name(r)]
	old := r.CreatedAt < book.MicrosOf(m.clock.Now().Add(-m.options.Horizon))
	ahead := r.CreatedAt > book.MicrosOf(m.clock.Now().Add(time.Hour))
	switch {
	case errors.Is(err, book.ErrBeyondHorizon):
		if !old {
			t.Fatalf("%+v: got %v for something young", r, err)
		}
		return
	case known && stored.request != r:
		if !errors.Is(err, book.ErrContradiction) {
			t.Fatalf("%+v under the key of %+v: got %+v, %v; want a contradiction", r, stored.request, got, err)
		}
		return
	case known:
		if err != nil || got.Request != r || got.Refused != stored.reason {
			t.Fatalf("%+v again: got %+v, %v; want refused %q", r, got, err, stored.reason)
		}
		return
	case ahead:
		if !errors.Is(err, book.ErrAhead) {
			t.Fatalf("%+v is of the future: got %+v, %v; want %v", r, got, err, book.ErrAhead)
		}
		return
	}
	reason, decided := m.model.evaluate(r, resolve)
	if !decided {
		if err == nil {
			t.Fatalf("%+v: got %+v, want unknown", r, got)
		}
		return
	}
	if err != nil || got.Refused != reason || got.Request != r {
		t.Fatalf("%+v (resolve %v): got %+v, %v; want refused %q", r, resolve, got, err, reason)
	}
	m.model.answers[name(r)] = remembered{r, reason}
	if reason == "" {
		m.model.effect(r)
	}
}

// check compares the balances of core and model, and both with the sum of the journal.
func (m *machine) check(t *rapid.T) {
	view := check.Value(m.core.NewView(t.Context()))(t)
	balances, statuses := map[book.AccountKey]uint64{}, map[book.AccountKey]book.Status{}
	for _, b := range view.Balances {
		balances[b.AccountKey], statuses[b.AccountKey] = b.Units, b.Status
	}
	check.Same(t, "balances", balances, m.model.balances)
	check.Same(t, "statuses", statuses, m.model.statuses)
	check.Same(t, "balances and the sum of the journal", sum(t, m.core, view.Seq), balances)
}

// sum adds up the journal up to exactly the line.
func sum(t check.TB, c *core.Core, until uint64) map[book.AccountKey]uint64 {
	all := map[book.AccountKey]uint64{}
	for after := uint64(0); after < until; {
		entries, _, err := journal(c, after, 7)
		if err != nil || len(entries) == 0 {
			t.Fatalf("journal after %d: got %d lines, %v", after, len(entries), err)
		}
		for _, e := range entries {
			after++
			k := book.AccountKey{UserID: e.UserID, AssetID: e.AssetID}
			switch op := e.Kind.Op(); {
			case e.Seq != after:
				t.Fatalf("got line %d, want %d", e.Seq, after)
			case e.Refused != "" || e.Units == 0 || after > until || !op.Counts():
			case op.Credits():
				all[k] += e.Units
			default:
				all[k] -= e.Units
			}
		}
	}
	return all
}

func (m *machine) open(t *rapid.T) {
	c, err := core.Open(m.options)
	if err != nil || c.Halted() != nil {
		t.Fatalf("open: got %v, halted %v", err, c.Halted())
	}
	m.core = c
}

// Through any number of restarts, snapshots and prunings a core answers as the simple model does. A
// forgotten key gets no answer.
func TestCoreAnswersLikeTheModel(t *testing.T) {
	t.Parallel()
	folders := t.TempDir()
	var n int
	rapid.Check(t, func(t *rapid.T) {
		n++
		clock := &clock{now: epoch}
		m := &machine{clock: clock, created: map[string]book.Micros{}, options: core.Options{
			Folder: filepath.Join(folders, fmt.Sprint(n)), Horizon: time.Hour, Now: clock.Now, Elapsed: clock.Elapsed, Log: quiet,
			SegmentBytes: 600, SnapshotEvery: rapid.IntRange(3, 40).Draw(t, "snapshotEvery"),
		}, model: model{map[book.AccountKey]uint64{}, map[book.AccountKey]book.Status{}, map[int32]uint8{}, map[string]remembered{}}}
		m.open(t)
		defer func() { _ = m.core.Close() }()
		for asset := range int32(2) {
			r := book.Request{Kind: book.AddAsset, AssetID: asset + 1, Precision: 6, ReqID: fmt.Sprint("first-", asset), CreatedAt: book.MicrosOf(epoch)}
			got, err := m.core.Do(t.Context(), r)
			m.compare(t, r, false, got, err)
		}
		ask := func(t *rapid.T) { m.ask(t) }
		t.Repeat(map[string]func(*rapid.T){
			"ask": ask, "ask too": ask, "ask more": ask, "ask again": ask,
			"time": func(t *rapid.T) { clock.pass(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "passes"))) },
			"clock set back": func(t *rapid.T) {
				clock.add(-time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "set back")))
			},
			"clock wrong for a moment": func(t *rapid.T) {
				ahead := time.Duration(rapid.Int64Range(0, int64(50*time.Hour)).Draw(t, "ahead"))
				clock.add(ahead)
				for range rapid.IntRange(1, 50).Draw(t, "asked") {
					m.ask(t)
				}
				clock.add(-ahead)
			},
			"restart": func(t *rapid.T) {
				check.OK(t)(m.core.Close())
				m.open(t)
			},
			"check": func(t *rapid.T) { m.check(t) },
		})
		m.check(t)
	})
}

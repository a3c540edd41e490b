package conservation_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/ledger/funding"
	book "github.com/fencepost/fencepost/shared/store/conservation"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/transfer"
)

// gold and iron are the assets of the tests.
const (
	gold = int32(1) // two decimals
	iron = int32(2) // none
)

const alice, bob = int64(7), int64(8)

// world is two real ledgers on separate databases, the transfers between them, and a monitor.
type world struct {
	conservation.Monitor
	t             testing.TB
	main, other   storetest.Bundle
	funding, spot *funding.Ledger
	log           *buffer
	next          atomic.Int64
	counting      sync.Mutex
	counted       map[string]int // checks, by their result
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldOf(t, storetest.New(t), storetest.New(t))
}

// cleanWorld is a world with transfers of every kind, which both kinds of check have read.
func cleanWorld(t testing.TB) *world {
	t.Helper()
	w := newWorld(t)
	w.history()
	w.clean()
	return w
}

func newWorldOf(t testing.TB, main, other storetest.Bundle) *world {
	t.Helper()
	w := &world{t: t, main: main, other: other, log: new(buffer), counted: map[string]int{}}
	w.funding, w.spot = funding.New(w.main.DB), funding.New(w.other.DB)
	w.Monitor = conservation.Monitor{
		Book: book.New(w.main.DB), Funding: w.funding, Trading: w.spot, Mode: conservation.HaltAll,
		Log: telemetry.NewLogger(w.log, slog.LevelInfo, ""), Critical: telemetry.LevelCritical,
		Count: func(_ context.Context, result string) {
			w.counting.Lock()
			defer w.counting.Unlock()
			w.counted[result]++
		},
	}
	for _, db := range []storetest.Bundle{w.main, w.other} {
		for asset, name := range map[int32]string{gold: "GOLD", iron: "IRON"} {
			db.Run(t, `insert into assets_tb (asset_id, asset, precision, min_transfer_amount, max_transfer_amount)
				values ($1, $2, $3, 1, 1000000)`, asset, name, 2*(int(iron)-int(asset)))
		}
	}
	return w
}

// value returns the only value of a query.
func value[T any](t testing.TB, db storetest.Bundle, query string, args ...any) (v T) {
	t.Helper()
	if err := db.DB.QueryRow(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// fund credits users from outside, on both sides, in both assets.
func (w *world) fund(users ...int64) {
	w.t.Helper()
	for _, user := range users {
		for _, asset := range []int32{gold, iron} {
			for _, l := range []*funding.Ledger{w.funding, w.spot} {
				c := transfer.Call{ReqID: fmt.Sprintf("funds of %d in %d", user, asset), UserID: user, AssetID: asset, Units: 100_000}
				if o := l.OutsideDeposit(w.t.Context(), c); o.Verdict != transfer.Success {
					w.t.Fatalf("fund: %+v", o)
				}
			}
		}
	}
}

// moving is an open transfer.
type moving struct {
	w              *world
	kind           transfer.Type
	call           transfer.Call
	source, target *funding.Ledger
}

// insert stores a transfer's row without any call.
func (w *world) insert(kind transfer.Type, user int64, asset int32, units uint64) moving {
	w.t.Helper()
	m := moving{w: w, kind: kind, source: w.funding, target: w.spot,
		call: transfer.Call{ReqID: fmt.Sprintf("%026d", w.next.Add(1)), UserID: user, AssetID: asset, Units: units}}
	if kind == transfer.SpotToFunding {
		m.source, m.target = w.spot, w.funding
	}
	w.main.Run(w.t, `insert into transfers_tb (req_id, user_id, asset_id, precision, amount, transfer_type, source_type)
		select $1, $2, asset_id, precision, $4::bigint * 10::numeric ^ -precision, $5, $5 from assets_tb where asset_id = $3`,
		m.call.ReqID, user, asset, units, kind)
	return m
}

// to moves the row along the path.
func (m moving) to(path ...transfer.State) {
	m.w.t.Helper()
	for _, state := range path {
		m.w.main.Run(m.w.t, `update transfers_tb set state = $2::smallint,
			error_message = case when $2::smallint in (-10, -20) then 'ACCOUNT_DISABLED' else error_message end where req_id = $1`, m.call.ReqID, state)
	}
}

func (m moving) withdraw() transfer.Outcome { return m.source.Withdraw(m.w.t.Context(), m.call) }
func (m moving) deposit() transfer.Outcome  { return m.target.Deposit(m.w.t.Context(), m.call) }
func (m moving) refund() transfer.Outcome   { return m.source.Refund(m.w.t.Context(), m.call) }

// must requires a successful call.
func (m moving) must(o transfer.Outcome) {
	m.w.t.Helper()
	if o.Verdict != transfer.Success {
		m.w.t.Fatalf("%s: got %+v, want Success", m.call.ReqID, o)
	}
}

// withdrawn returns a transfer that waits for its target.
func (w *world) withdrawn(kind transfer.Type, user int64, asset int32, units uint64) moving {
	w.t.Helper()
	m := w.insert(kind, user, asset, units)
	m.to(transfer.SourcePending)
	m.must(m.withdraw())
	m.to(transfer.SourceDone, transfer.TargetPending)
	return m
}

// committed returns a completed transfer.
func (w *world) committed(kind transfer.Type, user int64, asset int32, units uint64) moving {
	w.t.Helper()
	m := w.withdrawn(kind, user, asset, units)
	m.must(m.deposit())
	m.to(transfer.Committed)
	return m
}

// rolledBack returns a refunded transfer.
func (w *world) rolledBack(kind transfer.Type, user int64, asset int32, units uint64) moving {
	w.t.Helper()
	m := w.withdrawn(kind, user, asset, units)
	m.to(transfer.Compensating)
	m.must(m.refund())
	m.to(transfer.RolledBack)
	return m
}

// history makes transfers of every kind, all correct.
func (w *world) history() {
	w.t.Helper()
	w.fund(alice, bob)
	for _, kind := range []transfer.Type{transfer.FundingToSpot, transfer.SpotToFunding} {
		w.committed(kind, alice, gold, 10)
		w.committed(kind, bob, iron, 20)
		w.rolledBack(kind, bob, gold, 30)
		w.withdrawn(kind, alice, iron, 40)
		m := w.insert(kind, bob, gold, 1)
		m.to(transfer.SourcePending)
		m.must(m.withdraw())
	}
	failed := w.insert(transfer.FundingToSpot, alice, gold, 1_000_000_000)
	failed.to(transfer.SourcePending)
	if o := failed.withdraw(); o.Reason != transfer.InsufficientBalance {
		w.t.Fatalf("got %+v, want INSUFFICIENT_BALANCE", o)
	}
	failed.to(transfer.Failed)
}

// check runs the monitor and requires a verdict.
func (w *world) check(full bool) conservation.Report {
	w.t.Helper()
	r := check.Value(w.Check(w.t.Context(), full))(w.t)
	return r
}

// clean requires both kinds of check to find nothing.
func (w *world) clean() {
	w.t.Helper()
	for _, full := range []bool{false, true} {
		if r := w.check(full); len(r.Found) > 0 || len(r.Halts) > 0 {
			w.t.Fatalf("a healthy system (full: %t): got %v and halts %v, want none", full, r.Found[:min(5, len(r.Found))], r.Halts)
		}
	}
}

// kinds returns the kinds of the findings, each once.
func kinds(found []conservation.Finding) []conservation.Kind {
	all := []conservation.Kind{}
	for _, f := range found {
		all = append(all, f.Kind)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// halts returns the number of open halts.
func (w *world) halts() int {
	w.t.Helper()
	return value[int](w.t, w.main, `select count(*) from transfer_halt where resumed_at is null`)
}

// resume resumes as an operator who has checked everything.
func (w *world) resume() {
	w.t.Helper()
	w.main.Run(w.t, `update transfer_halt set resumed_at = clock_timestamp(), resumed_by = 'an operator', resume_reason = 'looked' where resumed_at is null`)
}

// buffer is a log with concurrent writers.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// lines returns the number of lines that contain all parts.
func (b *buffer) lines(parts ...string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.b.String()) {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			n++
		}
	}
	return n
}

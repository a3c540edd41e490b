package transfers_test

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/funding"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/transfer"
)

// 32 concurrent callers share round trips and commits: at most one of each a transfer, where one caller
// needs five. The balances are exact, for many users and for one.
func TestConcurrentTransfersShareRoundTrips(t *testing.T) {
	t.Parallel()
	const callers, each = 32, 12
	for _, users := range []int64{20, 1} {
		r := newRig(t)
		ledger := funding.NewInLane(r.Pool(), r.Store.Lane())
		for user := range users {
			o := ledger.OutsideDeposit(t.Context(), transfer.Call{ReqID: fmt.Sprint("funds-", user), UserID: user + 1, AssetID: 1, Units: 1_500_000 * callers * each})
			check.Equal(t, "deposit", o.Verdict, transfer.Success)
		}
		all := map[transfer.AccountType]transfer.Ledger{transfer.Funding: ledger, transfer.Spot: r.vault}
		c := check.Value(transfer.New(r.Store, r.Store, all, transfer.DefaultRules(), telemetry.NewLogger(r.log, slog.LevelError, "")))(t)
		ctx := telemetry.WithMeter(t.Context())
		var group sync.WaitGroup
		for i := range callers {
			group.Go(func() {
				for n := range each {
					q := request("")
					q.UserID = int64(i*each+n)%users + 1
					if got, err := c.Submit(ctx, q, terms); err != nil || got.State != transfer.Committed {
						t.Errorf("submit: got %s (%s), %v", got.State, got.LastUnknown, err)
					}
				}
			})
		}
		group.Wait()
		if got := telemetry.MeterFrom(ctx).Cost(); got.SQLRoundTrips > callers*each || got.Commits > callers*each {
			t.Errorf("%d users: got %+v for %d transfers, want one round trip and one commit each at most", users, got, callers*each)
		}
		const want = `select sum(available)::text from balances_tb`
		check.Equal(t, "balances", value[string](t, r.bench, want), fmt.Sprintf("%d.00000000", 15*callers*each*(users-1)/10))
		check.Equal(t, "committed", value[int](t, r.bench, `select count(*) from transfers_tb where state = 40`), callers*each)
		check.Equal(t, "history", value[int](t, r.bench, `select count(*) from transfer_history`), callers*each*5)
		check.Equal(t, "transitions that do not continue the one before", value[int](t, r.bench, `
			select count(*) from (select from_state, lag(state) over (partition by transfer_id order by id) as before from transfer_history) as h
			 where from_state is distinct from before`), 0)
	}
}

// twin is one transfer twice: in the two sets of transfers of [TestWritesTogetherEqualWritesOneAfterAnother].
type twin [2]string

// Writes of one transaction have the results and rows of the same writes made one after another.
// Among them are transitions and postponements that fit or do not, expired ones, and creates with
// known cids.
func TestWritesTogetherEqualWritesOneAfterAnother(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	user := int64(1000)
	rapid.Check(t, func(rt *rapid.T) {
		user += 2
		var twins []twin
		for range rapid.IntRange(1, 6).Draw(rt, "transfers") {
			s := rapid.SampledFrom(transfer.States()).Draw(rt, "state")
			twins = append(twins, twin{b.at(t, s).ReqID, b.at(t, s).ReqID})
		}
		var pairs [][2]any
		for _, x := range twins {
			if w := drawWrite(rt); w != nil {
				pairs = append(pairs, [2]any{w(x[0]), w(x[1])})
			}
		}
		cid := fmt.Sprint("c-", user)
		for n := range rapid.IntRange(0, 3).Draw(rt, "creates") { // of one cid: the first that is not refused is stored
			a := transfers.Creation{Request: request(cid), Terms: terms}
			a.Request.UserID = user
			a.Request.Amount = amount(t, rapid.SampledFrom([]string{"1.5", "1.5", "2", "0.0000001"}).Draw(rt, fmt.Sprint("amount ", n)))
			if a.Request.Amount.Decimals() > usdt.Precision { // refused; with a cid it would find what another one has stored
				a.Request.CID = ""
			}
			other := a
			other.Request.UserID, other.Request.ReqID = user+1, request("").ReqID
			pairs = append(pairs, [2]any{a, other})
		}
		together, single := make([]any, len(pairs)), make([]any, len(pairs))
		for i, p := range pairs {
			together[i], single[i] = p[0], p[1]
		}
		got, alone, err := b.Together(t.Context(), together)
		if err != nil {
			rt.Fatalf("together: %v", err)
		}
		for i, w := range single {
			want, _, err := b.Together(t.Context(), []any{w})
			if alone[i] {
				got[i] = check.Value(first(b.Together(t.Context(), together[i:i+1])))(t)
			}
			_, isCreate := w.(transfers.Creation)
			if err != nil && !isCreate || got[i].Done != want[0].Done || got[i].Now.State != want[0].Now.State || got[i].Now.Reason != want[0].Now.Reason ||
				got[i].Now.RetryCount != want[0].Now.RetryCount || got[i].Now.Units != want[0].Now.Units || got[i].Now.Failures != want[0].Now.Failures {
				rt.Fatalf("write %d, %+v: got %+v together, %+v alone, %v", i, w, got[i], want[0], err)
			}
		}
		for _, x := range twins {
			if a, b := b.states(t, x[0]), b.states(t, x[1]); a != b {
				rt.Fatalf("states: got %s together, %s one after another", a, b)
			}
		}
	})
}

func first(all []transfer.TransitionResult, _ []bool, err error) (transfer.TransitionResult, error) {
	if err != nil || len(all) == 0 {
		return transfer.TransitionResult{}, err
	}
	return all[0], nil
}

// drawWrite returns a write of a transfer; nil: none.
func drawWrite(rt *rapid.T) func(reqID string) any {
	switch rapid.IntRange(0, 3).Draw(rt, "write") {
	case 0:
		after := rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(rt, "init timeout")
		return func(reqID string) any { return transfers.Start{ReqID: reqID, InitTimeout: after} }
	case 1:
		path := rapid.SampledFrom([][]transfer.State{{0, 10}, {10, 20}, {10, 20, 30}, {20, 30}, {0, 10, 20, 30}, {30, 40}, {10, -10}, {30, -20}, {-20, -30}}).Draw(rt, "path")
		reason := transfer.Reason("")
		if end := path[len(path)-1]; end == transfer.Failed || end == transfer.Compensating {
			reason = transfer.AccountDisabled
		}
		return func(reqID string) any { return transfer.Transition{ReqID: reqID, Path: path, Reason: reason} }
	case 2:
		p := transfer.Postponement{
			State: rapid.SampledFrom([]transfer.State{10, 30, -20}).Draw(rt, "of"), RetryCount: rapid.IntRange(0, 1).Draw(rt, "retry count"),
			First: time.Second, Most: time.Minute, Unknown: "lost",
		}
		return func(reqID string) any { p.ReqID = reqID; return p }
	}
	return nil
}

// Two processes write the same transfers in opposite order, and never wait for each other in a circle.
func TestOverlappingWritesDoNotDeadlock(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var ids []string
	for range 10 {
		ids = append(ids, b.at(t, transfer.SourcePending).ReqID)
	}
	ends := time.Now().Add(3 * time.Second)
	var processes sync.WaitGroup
	for p := range 2 {
		s := storetest.Open(t, storetest.Options(b.URL, storetest.Rules))
		own := transfers.New(s)
		order := slices.Clone(ids)
		if p == 1 {
			slices.Reverse(order)
		}
		processes.Go(func() {
			defer s.Close() // its sessions report their deadlocks when they end
			counts := make([]int, len(order))
			for time.Now().Before(ends) {
				all := make([]any, len(order))
				for i, id := range order {
					all[i] = transfer.Postponement{ReqID: id, State: transfer.SourcePending, RetryCount: counts[i], First: 1, Most: 1, Unknown: "x"}
				}
				got, alone, err := own.Together(t.Context(), all)
				if err != nil || slices.Contains(alone, true) {
					t.Errorf("together: got rolled back, %v; want it written", err)
					return
				}
				for i := range got {
					counts[i] = got[i].Now.RetryCount
				}
			}
		})
	}
	processes.Wait()
	check.Equal(t, "deadlocks", value[int](t, b, `select deadlocks from pg_stat_database where datname = current_database()`), 0)
}

// Moves of one transaction lock their rows in the order of the req_ids, whatever their own order is. So two
// transactions of moves never wait for each other in a circle.
func TestMovesLockInOneOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var ids []string
	var moves []any
	for range 3 {
		ids = append(ids, b.at(t, transfer.SourcePending).ReqID)
		moves = append(moves, transfer.Transition{ReqID: ids[len(ids)-1], Path: []transfer.State{10, 20, 30}})
	}
	slices.Sort(ids)
	slices.Reverse(moves)
	rival := b.Holding(t, `select from transfers_tb where req_id = $1 for update`, ids[1])
	ended := make(chan error, 1)
	go func() {
		for {
			_, alone, err := b.Together(t.Context(), moves)
			if err != nil || !slices.Contains(alone, true) {
				ended <- err
				return
			}
		}
	}()
	var free []string
	storetest.Await(t, "the moves have locked one row and wait for the next", func() bool {
		free = value[[]string](t, b, `select array(select req_id::text from transfers_tb where req_id = any ($1) order by req_id for update skip locked)`, ids)
		return len(free) == 1
	})
	check.Equal(t, "the row that is not locked", free[0], ids[2])
	rival.Do("rollback")
	check.OK(t)(0, <-ended)
}

// A write that the database refuses fails no other: the transaction is rolled back, and its writes are
// made alone.
func TestRefusedWriteFailsNoOther(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	good, bad := b.at(t, transfer.SourcePending), b.at(t, transfer.SourcePending)
	wrong := transfer.Postponement{ReqID: bad.ReqID, State: transfer.SourcePending, First: 1, Most: 1, Unknown: "not \x00 text"}
	_, alone, err := b.Together(t.Context(), []any{transfer.Transition{ReqID: good.ReqID, Path: []transfer.State{10, 20, 30}}, wrong})
	if err != nil || !alone[0] || !alone[1] {
		t.Fatalf("together: got alone %v, %v; want each to be made alone", alone, err)
	}
	check.OK(t)(b.Move(t.Context(), transfer.Transition{ReqID: good.ReqID, Path: []transfer.State{10, 20, 30}}))
	check.Equal(t, "states", b.states(t, good.ReqID), "0 10 20 30")
}

package funding_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/batch"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/funding"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Calls of one transaction equal the same calls made one after another, in answers, balances and journal:
// with too little money, repeated calls, refunds, and accounts that do not exist.
func TestCallsTogetherEqualCallsOneAfterAnother(t *testing.T) {
	t.Parallel()
	l, run := newLedger(t), 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		m := model{map[key]stored{}, map[place]*balance{}}
		for user := range rapid.Int64Range(1, 3).Draw(rt, "accounts") {
			c := transfer.Call{ReqID: fmt.Sprintf("run %d, funds of %d", run, user), UserID: user + 1 + 10*int64(run), AssetID: fine, Units: rapid.Uint64Range(1, 20).Draw(rt, "funds")}
			m.do(transfer.OutsideDeposit, c)
			succeeds(t, l.OutsideDeposit(t.Context(), c))
		}
		// Without outside deposits: those that open an account are made alone.
		ops := []transfer.Op{transfer.Withdraw, transfer.Withdraw, transfer.Deposit, transfer.Refund, transfer.OutsideWithdrawal}
		last := map[string]transfer.Call{}
		for range rapid.IntRange(1, 4).Draw(rt, "transactions") {
			if rapid.IntRange(0, 4).Draw(rt, "freeze") == 0 {
				m.set(rt, l, 1+10*int64(run))
			}
			var all []funding.Request
			for n := range 12 {
				if rapid.Bool().Draw(rt, "join") {
					all = append(all, drawRequest(rt, run, n, last, ops...))
				}
			}
			all = rapid.Permutation(all).Draw(rt, "order")
			if len(all) == 0 {
				continue
			}
			got, err := l.Together(t.Context(), all)
			if err != nil {
				rt.Fatalf("%+v: %v", all, err)
			}
			for i, r := range all {
				if want := m.do(r.Op, r.Call); got[i].Verdict != want.Verdict || got[i].Reason != want.Reason {
					rt.Fatalf("call %d of %+v: got %+v, want %+v", i, all, got[i], want)
				}
			}
		}
		m.compare(rt, l, run)
		l.replays(rt, int64(run))
	})
}

// replays checks that the journal of each account of the run, in the order of its ids, never goes below
// zero, and ends in the balance.
func (l ledger) replays(rt *rapid.T, run int64) {
	var wrong int
	err := l.db.DB.QueryRow(l.t.Context(), `
		with sums as (
		  select user_id, asset_id, id, sum(case when op_type in ('deposit', 'refund', 'outside_deposit') then amount else -amount end)
		         over (partition by user_id, asset_id order by id) as after
		    from transfer_operations where result = 'SUCCESS' and user_id / 10 = $1)
		select count(*) from sums s
		 where s.after < 0 or s.id = (select max(id) from sums x where (x.user_id, x.asset_id) = (s.user_id, s.asset_id))
		   and s.after <> (select available from balances_tb b where (b.user_id, b.asset_id) = (s.user_id, s.asset_id))`, run).Scan(&wrong)
	if err != nil || wrong > 0 {
		rt.Fatalf("journal of run %d: got %d lines that do not fit, %v", run, wrong, err)
	}
}

// Two processes whose transactions lock the same accounts, in opposite order of their calls, never wait
// for each other in a circle, and lose no call.
func TestOverlappingTransactionsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	const accounts, duration = 12, 3 * time.Second
	l := newLedger(t)
	for user := range int64(accounts) {
		l.fund(user+1, fine, 1_000_000)
	}
	ends := time.Now().Add(duration)
	made := make([]int, 2)
	var processes sync.WaitGroup
	for p := range 2 {
		s := storetest.Open(t, storetest.Options(l.db.URL, storetest.Rules))
		own := funding.New(s.Pool())
		processes.Go(func() {
			defer s.Close() // its sessions report their deadlocks when they end
			for time.Now().Before(ends) {
				var all []funding.Request
				for user := range int64(accounts) {
					all = append(all, funding.Request{Op: transfer.Withdraw, Call: transfer.Call{ReqID: fmt.Sprintf("%d %d %d", p, made[p], user), UserID: user + 1, AssetID: fine, Units: 1}})
				}
				if p == 1 {
					slices.Reverse(all)
				}
				got, err := own.Together(t.Context(), all)
				if err != nil {
					t.Error(err)
					return
				}
				for _, o := range got {
					succeeds(t, o)
				}
				made[p]++
			}
		})
	}
	processes.Wait()
	for user := range int64(accounts) {
		l.has(user+1, fine, fmt.Sprintf("0.%08d", 1_000_000-made[0]-made[1]))
	}
	var deadlocks int
	check.OK(t)(l.db.DB.QueryRow(t.Context(), `select deadlocks from pg_stat_database where datname = current_database()`).Scan(&deadlocks))
	if deadlocks > 0 || min(made[0], made[1]) == 0 {
		t.Errorf("got %d deadlocks, %v transactions; want none, and some of each", deadlocks, made)
	}
}

// An account that another session has locked delays only its own calls. The transaction that meets it is
// rolled back, and its calls are made alone.
func TestLockedAccountDelaysOnlyItsCalls(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for _, user := range []int64{alice, bob, 9} {
		l.fund(user, fine, 100)
	}
	s := storetest.Open(t, storetest.Options(l.db.URL, storetest.Rules))
	l.Ledger = funding.New(s.Pool())
	rival := l.rival()
	do(t, rival, fmt.Sprintf(`begin; select from balances_tb where user_id in (%d, 9) for update`, alice))
	answers := map[int64]chan transfer.Outcome{9: make(chan transfer.Outcome, 1), alice: make(chan transfer.Outcome, 1), bob: make(chan transfer.Outcome, 1)}
	for _, user := range []int64{9, alice, bob} { // the first is alone, and the others share the next transaction
		go func() {
			c := call(fmt.Sprint("of ", user), fine, 1)
			c.UserID = user
			answers[user] <- l.Withdraw(t.Context(), c)
		}()
		if user == 9 {
			l.awaitLock()
		}
	}
	succeeds(t, <-answers[bob])
	for _, user := range []int64{9, alice} {
		if len(answers[user]) > 0 {
			t.Errorf("user %d: got %+v while the account is locked", user, <-answers[user])
		}
	}
	do(t, rival, `commit`)
	succeeds(t, <-answers[9])
	succeeds(t, <-answers[alice])
}

// A call in a lane waits while another round trip of the lane is under way, and is made after it.
func TestACallTakesItsTurnInTheLane(t *testing.T) {
	t.Parallel()
	l, lane := newLedger(t), new(batch.Lane)
	succeeds(t, l.OutsideDeposit(t.Context(), call("funds", fine, 5)))
	began, end := make(chan bool), make(chan bool)
	other := batch.New(batch.Options[string, string]{MaxCalls: 1, Timeout: time.Minute, Lane: lane, Send: func(context.Context, []string) []batch.Result[string] {
		close(began)
		<-end
		return make([]batch.Result[string], 1)
	}})
	answered := make(chan transfer.Outcome, 1)
	go func() { _, _ = other.Do(t.Context(), "other") }()
	<-began
	go func() { answered <- funding.NewInLane(l.db.DB, lane).Withdraw(t.Context(), call("turn", fine, 5)) }()
	select {
	case o := <-answered:
		t.Errorf("a call while the lane was taken: got %+v, want none yet", o)
	case <-time.After(200 * time.Millisecond):
	}
	close(end)
	succeeds(t, <-answered)
}

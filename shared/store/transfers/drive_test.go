package transfers_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/transfer"
)

// The happy path in both directions, with the exact sequence of states, one effect of each kind, and
// every account.
func TestFSM001And002HappyPath(t *testing.T) {
	t.Parallel()
	for kind, ends := range map[transfer.Type][2]transfer.AccountType{
		transfer.FundingToSpot: {transfer.Funding, transfer.Spot}, transfer.SpotToFunding: {transfer.Spot, transfer.Funding},
	} {
		r := newRig(t)
		req := request("c-1")
		req.From, req.To = ends[0], ends[1]
		got, err := r.Submit(t.Context(), req, terms)
		if err != nil || !got.New || got.State != transfer.Committed || got.Type != kind || got.Reason != "" {
			t.Fatalf("type %d: got %+v, %v; want it COMMITTED", kind, got, err)
		}
		if states, want := r.states(t, got.ReqID), "0 10 20 30 40"; states != want {
			t.Errorf("type %d: states %s, want %s", kind, states, want)
		}
		check.Equal(t, fmt.Sprintf("type %d", kind), r.effects(), "withdraw 1 deposit 1 refund 0")
	}
}

// The refusals of a source or a target, and the resulting states.
func TestRefusedCallsEndTheTransfer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		op      transfer.Op
		state   transfer.State
		states  string
		effects string
	}{
		{transfer.Withdraw, transfer.Failed, "0 10 -10", "withdraw 0 deposit 0 refund 0"},
		{transfer.Deposit, transfer.RolledBack, "0 10 20 30 -20 -30", "withdraw 1 deposit 0 refund 1"},
	} {
		r := newRig(t)
		r.refuse[c.op] = transfer.AccountDisabled
		got, err := r.Submit(t.Context(), request(""), terms)
		if err != nil || got.State != c.state || got.Reason != transfer.AccountDisabled {
			t.Fatalf("%s refused: got %+v, %v; want %s for ACCOUNT_DISABLED", c.op, got, err, c.state)
		}
		if states := r.states(t, got.ReqID); states != c.states || r.effects() != c.effects {
			t.Errorf("%s refused: got %s, %s; want %s, %s", c.op, states, r.effects(), c.states, c.effects)
		}
		delete(r.refuse, c.op)
		if again, err := r.Drive(t.Context(), got.ReqID); err != nil || again.State != c.state || r.effects() != c.effects {
			t.Errorf("%s, driven again once it would work: got %s, %v, %s; want %s", c.op, again.State, err, r.effects(), c.state)
		}
	}
}

// An unknown answer leaves the state and plans the next attempt. It is logged as a warning while the
// money is at the source, and as critical in flight. However often it is repeated, the transfer never
// fails and is never refunded.
func TestUnknownStays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		op       transfer.Op
		state    transfer.State
		end      transfer.State
		severity string
	}{
		{transfer.Withdraw, transfer.SourcePending, transfer.Committed, "WARNING"},
		{transfer.Deposit, transfer.TargetPending, transfer.Committed, "CRITICAL"},
		{transfer.Refund, transfer.Compensating, transfer.RolledBack, "CRITICAL"},
	} {
		for how, lost := range map[string]func(*vault) map[transfer.Op]int{
			"the call is lost":   func(v *vault) map[transfer.Op]int { return v.drop },
			"the answer is lost": func(v *vault) map[transfer.Op]int { return v.lose },
		} {
			t.Run(fmt.Sprintf("%s, %s", c.op, how), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				if c.op == transfer.Refund {
					r.refuse[transfer.Deposit] = transfer.AccountDisabled
				}
				lost(r.vault)[c.op] = 3
				got, err := r.Submit(t.Context(), request(""), terms)
				if err != nil || got.State != c.state {
					t.Fatalf("submit: got %+v, %v; want it in %s", got, err, c.state)
				}
				for n := 1; n <= 3; n++ {
					if n > 1 {
						got.Transfer = r.drive(t, got.ReqID, c.state)
					}
					wait := got.NextIn(time.Hour)
					if got.RetryCount != n || got.Failures != n || wait <= 0 || wait > time.Second<<(n-1) || got.LastUnknown != string(c.op)+": "+errLost.Error() {
						t.Errorf("unknown %d: got %+v, next in %s; want it counted, and planned within %s", n, got.Transfer, wait, time.Second<<(n-1))
					}
				}
				want := c.severity + " " + c.severity + " " + c.severity
				check.Equal(t, "severities", r.log.severities("unknown"), want)
				end := r.drive(t, got.ReqID, c.end)
				if end.RetryCount != 3 || end.Failures != 0 || end.NextAttemptAt != nil || end.LastUnknown != "" {
					t.Errorf("at the end: got %+v, want nothing planned, retry_count as it was", end)
				}
			})
		}
	}
}

// A transfer that a dead worker left in any state continues from there, to the same result.
func TestDriveContinuesFromEveryState(t *testing.T) {
	t.Parallel()
	for _, s := range transfer.States() {
		r := newRig(t)
		x := r.at(t, s)
		call := x.Call()
		if s != transfer.Init && s != transfer.SourcePending { // as the source did then
			r.Withdraw(t.Context(), call)
		}
		want := s
		switch s {
		case transfer.Init, transfer.SourcePending, transfer.SourceDone, transfer.TargetPending:
			want = transfer.Committed
		case transfer.Compensating:
			want = transfer.RolledBack
		}
		asked := r.asked
		got := r.drive(t, x.ReqID, want)
		if s.Terminal() && (r.asked != asked || !got.UpdatedAt.Equal(x.UpdatedAt)) {
			t.Errorf("driven in %s: got %d calls, changed at %s; want nothing done", s, r.asked-asked, got.UpdatedAt)
		}
	}
}

// The database evaluates the age when the transfer begins. An expired one never called a ledger.
func TestH31InitExpiresOrBegins(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for age, want := range map[string]transfer.State{"14 minutes": transfer.Committed, "16 minutes": transfer.Failed} {
		x := r.created(t, request(""))
		r.age(t, x.ReqID, age)
		before := r.asked
		got := r.drive(t, x.ReqID, want)
		if want == transfer.Failed && (got.Reason != transfer.Expired || r.asked != before || r.states(t, x.ReqID) != "0 -10") {
			t.Errorf("%s old: got %q, %d calls, states %s; want EXPIRED, none, 0 -10", age, got.Reason, r.asked-before, r.states(t, x.ReqID))
		}
	}
}

// H31: a payout that waits for its chain is logged as information up to its own limit, and as critical
// afterwards.
func TestH31PayoutsHaveTheirOwnLimit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.offer(t, payable)
	r.drop[transfer.Deposit] = 2
	x, err := r.Submit(t.Context(), payout(), terms)
	if err != nil || x.State != transfer.TargetPending {
		t.Fatalf("payout: got %+v, %v; want it pending", x, err)
	}
	alarms := func() int {
		pending, _, err := r.Alarming(t.Context(), transfer.DefaultRules(), 10)
		check.OK(t)(err)
		return pending.Count
	}
	r.Run(t, `update transfers_tb set state_at = state_at - interval '29 minutes'`)
	check.Equal(t, "alarms after 29 minutes", alarms(), 0)
	r.Run(t, `update transfers_tb set state_at = state_at - interval '2 minutes'`)
	r.drive(t, x.ReqID, transfer.TargetPending)
	check.Equal(t, "alarms after 31 minutes", alarms(), 1)
	check.Equal(t, "severities at once and after 31 minutes", r.log.severities("unknown"), "INFO CRITICAL")
}

// CON-001 at the store: many workers drive one transfer at once. One compare-and-set wins each time,
// each effect happens once, and the history has each state once.
func TestCON001ManyWorkersOneTransfer(t *testing.T) {
	t.Parallel()
	for _, refuse := range []bool{false, true} {
		r := newRig(t)
		want, states, effects := transfer.Committed, "0 10 20 30 40", "withdraw 1 deposit 1 refund 0"
		if refuse {
			r.refuse[transfer.Deposit] = transfer.AccountDisabled
			want, states, effects = transfer.RolledBack, "0 10 20 30 -20 -30", "withdraw 1 deposit 0 refund 1"
		}
		r.lose[transfer.Withdraw], r.lose[transfer.Deposit], r.lose[transfer.Refund] = 2, 2, 2
		x := r.created(t, request(""))
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for range 30 {
					if got, err := r.Drive(t.Context(), x.ReqID); err != nil || got.State.Terminal() {
						if err != nil {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		group.Wait()
		r.drive(t, x.ReqID, want)
		if got := r.states(t, x.ReqID); got != states || r.effects() != effects {
			t.Errorf("refused %t: got %s, %s; want %s, %s", refuse, got, r.effects(), states, effects)
		}
	}
}

// A compare-and-set from another state than the transfer's changes nothing, and reports that without an
// error.
func TestLostCompareAndSetChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	order := transfer.RequestedAction{By: "carol", Reason: "r"}
	for _, s := range transfer.States() {
		x := b.at(t, s)
		order.ReqID = x.ReqID
		writes := map[string]func() (transfer.TransitionResult, error){}
		if s != transfer.Init {
			writes["start"] = func() (transfer.TransitionResult, error) { return b.Start(t.Context(), x.ReqID, time.Hour) }
			writes["start, expired"] = func() (transfer.TransitionResult, error) { return b.Start(t.Context(), x.ReqID, 0) }
			writes["cancel"] = func() (transfer.TransitionResult, error) { return b.Cancel(t.Context(), order) }
		}
		for _, path := range [][]transfer.State{{10, 20, 30}, {20, 30}, {30, 40}, {-20, -30}} {
			if path[0] != s {
				writes[fmt.Sprint(path)] = func() (transfer.TransitionResult, error) {
					return b.Move(t.Context(), transfer.Transition{ReqID: x.ReqID, Path: path})
				}
			}
		}
		for name, write := range writes {
			m, err := write()
			m.Now.Now = x.Now
			if err != nil || m.Done || !cmp.Equal(x, m.Now) {
				t.Errorf("%s in %s: got %+v, %v; want it lost, and %+v", name, s, m, err, x)
			}
		}
	}
	_, err := b.Move(t.Context(), transfer.Transition{ReqID: order.ReqID, Path: []transfer.State{0, 40}})
	if _, illegal := errors.AsType[transfer.IllegalTransitionError](err); !illegal {
		t.Errorf("a path that the table does not have: got %v, want it illegal", err)
	}
}

// A known request is answered without a call and without a write, in any state.
func TestKnownRequestCallsAndWritesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	x := r.created(t, request("c-1"))
	got, err := r.Submit(t.Context(), request("c-1"), terms)
	if err != nil || got.New || got.State != transfer.Init || !got.UpdatedAt.Equal(x.UpdatedAt) || r.asked != 0 {
		t.Errorf("got %+v, %v, %d calls; want the stored one in INIT, none", got, err, r.asked)
	}
}

// An operator's order and its reason are recorded before the ledger is asked. The transfer continues by
// the ordinary transitions.
func TestResolveRecordsAndContinues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		op      transfer.Op
		arrived bool // the call was carried out and its answer lost
		end     transfer.State
		effects string
		verdict string
	}{
		{"a withdrawal that arrived", transfer.Withdraw, true, transfer.Committed, "withdraw 1 deposit 1 refund 0", "SUCCESS"},
		{"a withdrawal that did not", transfer.Withdraw, false, transfer.Failed, "withdraw 0 deposit 0 refund 0", "REFUSED"},
		{"a deposit that arrived", transfer.Deposit, true, transfer.Committed, "withdraw 1 deposit 1 refund 0", "SUCCESS"},
		{"a deposit that did not", transfer.Deposit, false, transfer.RolledBack, "withdraw 1 deposit 0 refund 1", "REFUSED"},
		{"a refund that did not", transfer.Refund, false, transfer.Compensating, "withdraw 1 deposit 0 refund 0", "UNKNOWN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if c.op == transfer.Refund {
				r.refuse[transfer.Deposit] = transfer.AccountDisabled
			}
			if r.drop[c.op] = 1; c.arrived {
				r.drop[c.op], r.lose[c.op] = 0, 1
			}
			x, err := r.Submit(t.Context(), request(""), terms)
			if err != nil || x.State.AwaitedOp() != c.op {
				t.Fatalf("submit: got %s, %v; want it to wait for %s", x.State, err, c.op)
			}
			order := transfer.RequestedAction{ReqID: x.ReqID, By: "carol", Reason: "an hour is enough"}
			for _, other := range []transfer.Op{transfer.Withdraw, transfer.Deposit, transfer.Refund, transfer.OutsideDeposit, ""} {
				if _, err := r.Coordinator.Resolve(t.Context(), order, other); other != c.op && !errors.Is(err, transfer.ErrNothingToResolve) {
					t.Errorf("resolve %q: got %v, want nothing to resolve", other, err)
				} else if other == c.op && err != nil {
					t.Errorf("resolve: %v", err)
				}
			}
			now, err := r.Load(t.Context(), x.ReqID)
			if err != nil || now.State != c.end || r.effects() != c.effects {
				t.Errorf("got %s, %v, %s; want %s, %s", now.State, err, r.effects(), c.end, c.effects)
			}
			story, err := r.Why(t.Context(), x.ReqID)
			if err != nil || len(story.Resolutions) != 1 {
				t.Fatalf("on record: got %+v, %v; want one resolution", story.Resolutions, err)
			}
			got := story.Resolutions[0]
			if got.Op != string(c.op) || got.By != "carol" || got.Reason != "an hour is enough" || got.Verdict != c.verdict || got.AnsweredAt == nil {
				t.Errorf("recorded: got %+v, want by, reason and %s", got, c.verdict)
			}
		})
	}
}

// A transfer can be cancelled only in INIT, and the cancel is recorded with by and reason.
func TestCancelOnlyInInit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, s := range transfer.States() {
		x := r.at(t, s)
		order := transfer.RequestedAction{ReqID: x.ReqID, By: "carol", Reason: "a mistake"}
		got, err := r.Coordinator.Cancel(t.Context(), order)
		again, errAgain := r.Coordinator.Cancel(t.Context(), order)
		story, errStory := r.Why(t.Context(), x.ReqID)
		check.OK(t)(errStory)
		if s != transfer.Init {
			if !errors.Is(err, transfer.ErrTooLate) || got.State != s || len(story.Resolutions) != 0 {
				t.Errorf("in %s: got %s, %v, %d on record; want it too late, nothing changed", s, got.State, err, len(story.Resolutions))
			}
			continue
		}
		if err != nil || errAgain != nil || got.State != transfer.Failed || got.Reason != transfer.Cancelled || again.State != transfer.Failed {
			t.Errorf("in INIT: got %s %s, %v; again %s, %v; want FAILED CANCELLED twice", got.State, got.Reason, err, again.State, errAgain)
		}
		if len(story.Resolutions) != 1 || story.Resolutions[0].Op != "cancel" || story.Resolutions[0].By != "carol" {
			t.Errorf("on record: got %+v, want the one cancel", story.Resolutions)
		}
	}
	check.Err(t, "no such transfer", transfer.ErrNotFound)(r.Coordinator.Cancel(t.Context(), transfer.RequestedAction{ReqID: "none", By: "carol", Reason: "r"}))
}

// Only the listed crash points are reached.
func TestOnlyListedCrashPointsAreReached(t *testing.T) {
	t.Parallel()
	passed := map[string]bool{}
	r := newRig(t)
	r.At = func(point string) { passed[point] = true }
	check.OK(t)(r.Submit(t.Context(), request(""), terms))
	x := r.at(t, transfer.SourceDone)
	r.drive(t, x.ReqID, transfer.Committed)
	r.refuse[transfer.Deposit] = transfer.AccountDisabled
	check.OK(t)(r.Submit(t.Context(), request(""), terms))
	for _, point := range crash.Of("transfer.") {
		if slices.Contains([]string{"transfer.received", "transfer.driven", "transfer.enqueued", "transfer.swept"}, point) {
			continue // of the functions
		}
		if !passed[point] {
			t.Errorf("%s: never passed", point)
		}
		delete(passed, point)
	}
	if len(passed) > 0 {
		t.Errorf("passed, and not listed: %v", passed)
	}
}

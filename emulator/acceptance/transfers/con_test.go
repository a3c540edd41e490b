package transfers

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/shared/transfer"
)

// accepted stores a transfer as a process does that dies before it drives it.
func (u *user) accepted(from transfer.AccountType, units uint64) (reqID string) {
	u.T.Helper()
	amount, _ := transfer.ParseAmount(transfer.FormatUnits(units, usdt.Precision))
	r := transfer.Request{ReqID: ulid.Make().String(), UserID: u.ID, From: from, To: other(from), Asset: usdt.Name, Amount: amount}
	made, err := u.Transfers.Create(u.Ctx, r, transfer.Terms{SafetyFactor: 10})
	if err != nil || !made.New {
		u.T.Fatalf("create: got %+v, %v; want it new", made, err)
	}
	return r.ReqID
}

// CON-001: many workers in several processes drive one transfer. One compare-and-set wins each step;
// the others notice it and stop.
func TestCON001ManyWorkers(t *testing.T) {
	t.Parallel()
	for _, from := range sides {
		u := setup(t).newUser(t, 100, 100)
		reqID := u.accepted(from, 40)
		u.wantStates("accepted", reqID, transfer.Init)
		u.tasksAtOnce(reqID, 24)
		u.AwaitState(reqID, transfer.Committed)
		u.wantStates("many workers", reqID, happy...)
		for _, was := range []string{"INIT", "SOURCE_PENDING", "TARGET_PENDING"} {
			won := u.wantLogged(t, `"message":"transfer moved"`, reqID, `"was":"`+was+`"`)
			if len(won) != 1 {
				t.Errorf("workers that moved it out of %s: got %d, want one:\n%s", was, len(won), won)
			}
		}
		u.wantMoved("many workers", 200, 60)
	}
}

// tasksAtOnce delivers n tasks of the transfer concurrently.
func (u *user) tasksAtOnce(reqID string, n int) {
	u.T.Helper()
	got := make([]int, n)
	var tasks sync.WaitGroup
	for i := range n {
		tasks.Go(func() { got[i] = u.Task(reqID) })
	}
	tasks.Wait()
	if slices.ContainsFunc(got, func(status int) bool { return status != http.StatusNoContent }) {
		u.T.Errorf("%d tasks at once: got %v, want 204 for each", n, got)
	}
}

// CON-002: two equal transfers are two, and both run.
func TestCON002TwoEqualTransfers(t *testing.T) {
	t.Parallel()
	u := setup(t).newUser(t, 100, 0)
	got := u.together(2, body(funding, spot, "0.00004"))
	for _, a := range got {
		u.Want("two equal", a, http.StatusOK, "COMMITTED", "")
	}
	if got[0].ReqID == got[1].ReqID {
		t.Errorf("req_ids: got %s twice, want two", got[0].ReqID)
	}
	u.wantUnits("two equal", 20, 80)
}

// CON-003: a transfer runs beside an outside withdrawal. Only amounts that the balance covers succeed.
func TestCON003BesideAnOutsideWithdrawal(t *testing.T) {
	t.Parallel()
	for _, from := range sides {
		for range 5 {
			u := setup(t).newUser(t, 100, 100)
			var left transfer.Outcome
			var a answer
			var err error
			var both sync.WaitGroup
			both.Go(func() { left = u.Outside(u.Ctx, from, transfer.OutsideWithdrawal, u.ID, usdt.ID, 60) })
			both.Go(func() { a, err = u.try(body(from, other(from), "0.00006")) })
			both.Wait()
			check(t, err)
			short := transfer.Outcome{Verdict: transfer.Refused, Reason: transfer.InsufficientBalance}
			outside := left.Verdict == transfer.Success && a.State == "FAILED" && a.Code == "INSUFFICIENT_BALANCE"
			inside := left == short && a.State == "COMMITTED"
			if !outside && !inside {
				t.Errorf("both at once from %s: got %+v and %+v, want one of them and the other refused", from, left, a)
			}
		}
	}
}

// CON-004: one request that is repeated often and concurrently causes one deduction.
func TestCON004NoDoubleDeduction(t *testing.T) {
	t.Parallel()
	for _, from := range sides {
		u := setup(t).newUser(t, 100, 100)
		disarm := u.Core.Proxy.Arm(ubsproxy.Fault{Kind: ubsproxy.Duplicate, UserID: u.ID})
		got := u.together(12, body(from, other(from), "0.00004", "cid", "once"))
		first := slices.IndexFunc(got, func(a answer) bool { return a.Code == "" })
		if first < 0 {
			t.Fatalf("the same cid at once: got %+v, want one that made it", got)
		}
		for i, a := range got {
			if a.ReqID != got[first].ReqID || i != first && a.Code != "DUPLICATE_REQUEST" {
				t.Errorf("the same cid at once: got %+v, want the transfer %s", a, got[first].ReqID)
			}
		}
		u.AwaitState(u.Only(), transfer.Committed)
		disarm()
		u.wantMoved(fmt.Sprint("from ", from), 200, 60)
		equal(t, "calls that were answered differently at once", u.Core.Proxy.Struck(ubsproxy.Differed), 0)
	}
}

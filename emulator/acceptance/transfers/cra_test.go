package transfers

import (
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/transfer"
)

// crashed posts a transfer of 40 units to a process that dies at the point.
func (u *user) crashed(point string, from transfer.AccountType) transfer.Transfer {
	u.T.Helper()
	p, hit := u.Armed(u.T, point, crash.Kill, nil)
	if a, err := u.tryAt(p.Addr(), body(from, other(from), "0.00004")); err == nil {
		u.T.Fatalf("posted to a process that dies at %s: got %+v, want no answer", point, a)
	}
	died(u.T, p, hit, point)
	return u.Load(u.Only())
}

// did returns how often the journals have each of the transfer's operations as applied.
func (u *user) did(reqID string) map[transfer.Op]int {
	u.T.Helper()
	n := make(map[transfer.Op]int)
	for _, e := range u.journal() {
		if e.ReqID == reqID && e.Refused == "" {
			n[e.Op]++
		}
	}
	for _, op := range acceptancetest.Rows[transfer.Op](u.T, u.Deployment, `select op_type from transfer_operations where req_id = $1 and result = 'SUCCESS'`, reqID) {
		n[op]++
	}
	return n
}

// crashCase is a point, the state left there, and the end.
type crashCase struct {
	point string
	left  transfer.State
	asked bool // the ledger whose answer is missing has applied the call
}

// recovered runs each case in both directions, to the right end.
func recovered(t *testing.T, op transfer.Op, end transfer.State, cases ...crashCase) {
	t.Helper()
	type left struct {
		*user
		transfer.Transfer
	}
	var all []left
	for _, from := range sides {
		for _, c := range cases {
			u := setup(t).newUser(t, 100, 100)
			if end == transfer.RolledBack {
				u.status(other(from), "DISABLED")
			}
			x := u.crashed(c.point, from)
			if asked := u.did(x.ReqID)[op] == 1; x.State != c.left || op != "" && asked != c.asked {
				t.Errorf("%s from %s: left in %s, %s done: %t; want %s and %t", c.point, from, x.State, op, asked, c.left, c.asked)
			}
			all = append(all, left{u, x})
		}
	}
	want := map[transfer.State][]transfer.State{transfer.Committed: happy, transfer.RolledBack: rollback}[end]
	for _, l := range all {
		l.AwaitState(l.ReqID, end)
		l.wantStates("recovered", l.ReqID, want...)
		if f, s := l.units(funding), l.units(spot); f+s != 200 || (min(f, s) == 60) != (end == transfer.Committed) {
			t.Errorf("recovered to %s: got %d and %d", end, f, s)
		}
	}
}

// CRA-001: after INIT was stored. The transfer continues, or ends FAILED/EXPIRED if it is too old by
// then.
func TestCRA001AfterInit(t *testing.T) {
	t.Parallel()
	u := setup(t).newUser(t, 100, 100)
	old := u.crashed("transfer.beginning", funding)
	u.Age(old.ReqID, "16 minutes")
	recovered(t, transfer.Withdraw, transfer.Committed, crashCase{"transfer.beginning", transfer.Init, false})
	u.AwaitState(old.ReqID, transfer.Failed)
	if x := u.Load(old.ReqID); x.Reason != transfer.Expired {
		t.Errorf("too old when it was found: got %s for %s, want FAILED for EXPIRED", x.State, x.Reason)
	}
	u.wantStates("too old", old.ReqID, transfer.Init, transfer.Failed)
	u.wantUnits("too old", 100, 100)
}

// CRA-002: in SOURCE_PENDING, before the source was called.
func TestCRA002BeforeTheSource(t *testing.T) {
	t.Parallel()
	recovered(t, transfer.Withdraw, transfer.Committed,
		crashCase{"transfer.begun", transfer.SourcePending, false}, crashCase{"transfer.withdraw.calling", transfer.SourcePending, false})
}

// CRA-003: in SOURCE_PENDING, after the source was called.
func TestCRA003AfterTheSource(t *testing.T) {
	t.Parallel()
	recovered(t, transfer.Withdraw, transfer.Committed,
		crashCase{"transfer.withdraw.called", transfer.SourcePending, true}, crashCase{"transfer.withdraw.recording", transfer.SourcePending, true})
}

// CRA-004: after SOURCE_DONE, which is stored together with TARGET_PENDING, and in SOURCE_DONE itself,
// in which another build can have left a row.
func TestCRA004AfterSourceDone(t *testing.T) {
	t.Parallel()
	left := make(map[string]*user)
	for point, want := range map[string]transfer.State{"transfer.advancing": transfer.SourceDone, "transfer.advanced": transfer.TargetPending} {
		u := setup(t).newUser(t, 100, 0)
		left[u.inSourceDone(point, want)] = u
	}
	recovered(t, transfer.Deposit, transfer.Committed, crashCase{"transfer.withdraw.recorded", transfer.TargetPending, false})
	for reqID, u := range left {
		u.AwaitState(reqID, transfer.Committed)
		u.wantStates("from SOURCE_DONE", reqID, happy...)
		u.wantUnits("from SOURCE_DONE", 60, 40)
	}
}

// inSourceDone leaves a transfer in SOURCE_DONE to a process that dies at the point.
func (u *user) inSourceDone(point string, want transfer.State) (reqID string) {
	u.T.Helper()
	p, hit := u.Armed(u.T, point, crash.Kill, nil)
	reqID = u.accepted(funding, 40)
	u.Move(reqID, transfer.Init, transfer.SourcePending)
	equal(u.T, "withdraw", u.Funding.Withdraw(u.Ctx, u.Load(reqID).Call()), success)
	u.Move(reqID, transfer.SourcePending, transfer.SourceDone)
	equal(u.T, fmt.Sprintf("a task at a process that dies at %s", point), u.TaskAt(p.Addr(), reqID), 0)
	died(u.T, p, hit, point)
	if x := u.Load(reqID); x.State != want {
		u.T.Errorf("%s: left in %s, want %s", point, x.State, want)
	}
	return reqID
}

// CRA-005: in TARGET_PENDING, before and after the target was called.
func TestCRA005InTargetPending(t *testing.T) {
	t.Parallel()
	recovered(t, transfer.Deposit, transfer.Committed,
		crashCase{"transfer.deposit.calling", transfer.TargetPending, false},
		crashCase{"transfer.deposit.called", transfer.TargetPending, true}, crashCase{"transfer.deposit.recording", transfer.TargetPending, true})
}

// CRA-006: in COMPENSATING, before and after the refund was called.
func TestCRA006InCompensating(t *testing.T) {
	t.Parallel()
	recovered(t, transfer.Refund, transfer.RolledBack,
		crashCase{"transfer.deposit.recorded", transfer.Compensating, false}, crashCase{"transfer.refund.calling", transfer.Compensating, false},
		crashCase{"transfer.refund.called", transfer.Compensating, true}, crashCase{"transfer.refund.recording", transfer.Compensating, true})
}

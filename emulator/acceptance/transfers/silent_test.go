package transfers

import (
	"net/http"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/emulator/proxy/pgproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/transfer"
)

// silence is a way in which Funding does not answer, and whether it has applied the call.
type silence struct {
	kind pgproxy.Kind
	done bool
}

var silences = map[string]silence{
	"times out":                {pgproxy.Freeze, false},
	"lost before its commit":   {pgproxy.CutBeforeCommit, false},
	"lost after its commit":    {pgproxy.CutAfterCommit, true},
	"lost in the middle of it": {pgproxy.CutMidReply, true},
}

// wired returns a deployment with a proxy before Postgres. Only the test's one user calls Funding in
// it.
func wired(t *testing.T) *deployment {
	t.Helper()
	return own(t, stack.Options{WireProxy: true, Processes: 1, SweepEvery: time.Second})
}

// silent makes Funding answer no call until speak is called.
func (h *deployment) silent(t *testing.T, kind pgproxy.Kind) (speak func()) {
	const all = 1 << 20
	h.Proxy.Arm(pgproxy.Fault{Kind: kind, Times: all, Match: pgproxy.Containing("funding_apply")})
	speak = func() {
		h.Proxy.Disarm()
		h.Proxy.Thaw()
	}
	t.Cleanup(speak)
	return speak
}

// FSM-005 with Funding as the target: Funding does not answer, so the transfer stays and is never
// refunded. When Funding answers, the transfer ends once, whether or not Funding had applied it.
func TestFSM005FundingTimesOut(t *testing.T) {
	t.Parallel()
	h := wired(t)
	for what, s := range silences {
		u := h.newUser(t, 1, 100)
		speak := h.silent(t, s.kind)
		a := u.post(spot, funding, "0.00004")
		u.Want(what, a, http.StatusAccepted, "PENDING", "")
		u.stays(a.ReqID, transfer.TargetPending, 2)
		arrived := int64(1)
		if s.done {
			arrived = 41
		}
		u.wantUnits(what, arrived, 60)
		speak()
		u.AwaitState(a.ReqID, transfer.Committed)
		u.wantStates(what, a.ReqID, happy...)
		u.wantUnits(what+", at the end", 41, 60)
		if did := u.did(a.ReqID); did[transfer.Deposit] != 1 || did[transfer.Refund] != 0 {
			t.Errorf("%s: got %v applied, want one deposit and no refund", what, did)
		}
	}
}

// FSM-006 with Funding as the source: its refund fails. The transfer stays, and the refund is retried
// until it succeeds once.
func TestFSM006FundingRefundFails(t *testing.T) {
	t.Parallel()
	h := wired(t)
	for what, s := range silences {
		u := h.newUser(t, 100, 7)
		disarm := u.Core.Proxy.Arm(ubsproxy.Fault{Kind: ubsproxy.Unavailable, Op: transfer.Deposit, UserID: u.ID})
		a := u.post(funding, spot, "0.00004")
		u.Want(what, a, http.StatusAccepted, "PENDING", "")
		u.status(spot, "DISABLED")
		speak := h.silent(t, s.kind)
		disarm()
		poll(t, "Spot has refused", func() bool { return u.Load(a.ReqID).State != transfer.TargetPending })
		u.stays(a.ReqID, transfer.Compensating, 2)
		back := int64(60)
		if s.done {
			back = 100
		}
		u.wantUnits(what, back, 7)
		speak()
		u.AwaitState(a.ReqID, transfer.RolledBack)
		u.wantStates(what, a.ReqID, rollback...)
		u.wantUnits(what+", at the end", 100, 7)
		if did := u.did(a.ReqID); did[transfer.Deposit] != 0 || did[transfer.Refund] != 1 {
			t.Errorf("%s: got %v applied, want one refund and no deposit", what, did)
		}
	}
}

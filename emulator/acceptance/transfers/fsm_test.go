package transfers

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/shared/transfer"
)

// FSM-001: Funding to Trading, with the exact sequence of states.
func TestFSM001HappyPathFundingToSpot(t *testing.T) {
	t.Parallel()
	u := setup(t).newUser(t, 1_000_000, 0)
	a := u.committed(funding, spot, "0.4")
	u.wantStates("Funding to Spot", a.ReqID, happy...)
	u.wantUnits("Funding to Spot", 600_000, 400_000)
	if a.From != "FUNDING" || a.To != "SPOT" || a.TransferID == 0 {
		t.Errorf("answer: got %+v, want its transfer_id, from FUNDING to SPOT", a)
	}
	got := u.Get(a.ReqID)
	u.Want("asked for", got, http.StatusOK, "COMMITTED", "")
	if got.Amount != "0.4" || got.Asset != usdt.Name || got.TransferID != a.TransferID {
		t.Errorf("asked for: got %+v, want what was posted", got)
	}
}

// FSM-002: Trading to Funding, with the exact sequence of states.
func TestFSM002HappyPathSpotToFunding(t *testing.T) {
	t.Parallel()
	u := setup(t).newUser(t, 1, 1_000_000)
	u.wantStates("Spot to Funding", u.committed(spot, funding, "0.4").ReqID, happy...)
	u.wantUnits("Spot to Funding", 400_001, 600_000)
}

// FSM-003: the source refuses, in either direction, and nothing is moved.
func TestFSM003SourceFails(t *testing.T) {
	t.Parallel()
	for _, from := range []transfer.AccountType{funding, spot} {
		u := setup(t).newUser(t, 100, 100)
		a := u.post(from, other(from), "0.000101")
		u.Want("short on "+string(from), a, http.StatusUnprocessableEntity, "FAILED", "INSUFFICIENT_BALANCE")
		u.wantStates("short on "+string(from), a.ReqID, refused...)
		u.wantUnits("short on "+string(from), 100, 100)
	}
}

func other(side transfer.AccountType) transfer.AccountType {
	if side == funding {
		return spot
	}
	return funding
}

// FSM-004: the target refuses, and the source is refunded, in either direction.
func TestFSM004TargetRefuses(t *testing.T) {
	t.Parallel()
	h := setup(t)
	u := h.newUser(t, 0, 100) // no account in Funding
	a := u.post(spot, funding, "0.00004")
	u.Want("no account", a, http.StatusUnprocessableEntity, "ROLLED_BACK", "TARGET_ACCOUNT_NOT_FOUND")
	u.wantStates("no account", a.ReqID, rollback...)
	u.wantUnits("no account", -1, 100)

	u = h.newUser(t, 100, 7)
	u.status(spot, "DISABLED")
	a = u.post(funding, spot, "0.00004")
	u.Want("disabled", a, http.StatusUnprocessableEntity, "ROLLED_BACK", "ACCOUNT_DISABLED")
	u.wantStates("disabled", a.ReqID, rollback...)
	u.wantUnits("disabled", 100, 7)
}

// FSM-005: the target times out. Its result is unknown, so the transfer keeps its state and is never
// refunded. When the target answers, the transfer ends, whether or not the core had received the call.
func TestFSM005TargetTimesOut(t *testing.T) {
	t.Parallel()
	for kind, heard := range map[ubsproxy.Kind]bool{ubsproxy.Hang: false, ubsproxy.HoldAnswer: true} {
		parallel(t, fmt.Sprintf("heard of it %t", heard), func(t *testing.T) {
			targetTimesOut(t, kind, heard)
		})
	}
}

func targetTimesOut(t *testing.T, kind ubsproxy.Kind, heard bool) {
	u := setup(t).newUser(t, 100, 1)
	disarm := u.Core.Proxy.Arm(ubsproxy.Fault{Kind: kind, Op: transfer.Deposit, UserID: u.ID})
	a := u.post(funding, spot, "0.00004")
	u.Want("timed out", a, http.StatusAccepted, "PENDING", "")
	u.stays(a.ReqID, transfer.TargetPending, 2)
	inTrading := int64(1)
	if heard {
		inTrading = 41
	}
	u.wantUnits("timed out", 60, inTrading)
	disarm()
	u.AwaitState(a.ReqID, transfer.Committed)
	u.wantStates("timed out", a.ReqID, happy...)
	u.wantUnits("at the end", 60, 41)
}

// stays waits until the transfer was tried so often without success in the state.
func (u *user) stays(reqID string, want transfer.State, tries int) {
	u.T.Helper()
	var x transfer.Transfer
	poll(u.T, "the transfer was tried again in "+want.String(), func() bool {
		x = u.Load(reqID)
		return x.Failures >= tries || x.State != want
	})
	if x.State != want || x.NextAttemptAt == nil {
		u.T.Errorf("after %d answers unknown: got %s, next attempt at %v; want %s, and one planned", x.Failures, x.State, x.NextAttemptAt, want)
	}
	if got := u.Get(reqID); got.State != want.String() || got.Status != http.StatusOK {
		u.T.Errorf("asked for: got %+v, want %s", got, want)
	}
}

// FSM-006: the refund fails. The transfer stays, and the refund is retried until it succeeds.
func TestFSM006RefundFails(t *testing.T) {
	t.Parallel()
	for _, kind := range []ubsproxy.Kind{ubsproxy.Refuse, ubsproxy.LoseAnswer} {
		u := setup(t).newUser(t, 0, 100)
		disarm := u.Core.Proxy.Arm(ubsproxy.Fault{Kind: kind, Op: transfer.Refund, UserID: u.ID})
		a := u.post(spot, funding, "0.00004")
		u.Want("refund fails", a, http.StatusAccepted, "PENDING", "")
		u.stays(a.ReqID, transfer.Compensating, 2)
		disarm()
		u.AwaitState(a.ReqID, transfer.RolledBack)
		u.wantStates("refund fails", a.ReqID, rollback...)
		u.wantUnits("at the end", -1, 100)
	}
}

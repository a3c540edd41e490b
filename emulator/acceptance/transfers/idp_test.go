package transfers

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/shared/transfer"
)

// ledger returns the ledger that keeps the side.
func (u *user) ledger(side transfer.AccountType) transfer.Ledger {
	if side == spot {
		return u.Core.Ledger()
	}
	return u.Funding
}

// again repeats op of the transfer ten times concurrently. It requires the given answer and no change.
func (u *user) again(side transfer.AccountType, op transfer.Op, reqID string, want transfer.Outcome) {
	u.T.Helper()
	before := u.picture()
	call := u.Load(reqID).Call()
	var asking sync.WaitGroup
	for range 10 {
		asking.Go(func() {
			equal(u.T, fmt.Sprintf("%s in %s, again", op, side), ask(u, u.ledger(side), op, call), want)
		})
	}
	asking.Wait()
	u.Unchanged(fmt.Sprintf("%s in %s, again", op, side), before, u.picture)
}

var success = transfer.Outcome{Verdict: transfer.Success}

// lost makes the core's next answers to op get lost.
func (u *user) lost(op transfer.Op, times int) {
	u.Core.Proxy.Arm(ubsproxy.Fault{Kind: ubsproxy.LoseAnswer, Op: op, UserID: u.ID, Times: times})
}

// IDP-001: a repeated withdrawal takes money once, and a refused one stays refused whatever the
// balance is by then.
func TestIDP001WithdrawTwice(t *testing.T) {
	t.Parallel()
	for _, from := range sides {
		u := setup(t).newUser(t, 100, 100)
		u.lost(transfer.Withdraw, 3)
		a := u.post(from, other(from), "0.00004")
		u.AwaitState(a.ReqID, transfer.Committed)
		u.again(from, transfer.Withdraw, a.ReqID, success)
		u.wantMoved(fmt.Sprint("from ", from), 200, 60)
		short := u.post(from, other(from), "5")
		u.deposit(from, 5_000_000)
		u.again(from, transfer.Withdraw, short.ReqID, transfer.Outcome{Verdict: transfer.Refused, Reason: transfer.InsufficientBalance})
	}
}

// IDP-002: a repeated deposit pays once, and a refused one pays nothing even when the account could
// receive it.
func TestIDP002DepositTwice(t *testing.T) {
	t.Parallel()
	for _, from := range sides {
		u := setup(t).newUser(t, 100, 100)
		u.lost(transfer.Deposit, 3)
		a := u.post(from, other(from), "0.00004")
		u.AwaitState(a.ReqID, transfer.Committed)
		u.again(other(from), transfer.Deposit, a.ReqID, success)
		u.status(other(from), "DISABLED")
		disabled := u.post(from, other(from), "0.00001")
		u.Want("disabled", disabled, http.StatusUnprocessableEntity, "ROLLED_BACK", "ACCOUNT_DISABLED")
		u.status(other(from), "ACTIVE")
		u.again(other(from), transfer.Deposit, disabled.ReqID, transfer.Outcome{Verdict: transfer.Refused, Reason: transfer.AccountDisabled})
		u.wantMoved(fmt.Sprint("from ", from), 200, 60)
	}
}

// IDP-003: a repeated refund pays once, also into an account that is frozen or disabled by then, in
// either ledger.
func TestIDP003RefundTwice(t *testing.T) {
	t.Parallel()
	for _, from := range sides {
		for _, status := range []string{"FROZEN", "DISABLED"} {
			u := setup(t).newUser(t, 100, 100)
			u.status(other(from), "DISABLED")
			last := map[transfer.AccountType]transfer.Op{spot: transfer.Refund, funding: transfer.Deposit}[from] // the core's last operation before the refund
			disarm := u.Core.Proxy.Arm(ubsproxy.Fault{Kind: ubsproxy.Refuse, Op: last, UserID: u.ID})
			u.lost(transfer.Refund, 3) // after the core applied it
			a := u.post(from, other(from), "0.00004")
			u.status(from, status)
			if did := u.did(a.ReqID); did[transfer.Withdraw] != 1 || did[transfer.Refund] != 0 {
				t.Fatalf("when %s became %s: got %v applied, want the withdrawal alone", from, status, did)
			}
			disarm()
			u.AwaitState(a.ReqID, transfer.RolledBack)
			u.wantStates("given back to a "+status+" account", a.ReqID, rollback...)
			u.again(from, transfer.Refund, a.ReqID, success)
			u.wantUnits("given back to a "+status+" account", 100, 100)
			short := u.post(from, other(from), "0.00001")
			u.Want("the account, afterwards", short, http.StatusUnprocessableEntity, "FAILED", "ACCOUNT_"+status)
		}
	}
}

// IDP-004: repeated recovery, concurrent and sequential, before and after the end, has the same
// result.
func TestIDP004RecoveryOverAndOver(t *testing.T) {
	t.Parallel()
	for end, prepare := range map[transfer.State]func(u *user) transfer.Op{
		transfer.Committed:  func(*user) transfer.Op { return transfer.Deposit },
		transfer.RolledBack: func(u *user) transfer.Op { u.status(funding, "DISABLED"); return transfer.Refund },
	} {
		u := setup(t).newUser(t, 7, 100)
		from := spot
		if end == transfer.Committed {
			from = funding
			u.deposit(funding, 93)
		}
		u.lost(prepare(u), 20)
		a := u.post(from, other(from), "0.000004")
		u.Want("answers lost", a, http.StatusAccepted, "PENDING", "")
		for range 3 {
			u.tasksAtOnce(a.ReqID, 8)
			check(t, u.RunSweep(u.Ctx), "sweep: ")
		}
		u.AwaitState(a.ReqID, end)
		before := u.picture()
		for range 3 {
			u.tasksAtOnce(a.ReqID, 8)
			check(t, u.RunSweep(u.Ctx), "sweep: ")
		}
		u.Unchanged("recovered after its end", before, u.picture)
	}
}

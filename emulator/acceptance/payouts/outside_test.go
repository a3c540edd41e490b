package payouts

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/transfer"
)

// check runs a check of conservation at an operator's request.
func (h *deployment) check(t *testing.T) string {
	t.Helper()
	status, answer, err := h.Call(t.Context(), stack.OperatorAccount, http.MethodPost, "/admin/v1/conservation/check", map[string]any{"full": false})
	if err != nil || status != http.StatusOK {
		t.Fatalf("check: got %d %s, %v; want 200", status, answer, err)
	}
	return string(answer)
}

// Checks find nothing while payouts are made. When a foreign signer pays with the payer's key, they
// find that payment, and new payouts are halted.
func TestConservationReadsTheChain(t *testing.T) {
	t.Parallel()
	h := unchecked(t, stack.Options{})
	u := h.unverified(t, h.coin(), 1_000_000)
	u.ends(u.accepted(100_000), happy)
	poll(t, "the payout's payment was read from the chain", func() bool {
		if says(t, "undisturbed", h.check(t), `"result":"ok"`); t.Failed() {
			t.FailNow()
		}
		var paid int
		err := h.DB.QueryRow(t.Context(), `select count(*) from conservation_owed where paid`).Scan(&paid)
		return err == nil && paid == 1
	})
	h.payOutside(t, 1, 7)
	poll(t, "the payment from outside is found", func() bool {
		return strings.Contains(h.check(t), "PAYMENT_WITHOUT_TRANSFER")
	})
	if got := u.pay(100); got.Status == http.StatusAccepted {
		t.Errorf("a payout after it: got %+v, want it halted", got)
	}
}

// A payout is COMMITTED in the database, but the chain lacks its payment. The check finds this once
// the blocks that must contain it were read, and halts new payouts.
func TestConservationMissesAPayment(t *testing.T) {
	t.Parallel()
	h := unchecked(t, stack.Options{Submitters: 2})
	u := h.unverified(t, h.coin(), 1_000_000)
	u.ends(u.accepted(100_000), happy)
	h.everyQueue(t, false)
	reqID := u.accepted(200_000)
	u.AwaitState(reqID, transfer.TargetPending)
	h.ChangeOne(t, `update transfers_tb set state = 40, next_attempt_at = null, failures = 0 where req_id = $1`, reqID)
	poll(t, "the payment that is not there is found", func() bool {
		check(t, h.Chain.Mine(1))
		got := h.check(t)
		return strings.Contains(got, "TRANSFER_WITHOUT_PAYMENT") && strings.Contains(got, reqID)
	})
	if got := u.pay(100); got.Status == http.StatusAccepted {
		t.Errorf("a payout after it: got %+v, want it halted", got)
	}
	equal(t, "payments (the first payout's alone)", u.payments(), 1)
}

// A process has stored a payout and not begun it when transfers are halted and its asset is suspended.
// However often its task comes, it stays and nothing is sent. Once both are lifted it is paid once.
func TestAPayoutOfAHaltedDeploymentStays(t *testing.T) {
	t.Parallel()
	h := unchecked(t, stack.Options{Submitters: 2})
	u := h.unverified(t, h.coin(), 1_000_000)
	reqID := u.diedInInit()
	h.ChangeOne(t, `insert into transfer_halt (scope, evidence) values ('all', '{}')`)
	h.ChangeOne(t, `update assets_tb set status = 'SUSPENDED' where asset_id = $1`, u.asset.ID)
	stays := func(what string) {
		t.Helper()
		for range 3 {
			equal(t, fmt.Sprintf("%s, its task", what), u.Task(reqID), http.StatusNoContent)
			check(t, h.Chain.Mine(2))
		}
		equal(t, what, u.Load(reqID).State, transfer.Init)
		u.wantMoney(what, 1_000_000, 0, 0)
	}
	stays("halted and suspended")
	h.ChangeOne(t, `update transfer_halt set resumed_at = clock_timestamp(), resumed_by = 'o', resume_reason = 'r' where resumed_at is null`)
	stays("suspended")
	h.ChangeOne(t, `update assets_tb set status = 'ACTIVE' where asset_id = $1`, u.asset.ID)
	x := u.stepTo(reqID, happy)
	u.wantMoney("resumed", 1_000_000-x.Units, x.Units, 1)
}

package payout_test

import (
	"testing"

	"github.com/fencepost/fencepost/shared/chain/devchain/contracts"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	"github.com/fencepost/fencepost/shared/transfer"
)

const waits = "a payout waits for an operator"

// A payout of the chain's own coin is COMMITTED only at finality, and the address gets it once.
func TestCoinPayoutIsCommittedAtFinality(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	created, err := h.coordinator.Submit(t.Context(), h.request(coin), terms)
	if err != nil || created.State != transfer.TargetPending {
		t.Fatalf("submit: got %s, %v; want TARGET_PENDING", created.State, err)
	}
	check.Equal(t, "advance tasks", h.tasks.count(), 1)
	h.has(coin, "8.5")
	for _, state := range []string{"TRACKING/PENDING", "TRACKING/INCLUDED"} {
		if state == "TRACKING/INCLUDED" {
			h.mine(1)
		}
		h.serveUntil(created.ReqID, state)
		h.drive(created.ReqID, transfer.TargetPending)
	}
	h.mineUntil(created.ReqID, "CONFIRMED")
	h.drive(created.ReqID, transfer.Committed)
	if got := h.paid(); got != onePayment || h.states(created.ReqID) != "0 10 20 30 40" {
		t.Errorf("paid %s, states %s; want %s, the ordinary states", got, h.states(created.ReqID), onePayment)
	}
	h.has(coin, "8.5")
	succeeds(t, h.ledger.Deposit(t.Context(), created.Call()))
	check.Equal(t, "critical lines", h.log.severe("CRITICAL", ""), 0)
}

// A payout of a token with a Transfer event is paid.
func TestTokenPayoutIsCommitted(t *testing.T) {
	t.Parallel()
	h := newEnv(t)
	contract := h.deploy(contracts.Token())
	x := h.due(token)
	h.pay(x)
	if got := h.held(contract); got != onePayment || h.paid() != "0" {
		t.Errorf("paid %s, and %s of the coin; want %s and none", got, h.paid(), onePayment)
	}
	h.has(token, "8.5")
}

// H14: a token that returns false without reverting, or passes on less, is CONFIRMED with status 1.
// The transfer stays, a critical line is logged, and a resolve changes nothing, because the record
// does not prove that it was not paid.
func TestH14ConfirmedIsNotPaid(t *testing.T) {
	t.Parallel()
	for name, contract := range map[string][]byte{"returns false": contracts.Liar(), "passes on less": contracts.Skimming()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newEnv(t)
			h.deploy(contract)
			x := h.due(token)
			h.confirm(x)
			check.Equal(t, "the call succeeded", h.succeeded(x), true)
			h.drive(x.ReqID, transfer.TargetPending)
			h.wantUnknown(x, payout.ErrNotPaid)
			check.Equal(t, "critical lines", h.log.severe("CRITICAL", waits), 2)
			check.Equal(t, "after giving up", h.giveUp(x.ReqID).State, transfer.TargetPending)
			h.has(token, "8.5")
			check.Same(t, "journal", h.journal(), []transfer.Entry(nil))
		})
	}
}

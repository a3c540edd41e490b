package payouts

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/devchain/contracts"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// deployed deploys a contract on the deployment's chain.
func (h *deployment) deployed(t *testing.T, code []byte) txmanager.Address {
	t.Helper()
	return must(h.Deploy(t.Context(), code))(t)
}

// tokenBy adds a separate asset that the contract pays out.
func (h *deployment) tokenBy(t *testing.T, id int32, code []byte) transfer.Asset {
	t.Helper()
	a := stack.USDT
	a.ID, a.Name = id, "T"+string('A'+rune(id%26))
	a = h.PaidBy(a, h.deployed(t, code))
	check(t, h.AddAsset(t.Context(), a))
	return a
}

// A payment that the chain refuses permanently is refunded once, and the address gets nothing. If its
// call would revert, it is never sent. If it reverts in a block, the refund waits until that is final.
func TestGivenBack(t *testing.T) {
	t.Parallel()
	h := setup(t)
	closed, ungrateful := h.deployed(t, contracts.Closed()), h.deployed(t, contracts.Ungrateful())
	for name, c := range map[string]struct {
		asset   transfer.Asset
		to      *txmanager.Address
		managed string
		reason  transfer.Reason
	}{
		"coin that the address never takes": {h.coin(), &closed, "FAILED/REJECTED", payout.Rejected},
		"coin that the address sends back":  {h.coin(), &ungrateful, "FAILED/REVERTED", payout.Reverted},
		"token that reverts":                {h.tokenBy(t, 10, contracts.Reverting()), nil, "FAILED/REVERTED", payout.Reverted},
	} {
		parallel(t, name, func(t *testing.T) {
			u := h.newUser(t, c.asset, 1_000_000)
			if c.to != nil {
				u.address = *c.to
			}
			a := u.pay(400_001, "cid", "c")
			if a.Code != string(payout.Rejected) || c.reason != payout.Rejected { // on a slow machine the payout ends before the answer
				u.Want("posted", a, http.StatusAccepted, "PENDING", "")
			}
			if x := u.ends(a.ReqID, rollback); x.Reason != c.reason {
				t.Errorf("given back for %s, want %s", x.Reason, c.reason)
			}
			equal(t, "its transaction", u.managed(a.ReqID), c.managed)
			u.wantMoney("ROLLED_BACK", 1_000_000, 0, 0)
			u.Want("asked for", u.Get(a.ReqID), http.StatusOK, "ROLLED_BACK", "")
			again := u.pay(400_001, "cid", "c")
			u.Want("the same cid", again, http.StatusOK, "ROLLED_BACK", "DUPLICATE_REQUEST")
			if again.Reason != string(c.reason) || !strings.Contains(again.Message, "the money is back") {
				t.Errorf("the same cid: got %+v, want the reason, and that the money is back", again)
			}
		})
	}
}

// H14: a transaction of a token that returns false without reverting, or passes on less, is CONFIRMED
// without proof of payment. The payout keeps its state and is CRITICAL. It is never refunded, not even
// on request, and conservation does not count it as paid.
func TestH14ConfirmedIsNotPaid(t *testing.T) {
	t.Parallel()
	h := own(t, false, stack.Options{})
	for name, code := range map[string][]byte{"returns false": contracts.Liar(), "passes on less": contracts.Skimming()} {
		u := h.unverified(t, h.tokenBy(t, int32(10+len(name)), code), 1_000_000)
		reqID := u.accepted(400_001)
		u.awaitManaged(reqID, "CONFIRMED")
		asked := u.Load(reqID).RetryCount
		poll(t, "the chain was asked again since", func() bool { return u.Load(reqID).RetryCount > asked+1 })
		u.Want(name+", given up", u.resolve(reqID), http.StatusOK, "TARGET_PENDING", "")
		if got := u.Load(reqID); got.State != transfer.TargetPending || !strings.Contains(got.LastUnknown, payout.ErrNotPaid.Error()) {
			t.Errorf("%s: got %s, %q; want TARGET_PENDING for want of proof", name, got.State, got.LastUnknown)
		}
		says(t, name+": the evidence of why", u.why(reqID).LastEvidence, payout.ErrNotPaid.Error())
		poll(t, "somebody is told", func() bool {
			return len(h.Log.Lines(`"severity":"CRITICAL"`, "a payout waits for an operator", reqID)) > 0
		})
		equal(t, name+": in Funding (nothing given back)", u.has(), 599_999)
		check(t, h.Verify(false))
	}
}

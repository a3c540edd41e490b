package payouts

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/transfer"
)

// coin and token are the assets of a deployment, with their payout terms.
func (h *deployment) coin() transfer.Asset  { return h.PaidOut(stack.ETH) }
func (h *deployment) token() transfer.Asset { return h.PaidBy(stack.USDT, h.Token) }

// A payout of the chain's coin and one of a token are PENDING until finality and then COMMITTED. The
// address gets the money once, and Funding is debited once.
func TestPaidOut(t *testing.T) {
	t.Parallel()
	for name, asset := range map[string]transfer.Asset{"coin": setup(t).coin(), "token": setup(t).token()} {
		parallel(t, name, func(t *testing.T) {
			u := setup(t).newUser(t, asset, 1_000_000)
			a := u.pay(400_001, "cid", "c")
			u.Want("posted", a, http.StatusAccepted, "PENDING", "")
			if a.From != "FUNDING" || a.To != "CHAIN" || a.TransferID == 0 || !strings.Contains(a.Message, "not ended yet") {
				t.Errorf("posted: got %+v, want a transfer from FUNDING to CHAIN that is on its way", a)
			}
			u.wantWhy(a.ReqID)
			if got := u.ends(a.ReqID, happy); got.LastUnknown != "" || got.Reason != "" {
				t.Errorf("in the end: got %q, %q; want neither an unknown answer nor a reason", got.LastUnknown, got.Reason)
			}
			u.wantMoney("COMMITTED", 599_999, 400_001, 1)
			got := u.Get(a.ReqID)
			u.Want("asked for", got, http.StatusOK, "COMMITTED", "")
			if got.Asset != asset.Name || got.Amount != transfer.FormatUnits(400_001, asset.Precision) || got.Address != u.address.String() {
				t.Errorf("asked for: got %+v, want asset, amount and address", got)
			}
			u.Want("the same cid", u.pay(400_001, "cid", "c"), http.StatusOK, "COMMITTED", "DUPLICATE_REQUEST")
			u.Want("the same cid to another address", u.pay(400_001, "cid", "c", "address", "0x"+strings.Repeat("1", 40)), http.StatusConflict, "", "CID_CONFLICT")
			u.wantMoney("after that", 599_999, 400_001, 1)
			if got := u.why(a.ReqID); got.NextTryAt != nil || got.WouldUnblock != "" || !strings.HasSuffix(got.Where, "at CHAIN") {
				t.Errorf("why: got %+v, want it at the chain, with nothing owed", got)
			}
		})
	}
}

// wantWhy requires that the operator's page names what a running payout waits for.
func (u *user) wantWhy(reqID string) {
	u.T.Helper()
	w := u.why(reqID)
	if w.State == client.TransferCommitted {
		return // the chain was faster
	}
	if w.Payout == nil {
		u.T.Fatalf("why: got no payout in %+v", w)
	}
	if w.Payout.Submitter != string(u.Payer) || w.Payout.Address != u.address.String() || w.Payout.Token != u.asset.Payout.Token ||
		w.Payout.BaseUnits != u.Load(reqID).Payout.BaseUnits {
		u.T.Errorf("why: got the payout %+v, want payer, address, token and base units", *w.Payout)
	}
	if !strings.Contains(w.Where, "in flight, or at CHAIN") || !strings.Contains(w.WouldUnblock, string(u.Payer)+" with requestId "+reqID) || w.NextTryAt == nil {
		u.T.Errorf("why: got %+v, want it in flight, until its transaction ends", w)
	}
	if !strings.Contains(w.LastEvidence, "deposit of "+reqID+" on the chain") && !strings.Contains(w.LastEvidence, "TARGET_PENDING") {
		u.T.Errorf("why: got the evidence %q, want its transaction's state", w.LastEvidence)
	}
}

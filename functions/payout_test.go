package functions_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const paidTo = "0x52908400098527886e0f7030069857d2e4169ee7"

// pay posts a payout of 1.5 USDT of the user, with the given changes.
func (h deployment) pay(user int64, differs map[string]any) answer {
	h.t.Helper()
	return h.asUser(user, "POST", "/api/v1/payout", with(members{"asset": "USDT", "amount": "1.5", "address": paidTo}, differs))
}

func (h deployment) registerPayer() {
	h.t.Helper()
	check.OK(h.t)(h.Store.Register(h.t.Context(), store.Registration{
		Submitter: payer, Signer: "local", MaxInFlight: 1, Callers: []string{store.PayoutCaller}, CreatedBy: "test",
	}))
}

// A payout is stored with everything that it will do, and is posted to the transaction manager under
// its req_id. Then it waits for its chain. The same cid gets the same answer, even after settings and
// asset have changed.
func TestPayout(t *testing.T) {
	t.Parallel()
	h := buildWithPayer(t)
	a := h.pay(alice, map[string]any{"cid": "c"})
	check.Equal(t, fmt.Sprintf("answer (%v)", a.body), a.is("from", "to", "state"), "202 FUNDING CHAIN PENDING")
	reqID := fmt.Sprint(a.body["req_id"])
	check.Equal(t, "managed transaction", check.Value(h.Payout(t.Context(), payer, reqID))(t).State, txmanager.Queued)
	check.Equal(t, "to its owner", h.shown(alice, reqID).is("to", "address", "state"), "200 CHAIN "+paidTo+" TARGET_PENDING")
	h.run(`update assets_tb set status = 'SUSPENDED' where asset_id = 1`)
	again := h.pay(alice, map[string]any{"cid": "c", "address": "0x" + strings.ToUpper(paidTo[2:])})
	check.Equal(t, "the same again", again.is("code", "req_id"), "200 DUPLICATE_REQUEST "+reqID)
	check.Equal(t, "to another address", h.pay(alice, map[string]any{"cid": "c", "address": "0x" + strings.Repeat("1", 40)}).is("code"), "409 CID_CONFLICT")
	says(t, "why", h.as("ann", "GET", "/admin/v1/transfers/"+reqID+"/why", nil).is("would_unblock"), payer+" with requestId "+reqID)
}

// Only the coordinator can cancel a payout, since a cancelled payout is refunded.
func TestOnlyTheCoordinatorCancelsAPayout(t *testing.T) {
	t.Parallel()
	h := buildWithPayer(t)
	reqID := fmt.Sprint(h.pay(alice, nil).body["req_id"])
	found := check.Value(h.Payout(t.Context(), payer, reqID))(t)
	check.Equal(t, "cancel", h.as("ann", "POST", "/api/v1/tx/"+found.TxID+"/cancel", members{}).is("code"), "403 FORBIDDEN")
	check.Equal(t, "decide", h.as("ann", "POST", "/admin/v1/tx/"+found.TxID+"/decide", members{"action": "placeholder", "reason": "r"}).is("code"), "403 FORBIDDEN")
	check.Equal(t, "the managed transaction", check.Value(h.Payout(t.Context(), payer, reqID))(t).State, txmanager.Queued)
}

// A wrong payout is refused by the first failing check, in the order of a transfer's checks.
func TestPayoutRefused(t *testing.T) {
	t.Parallel()
	h := buildWithPayer(t)
	h.pay(alice, map[string]any{"cid": "known"}).wants(t, 202, "post")
	own := strings.TrimPrefix(payer, "eip155:1337:")
	for _, c := range []struct {
		name string
		body map[string]any
		want string
	}{
		{"user", map[string]any{"user_id": bob, "address": "x"}, "403 FORBIDDEN user_id"},
		{"an address before the cid", map[string]any{"cid": "known", "address": "x"}, "400 INVALID_ADDRESS address"},
		{"a wrong checksum", map[string]any{"address": "0x52908400098527886E0F7030069857D2E4169Ee7"}, "400 INVALID_ADDRESS address"},
		{"the cid before the rest", map[string]any{"cid": "known", "address": own, "asset": "?"}, "409 CID_CONFLICT cid"},
		{"asset", map[string]any{"asset": "?", "amount": "0"}, "400 INVALID_ASSET asset"},
		{"no payouts", map[string]any{"asset": "HUGE", "amount": "0"}, "400 TRANSFER_NOT_ALLOWED asset"},
		{"amount", map[string]any{"amount": "0", "address": own}, "400 INVALID_AMOUNT amount"},
		{"to the payer", map[string]any{"address": own}, "400 INVALID_ADDRESS address"},
		{"to nobody", map[string]any{"address": "0x" + strings.Repeat("0", 40)}, "400 INVALID_ADDRESS address"},
		{"too much", map[string]any{"amount": "2000"}, "422 INSUFFICIENT_BALANCE <nil>"},
	} {
		check.Equal(t, c.name, h.pay(alice, c.body).is("code", "field"), c.want)
	}
	h.run(`insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{}')`, payer)
	check.Equal(t, "in PROTECT", h.pay(alice, nil).is("code"), "503 SYSTEM_ERROR")
}

// With a finality that a reorg can undo no payouts are offered: a refunded payment could be mined
// later.
func TestNoPayoutsByAFinalityThatMayBeUndone(t *testing.T) {
	t.Parallel()
	h := buildWithPayer(t)
	accepted := h.pay(alice, map[string]any{"cid": "c"})
	h.url = h.serve(append(h.transferSettings(), "FENCEPOST_CONFIRMATIONS_REQUIRED=0")...)
	check.Equal(t, "what was accepted before", h.pay(alice, map[string]any{"cid": "c"}).is("code", "req_id"), "200 DUPLICATE_REQUEST "+fmt.Sprint(accepted.body["req_id"]))
	check.Equal(t, "answer", h.pay(alice, nil).is("code"), "400 TRANSFER_NOT_ALLOWED")
	h.post(alice, nil).wants(t, 200, "a transfer")
}

// Each payer's own chain decides when its payments are final.
func TestPayoutsAreFinalByTheirPayersChain(t *testing.T) {
	t.Parallel()
	h := build(t)
	app := h.opened(append(h.transferSettings(), "FENCEPOST_CHAIN_ID=1337", "FENCEPOST_CONFIRMATIONS_REQUIRED=1",
		`FENCEPOST_CHAINS=[{"id": 1338, "urls": ["http://127.0.0.1:1"], "finality": "finalized"}, {"id": 1339, "urls": ["http://127.0.0.1:1"], "confirmations": 30}]`)...)
	for chain, want := range map[uint64]string{1337: "confirmations 1", 1338: "finalized 1", 1339: "confirmations 30"} {
		s := txmanager.Submitter(strings.Replace(string(payer), ":1337:", fmt.Sprintf(":%d:", chain), 1))
		if mode, depth, err := app.PayoutFinality(s); err != nil || fmt.Sprint(mode, " ", depth) != want {
			t.Errorf("chain %d: got %s, %d, %v; want %s", chain, mode, depth, err, want)
		}
	}
	if _, _, err := app.PayoutFinality(txmanager.Submitter(strings.Replace(string(payer), ":1337:", ":7:", 1))); err == nil {
		t.Error("a chain that is not served: got no error")
	}
}

package functions_test

import (
	"fmt"
	"testing"
)

// What an accepted copy had in its queue is held: its caller and operators are told so;
// the same post, or an operator's decision with a reason, lets it go on.
func TestHeldAfterARestore(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.Register(t, shopAccount, 1)
	h.registerPayer()
	postTx := func(requestID string) answer {
		return h.as("shop", "POST", "/api/v1/tx", map[string]any{"submitter": shopAccount, "requestId": requestID, "payload": map[string]any{"to": paidTo}})
	}
	ids := map[string]string{}
	for _, name := range []string{"repeated", "let-go", "cancelled", "in-bulk"} {
		ids[name] = fmt.Sprint(postTx(name).body["txId"])
	}
	reqID := fmt.Sprint(h.pay(alice, nil).body["req_id"])
	payout, err := h.Payout(t.Context(), payer, reqID)
	if err != nil || payout.TxID == "" {
		t.Fatalf("payout: got %+v, %v", payout, err)
	}
	reason := map[string]any{"reason": "the log of the 21st"}
	for _, path := range []string{"/admin/v1/tx/" + ids["let-go"] + "/proceed", "/admin/v1/submitters/" + shopAccount + "/proceed"} {
		if got, want := h.as("ann", "POST", path, map[string]any{"reason": " "}).is("code", "field"), "400 INVALID_FIELD reason"; got != want {
			t.Errorf("%s without a reason: got %s, want %s", path, got, want)
		}
		if got, want := h.as("shop", "POST", path, reason).is("code"), "403 FORBIDDEN"; got != want {
			t.Errorf("%s by a caller: got %s, want %s", path, got, want)
		}
	}
	h.run(`update authority set timeline_id = timeline_id + 1`)
	if got, want := h.as("ann", "POST", "/admin/v1/submitters/"+shopAccount+"/proceed", reason).is("code"), "409 TOO_LATE"; got != want {
		t.Errorf("before the acceptance: got %s, want %s", got, want)
	}
	if got := h.as("ann", "POST", "/admin/v1/authority/accept", reason); got.status != 204 {
		t.Fatalf("accept: got %v", got)
	}

	state := func(name, want string) {
		t.Helper()
		if got := h.as("shop", "GET", "/api/v1/tx/"+ids[name], nil).is("state", "subState"); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	for name := range ids {
		state(name, "200 QUEUED HELD")
	}
	if got, want := h.as("ann", "GET", "/admin/v1/submitters/"+shopAccount, nil).is("queued", "held"), "200 4 4"; got != want {
		t.Errorf("submitter: got %s, want %s", got, want)
	}
	if again := postTx("repeated"); again.is("txId") != "200 "+ids["repeated"] {
		t.Errorf("posted again: got %v, want 200 and its txId", again)
	}
	state("repeated", "200 QUEUED <nil>")
	if got, want := h.as("shop", "POST", "/api/v1/tx/"+ids["cancelled"]+"/cancel", nil).is("outcome"), "200 CANCELLED"; got != want {
		t.Errorf("cancel: got %s, want %s", got, want)
	}
	for range 2 {
		if got, want := h.as("ann", "POST", "/admin/v1/tx/"+ids["let-go"]+"/proceed", reason).is("state", "subState"), "200 QUEUED <nil>"; got != want {
			t.Errorf("proceed: got %s, want %s", got, want)
		}
	}
	if got, want := h.as("ann", "POST", "/admin/v1/tx/"+payout.TxID+"/proceed", reason).is("code"), "403 FORBIDDEN"; got != want {
		t.Errorf("proceed of a payout: got %s, want %s", got, want)
	}
	if got, want := h.as("ann", "POST", "/admin/v1/submitters/"+shopAccount+"/proceed", reason).is("proceeded", "remaining", "payouts"), "200 1 0 0"; got != want {
		t.Errorf("proceed in bulk: got %s, want %s", got, want)
	}
	state("in-bulk", "200 QUEUED <nil>")
	if got, want := h.as("ann", "POST", "/admin/v1/submitters/"+payer+"/proceed", reason).is("proceeded", "remaining", "payouts"), "200 0 0 1"; got != want {
		t.Errorf("proceed in bulk of a payer: got %s, want %s", got, want)
	}
	if got, want := h.as("ann", "POST", "/admin/v1/tx/"+ids["cancelled"]+"/proceed", reason).is("code"), "409 TOO_LATE"; got != want {
		t.Errorf("proceed of what was cancelled: got %s, want %s", got, want)
	}
}

package functions_test

import (
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Queued intents of an accepted copy are held. Their caller and operators can read that. The same
// post, or an operator's decision with a reason, lets them continue.
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
	bulk := func(through string) map[string]any {
		return map[string]any{"through": through, "reason": "the log of the 21st"}
	}
	for _, path := range []string{"/admin/v1/tx/" + ids["let-go"] + "/proceed", "/admin/v1/submitters/" + shopAccount + "/proceed"} {
		check.Equal(t, fmt.Sprintf("%s without a reason", path), h.as("ann", "POST", path, map[string]any{"reason": " "}).is("code", "field"), "400 INVALID_FIELD reason")
		check.Equal(t, fmt.Sprintf("%s by a caller", path), h.as("shop", "POST", path, reason).is("code"), "403 FORBIDDEN")
	}
	h.run(`update database_identity set timeline_id = timeline_id + 1`)
	check.Equal(t, "before the acceptance", h.as("ann", "POST", "/admin/v1/submitters/"+shopAccount+"/proceed", bulk(ids["in-bulk"])).is("code"), "409 TOO_LATE")
	h.as("ann", "POST", "/admin/v1/database/accept", reason).wants(t, 204, "accept")

	state := func(name, want string) {
		t.Helper()
		check.Equal(t, fmt.Sprintf("%s", name), h.as("shop", "GET", "/api/v1/tx/"+ids[name], nil).is("state", "subState"), want)
	}
	for name := range ids {
		state(name, "200 QUEUED HELD")
	}
	check.Equal(t, "submitter", h.as("ann", "GET", "/admin/v1/submitters/"+shopAccount, nil).is("queued", "held"), "200 4 4")
	if again := postTx("repeated"); again.is("txId") != "200 "+ids["repeated"] {
		t.Errorf("posted again: got %v, want 200 and its txId", again)
	}
	state("repeated", "200 QUEUED <nil>")
	check.Equal(t, "cancel before the release", h.as("shop", "POST", "/api/v1/tx/"+ids["cancelled"]+"/cancel", nil).is("outcome"), "202 PENDING")
	h.run(`update protect_incident set closed_at = clock_timestamp(), closed_by = 'ann', mode = 'resume', reason = 'nothing ran' where closed_at is null`)
	check.Equal(t, "cancel", h.as("shop", "POST", "/api/v1/tx/"+ids["cancelled"]+"/cancel", nil).is("outcome"), "200 CANCELLED")
	for range 2 {
		check.Equal(t, "proceed", h.as("ann", "POST", "/admin/v1/tx/"+ids["let-go"]+"/proceed", reason).is("state", "subState"), "200 QUEUED <nil>")
	}
	check.Equal(t, "proceed of a payout", h.as("ann", "POST", "/admin/v1/tx/"+payout.TxID+"/proceed", reason).is("code"), "403 FORBIDDEN")
	for _, through := range []string{"", "all", payout.TxID} {
		check.Equal(t, fmt.Sprintf("proceed in bulk through %q", through), h.as("ann", "POST", "/admin/v1/submitters/"+shopAccount+"/proceed", bulk(through)).is("code", "field"), "400 INVALID_FIELD through")
	}
	check.Equal(t, "proceed in bulk", h.as("ann", "POST", "/admin/v1/submitters/"+shopAccount+"/proceed", bulk(ids["in-bulk"])).is("proceeded", "remaining", "newer", "cancelled", "payouts"), "200 1 0 0 0 0")
	state("in-bulk", "200 QUEUED <nil>")
	check.Equal(t, "proceed in bulk of a payer", h.as("ann", "POST", "/admin/v1/submitters/"+payer+"/proceed", bulk(payout.TxID)).is("proceeded", "remaining", "payouts"), "200 0 0 1")
	check.Equal(t, "proceed of what was cancelled", h.as("ann", "POST", "/admin/v1/tx/"+ids["cancelled"]+"/proceed", reason).is("code"), "409 TOO_LATE")
}

// What a foreign transaction may have been is held, listed, and decided about by an
// operator.
func TestForeignTransactionsOverHTTP(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.Register(t, shopAccount, 1)
	call := txmanager.ConsumingTx{ValueWei: "0"}
	to, err := eip155.ParseAddress(paidTo)
	check.OK(t)(err)
	call.To = &to
	digest := call.CallDigest()
	for n := range 3 {
		h.run(`insert into foreign_transaction (submitter, nonce, incident, tx_hash, block_number, block_hash, to_address, value_wei, call_digest, succeeded, receipt, node)
			values ($1, $2, 1, $3, 7, $3, lower($4), 0, $5, true, '{}', 'node')`, shopAccount, n, txmanager.Hash{byte(n + 1)}.String(), paidTo, digest[:])
		h.run(`insert into foreign_hold (submitter, nonce, call_digest) values ($1, $2, $3)`, shopAccount, n, digest[:])
	}
	var ids []string
	for i := range 2 {
		got := h.as("shop", "POST", "/api/v1/tx", map[string]any{"submitter": shopAccount, "requestId": fmt.Sprint("r", i), "payload": map[string]any{"to": paidTo}})
		got.wants(t, 202, "post")
		ids = append(ids, fmt.Sprint(got.body["txId"]))
	}
	path := "/admin/v1/submitters/" + shopAccount + "/foreign"
	list := h.as("ann", "GET", path, nil)
	rows, _ := list.body["foreign"].([]any)
	if len(rows) != 3 || rows[1].(map[string]any)["requestId"] != "r1" || rows[2].(map[string]any)["txId"] != nil {
		t.Errorf("list: got %v", list.body)
	}
	first := h.as("ann", "GET", path+"?pageSize=2", nil)
	last := h.as("ann", "GET", fmt.Sprint(path, "?pageSize=2&pageToken=", first.body["nextPageToken"]), nil)
	if rows, _ := last.body["foreign"].([]any); len(rows) != 1 || last.body["nextPageToken"] != nil {
		t.Errorf("second page of two: got %v, want the last one", last.body)
	}
	for _, c := range []struct {
		path string
		body map[string]any
		want string
	}{
		{"/match", map[string]any{"txId": ids[0], "reason": "r"}, "400 INVALID_FIELD nonce"},
		{"/match", map[string]any{"nonce": 0, "txId": "x", "reason": "r"}, "400 INVALID_FIELD txId"},
		{"/match", map[string]any{"nonce": 0, "txId": ids[0]}, "400 INVALID_FIELD reason"},
		{"/match", map[string]any{"nonce": 2, "txId": ids[0], "reason": "r"}, "400 INVALID_FIELD txId"},
		{"/match", map[string]any{"nonce": 7, "txId": ids[0], "reason": "r"}, "409 TOO_LATE <nil>"},
		{"/write-off", map[string]any{"nonce": 7, "reason": "r"}, "409 TOO_LATE <nil>"},
		{"/write-off", map[string]any{"nonce": 0}, "400 INVALID_FIELD reason"},
		{"/write-off", map[string]any{"reason": "nonce 0 was the owner's"}, "400 INVALID_FIELD nonce"},
		{"/write-off", map[string]any{"nonce": 0, "through": 2, "reason": "r"}, "400 INVALID_FIELD nonce"},
	} {
		check.Equal(t, fmt.Sprintf("%s %v", c.path, c.body), h.as("ann", "POST", path+c.path, c.body).is("code", "field"), c.want)
	}
	check.Equal(t, "proceed", h.as("ann", "POST", "/admin/v1/tx/"+ids[0]+"/proceed", map[string]any{"reason": "r"}).is("code"), "409 TOO_LATE")
	check.Equal(t, "cancel of what may have run", h.as("shop", "POST", "/api/v1/tx/"+ids[0]+"/cancel", nil).is("outcome"), "202 PENDING")
	check.Equal(t, "match", h.as("ann", "POST", path+"/match", map[string]any{"nonce": 0, "txId": ids[0], "reason": "r"}).is("state", "subState"), "200 CONFIRMED RECORDED")
	check.Equal(t, "write off", h.as("ann", "POST", path+"/write-off", map[string]any{"nonce": 1, "reason": "r"}).is("writtenOff", "proceeded", "remaining"), "200 1 0 1")
	check.Equal(t, "write off the rest", h.as("ann", "POST", path+"/write-off", map[string]any{"through": 2, "reason": "r"}).is("writtenOff", "proceeded", "remaining"), "200 1 1 0")
}

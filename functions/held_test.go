package functions_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Queued intents of an accepted copy are held. Their caller and operators can read that. The same
// post, or an operator's decision with a reason, lets them continue.
func TestHeldAfterARestore(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t)
	h.registerPayer()
	ids := map[string]string{}
	for _, name := range []string{"repeated", "let-go", "cancelled", "in-bulk"} {
		ids[name] = h.createTx(name)
	}
	reqID := fmt.Sprint(h.pay(alice, nil).body["req_id"])
	payout, err := h.Payout(t.Context(), payer, reqID)
	if err != nil || payout.TxID == "" {
		t.Fatalf("payout: got %+v, %v", payout, err)
	}
	reason := members{"reason": "the log of the 21st"}
	bulk := func(through string) members { return with(reason, members{"through": through}) }
	for _, path := range []string{"/admin/v1/tx/" + ids["let-go"] + "/proceed", ofShop + "/proceed"} {
		check.Equal(t, path+" without a reason", h.as("ann", "POST", path, map[string]any{"reason": " "}).is("code", "field"), "400 INVALID_FIELD reason")
	}
	check.Equal(t, "accept what is the accepted database", h.as("ann", "POST", "/admin/v1/database/accept", reason).is("code"), "409 TOO_LATE")
	h.run(`update database_identity set timeline_id = timeline_id + 1`)
	check.Equal(t, "before the acceptance", h.as("ann", "POST", ofShop+"/proceed", bulk(ids["in-bulk"])).is("code"), "409 TOO_LATE")
	h.as("ann", "POST", "/admin/v1/database/accept", reason).wants(t, 204, "accept")

	state := func(name, want string) {
		t.Helper()
		check.Equal(t, name, h.as("shop", "GET", "/api/v1/tx/"+ids[name], nil).is("state", "subState"), want)
	}
	for name := range ids {
		state(name, "200 QUEUED HELD")
	}
	check.Equal(t, "submitter", h.as("ann", "GET", "/admin/v1/submitters/"+shopAccount, nil).is("queued", "held"), "200 4 4")
	check.Equal(t, "posted again", h.as("shop", "POST", "/api/v1/tx", intentOf("repeated")).is("txId"), "200 "+ids["repeated"])
	state("repeated", "200 QUEUED <nil>")
	check.Equal(t, "cancel before the release", h.as("shop", "POST", "/api/v1/tx/"+ids["cancelled"]+"/cancel", nil).is("outcome"), "202 PENDING")
	h.run(`update protect_incident set closed_at = clock_timestamp(), closed_by = 'ann', mode = 'resume', reason = 'nothing ran' where closed_at is null`)
	check.Equal(t, "cancel", h.as("shop", "POST", "/api/v1/tx/"+ids["cancelled"]+"/cancel", nil).is("outcome"), "200 CANCELLED")
	for range 2 {
		check.Equal(t, "proceed", h.as("ann", "POST", "/admin/v1/tx/"+ids["let-go"]+"/proceed", reason).is("state", "subState"), "200 QUEUED <nil>")
	}
	check.Equal(t, "proceed of a payout", h.as("ann", "POST", "/admin/v1/tx/"+payout.TxID+"/proceed", reason).is("code"), "403 FORBIDDEN")
	for _, through := range []string{"", "all", payout.TxID} {
		check.Equal(t, fmt.Sprintf("proceed in bulk through %q", through), h.as("ann", "POST", ofShop+"/proceed", bulk(through)).is("code", "field"),
			"400 INVALID_FIELD through")
	}
	check.Equal(t, "proceed in bulk", h.as("ann", "POST", ofShop+"/proceed", bulk(ids["in-bulk"])).is("proceeded", "remaining", "newer", "cancelled", "payouts"),
		"200 1 0 0 0 0")
	state("in-bulk", "200 QUEUED <nil>")
	check.Equal(t, "proceed in bulk of a payer", h.as("ann", "POST", "/admin/v1/submitters/"+payer+"/proceed", bulk(payout.TxID)).is("proceeded", "remaining", "payouts"), "200 0 0 1")
	check.Equal(t, "proceed of what was cancelled", h.as("ann", "POST", "/admin/v1/tx/"+ids["cancelled"]+"/proceed", reason).is("code"), "409 TOO_LATE")
}

// heldByForeign records foreign transactions of the shop's account, each of which holds an intent that [intentOf] makes.
func (h deployment) heldByForeign(all int) {
	h.t.Helper()
	to := check.Value(eip155.ParseAddress(paidTo))(h.t)
	digest := txmanager.ConsumingTx{To: &to, ValueWei: "1"}.CallDigest()
	h.run(`insert into foreign_transaction (submitter, nonce, incident, tx_hash, block_number, block_hash, to_address, value_wei, call_digest, succeeded, receipt, node)
		select $1, n, 1, '0x' || lpad(to_hex(n + 1), 64, '0'), 7, '0x' || lpad(to_hex(n + 1), 64, '0'), lower($2), 1, $3, true, '{}', 'node' from generate_series(0, $4::int - 1) n`,
		shopAccount, paidTo, digest[:], all)
	h.run(`insert into foreign_hold (submitter, nonce, call_digest) select submitter, nonce, call_digest from foreign_transaction`)
}

// What a foreign transaction may have been is held, listed, and decided about by an
// operator.
func TestForeignTransactionsOverHTTP(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t)
	const all = 103
	h.heldByForeign(all)
	var ids []string
	for i := range 2 {
		ids = append(ids, h.createTx(fmt.Sprint("r", i)))
	}
	const path = ofShop + "/foreign"
	check.Equal(t, "intents that are held", column(h.allRows("foreign", path, "", 100), "requestId"), "r0 r1"+strings.Repeat(" <nil>", all-2))
	check.Equal(t, "from the last but one", column(h.allRows("foreign", path, fmt.Sprint("&from=", all-2), 1), "nonce"), fmt.Sprint(all-2, " ", all-1))
	for _, c := range []struct {
		path string
		body map[string]any
		want string
	}{
		{"/match", map[string]any{"txId": ids[0], "reason": "r"}, "400 INVALID_FIELD nonce"},
		{"/match", map[string]any{"nonce": 0, "txId": "x", "reason": "r"}, "400 INVALID_FIELD txId"},
		{"/match", map[string]any{"nonce": 0, "txId": ids[0]}, "400 INVALID_FIELD reason"},
		{"/match", map[string]any{"nonce": 2, "txId": ids[0], "reason": "r"}, "400 INVALID_FIELD txId"},
		{"/match", map[string]any{"nonce": all, "txId": ids[0], "reason": "r"}, "409 TOO_LATE <nil>"},
		{"/write-off", map[string]any{"nonce": all, "reason": "r"}, "409 TOO_LATE <nil>"},
		{"/write-off", map[string]any{"nonce": 0}, "400 INVALID_FIELD reason"},
		{"/write-off", map[string]any{"reason": "nonce 0 was the owner's"}, "400 INVALID_FIELD nonce"},
		{"/write-off", map[string]any{"nonce": 0, "through": 2, "reason": "r"}, "400 INVALID_FIELD nonce"},
	} {
		check.Equal(t, fmt.Sprintf("%s %v", c.path, c.body), h.as("ann", "POST", path+c.path, c.body).is("code", "field"), c.want)
	}
	check.Equal(t, "proceed", h.as("ann", "POST", "/admin/v1/tx/"+ids[0]+"/proceed", map[string]any{"reason": "r"}).is("code"), "409 TOO_LATE")
	check.Equal(t, "cancel of what may have run", h.as("shop", "POST", "/api/v1/tx/"+ids[0]+"/cancel", nil).is("outcome"), "202 PENDING")
	check.Equal(t, "match", h.as("ann", "POST", path+"/match", map[string]any{"nonce": 0, "txId": ids[0], "reason": "r"}).is("state", "subState"), "200 CONFIRMED RECORDED")
	for _, c := range []struct {
		which string
		nonce int
		want  string // those written off, the intents that proceed, and those that remain
	}{
		{"nonce", 1, "200 1 0 101"}, {"through", 3, "200 2 0 99"}, {"through", 3, "200 0 0 99"}, {"through", all - 2, "200 98 0 1"}, {"through", all, "200 1 1 0"},
	} {
		body := members{c.which: c.nonce, "reason": "r"}
		check.Equal(t, fmt.Sprint("write off ", body), h.as("ann", "POST", path+"/write-off", body).is("writtenOff", "proceeded", "remaining"), c.want)
	}
	check.Equal(t, "write one off again", h.as("ann", "POST", path+"/write-off", members{"nonce": 1, "reason": "r"}).is("code"), "409 TOO_LATE")
}

package functions_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

// An operator states whether a payout was paid, only if the record cannot tell and once at a time, and
// can withdraw a wrong statement. The statement is shown with the operator's name.
func TestStatementsAboutPayouts(t *testing.T) {
	t.Parallel()
	h := buildWithPayer(t)
	reqID := fmt.Sprint(h.pay(alice, nil).body["req_id"])
	path := "/admin/v1/transfers/" + reqID + "/payout-statement"
	hash := "0x" + strings.Repeat("ab", 32)
	paid := members{"paid": true, "tx_hash": hash, "reason": "seen in the explorer"}
	check.Equal(t, "a payout that is posted", h.as("ann", "POST", path, paid).is("code"), "409 NOTHING_TO_RESOLVE")
	h.run(`insert into identity_change (system_identifier, timeline_id, by, reason) select system_identifier, timeline_id, 'ann', 'restored' from database_identity`)
	for _, c := range []struct {
		body  members
		field string
	}{
		{members{"reason": "r"}, "paid"},
		{members{"paid": true, "tx_hash": hash}, "reason"},
		{members{"paid": true, "tx_hash": "0x12", "reason": "r"}, "tx_hash"},
		{members{"paid": true, "tx_hash": hash, "then": "refund", "reason": "r"}, "paid"},
		{members{"paid": false, "reason": "r"}, "then"},
		{members{"paid": false, "then": "refund", "tx_hash": hash, "reason": "r"}, "tx_hash"},
		{members{"paid": false, "then": "refund", "reason": "r"}, "max_window"},
		{members{"paid": false, "then": "refund", "max_window": 10_001, "reason": "r"}, "max_window"},
		{members{"paid": false, "then": "refund", "other_payments": []string{"x"}, "max_window": 1, "reason": "r"}, "other_payments"},
	} {
		check.Equal(t, fmt.Sprintf("%v", c.body), h.as("ann", "POST", path, c.body).is("code", "field"), "400 INVALID_FIELD "+c.field)
	}
	check.Equal(t, "withdraw what nobody said", h.as("ann", "POST", path+"/withdraw", members{"reason": "r"}).is("code"), "409 NO_STATEMENT")
	check.Equal(t, "stated, where the chain cannot be asked", h.as("ann", "POST", path, paid).is("state"), "200 TARGET_PENDING")
	check.Equal(t, "stated twice", h.as("ann", "POST", path, paid).is("code"), "409 STATEMENT_STANDS")
	check.Equal(t, "withdrawn", h.as("ann", "POST", path+"/withdraw", members{"reason": "another's"}).is("state"), "200 TARGET_PENDING")
	ann := h.clientOf(h.callerToken("ann"))
	stated := client.PayoutStatement{Paid: true, TxHash: hash, Reason: "by the client"}
	check.Equal(t, "by the client", check.Value(ann.StatePayout(t.Context(), reqID, stated))(t).State, client.TransferTargetPending)
	if got, err := ann.WithdrawStatement(t.Context(), reqID, "by the client"); err != nil || got.LastEvidence == "" || got.ProvedBy != "" {
		t.Errorf("withdrawn by the client: got %+v, %v; want the evidence, and no proof", got, err)
	}
	shown := fmt.Sprint(h.as("ann", "GET", "/admin/v1/transfers/"+reqID+"/why", nil).body["statements"])
	says(t, "why", shown, hash, "ann@", "seen in the explorer", "another's")
	check.Equal(t, "which count, both withdrawn", counting(t, ann, reqID), "[false false]")
	check.Equal(t, "stated anew", h.as("ann", "POST", path, paid).is("state"), "200 TARGET_PENDING")
	check.Equal(t, "which count, the last stands", counting(t, ann, reqID), "[false false true]")
	h.run(`insert into identity_change (system_identifier, timeline_id, by, reason) select system_identifier, timeline_id, 'ann', 'restored again' from database_identity`)
	check.Equal(t, "which count, after a later restore", counting(t, ann, reqID), "[false false false]")
}

// counting returns whether each shown statement about a payout counts.
func counting(t *testing.T, c *client.Client, reqID string) string {
	t.Helper()
	why := check.Value(c.WhyTransfer(t.Context(), reqID))(t)
	var all []bool
	for _, s := range why.Statements {
		all = append(all, s.Counts)
	}
	return fmt.Sprint(all)
}

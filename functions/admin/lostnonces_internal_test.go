package admin

import (
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// A transaction is compared with the whole queue, so that a request at its head is found. The oldest intents are listed,
// and an answer that leaves some out says so.
func TestALostNonceIsComparedWithTheWholeQueue(t *testing.T) {
	t.Parallel()
	chain := txtest.Reader(nil)
	open := []txmanager.OpenRequest{{RequestID: "payout", Payload: []byte("pay")}, {RequestID: "handler", TxID: "0", Unknown: true}}
	for i := range 10_000 { // the newest first
		name, payload := fmt.Sprintf("order-%05d", 10_000-i), "call"
		if i == 9_999 {
			payload = "pay"
		}
		open = append(open, txmanager.OpenRequest{RequestID: name, TxID: name, Payload: []byte(payload)})
	}
	wanted, _ := wantedOf(chain, open)
	page := lostNoncePage{chain: chain, wanted: wanted}
	for payload, want := range map[string]struct {
		first, payouts string
		intents        int
		more           bool
	}{
		"pay":  {"order-00001", "[payout]", 1, false},
		"call": {"order-00002", "[]", store.MaxMatching, true},
	} {
		call := check.Value(chain.ParsePayload([]byte(payload)))(t)
		var one lostNonce
		page.addOpen(&one, txmanager.ForeignTransaction{CallDigest: call.Digest()})
		if len(one.Intents) != want.intents || one.Intents[0].RequestID != want.first || fmt.Sprint(one.Payouts) != want.payouts || one.more != want.more {
			t.Errorf("%s: got %d intents, payouts %v, more %t; want %d from %s, %s, %t", payload, len(one.Intents), one.Payouts, one.more, want.intents, want.first, want.payouts, want.more)
		}
	}
}

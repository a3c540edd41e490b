package acceptance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/chaintest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// The node has pruned its blocks, and shows for no nonce which transaction consumed it. A name is
// refused until the operator gives the transaction's hash. Then the request ends as that transaction
// did. Without a hash, callers read that the result is an operator's statement.
func TestANameIsProvedByTheHashOrRecordedAsAStatement(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Window: 1, Submitters: 1, RPCProxy: true, Settings: quick})
	s := b.Submitters()[0]
	pruned := chaintest.NewProxy(t, b.Chain.URL())
	pruned.Set(chaintest.Fault{Answer: func(call chaintest.Call, _ json.RawMessage) map[string]any {
		if call.Method == "eth_getBlockByNumber" && len(call.Params) == 2 && call.Params[1] == true {
			return chaintest.NodeError("pruned history unavailable")
		}
		return nil
	}})
	b.RPC.SetTarget(pruned.URL)
	paid := common.Address{0xb1}
	b.Chain.StopMining()
	b.post(t, orderTo(s, "held", common.Address{0xb0}, 10))
	_, succeeded := b.post(t, orderTo(s, "succeeded", paid, 11))
	_, reverted := b.post(t, creates(s, "reverted", 0xfe))
	b.await(t, s, txmanager.Tracking, 1)
	b.Chain.DropPool()
	first, second := b.payByHand(t, 0, paid, 11), b.createByHand(t, 1, 0xfe)
	b.payByHand(t, 2, common.Address{0xb3}, 13)
	b.Chain.StartMining()
	incident := b.inProtect(t, s)
	b.mine(t, 70)

	body := map[string]any{"incident": incident, "mode": "resync", "count": 3, "reason": "paid by hand",
		"requests": map[string]string{"0": "succeeded", "1": "reverted", "2": "lost"}}
	b.refusedRelease(t, "names alone", s, body, `"field":"hashes"`, "nonce 0", "archive node")
	body["hashes"] = map[string]string{"0": second}
	b.refusedRelease(t, "the hash of another nonce", s, body, `"field":"hashes"`, "has nonce 1")
	body["hashes"] = map[string]string{"0": "0x" + strings.Repeat("ab", 32)}
	b.refusedRelease(t, "a hash that no node knows", s, body, `"field":"hashes"`, "archive node")
	body["hashes"] = map[string]string{"0": first, "1": second}
	b.refusedRelease(t, "one hash too few", s, body, `"field":"hashes"`, "nonce 2")
	body["executed"] = map[string]string{"1": "the explorer", "2": "the explorer"}
	b.refusedRelease(t, "a statement beside a hash", s, body, `"field":"executed"`, "nonce 1")
	body["executed"] = map[string]string{"2": "the explorer of the chain"}
	done := b.released(t, s, "", body)
	if got := fmt.Sprintln(len(done.Named), done.Named[0].Effect, done.Named[0].TxHash, done.Named[1].Effect, done.Named[1].TxHash, done.Named[2].Effect, done.Named[2].TxHash, done.Named[2].Stated); got != fmt.Sprintln(3, "RECORDED", first, "REVERTED", second, "RECORDED", "", true) {
		t.Errorf("named: got %s, want the first two by their transactions, and the last stated", got)
	}
	b.wantRecorded(t, succeeded)
	b.wantCount(t, "the request whose transaction reverted", 1, `select count(*) from managed_tx where tx_id = $1 and state = 'FAILED' and sub_state = 'REVERTED' and tx_hash = $2 and receipt is not null`, reverted, second)
	b.allEnded(t)
	b.wantStated(t, orderTo(s, "lost", common.Address{0xb3}, 13))
	equal(t, "wei on the chain of what was named", b.received(t, paid), 11)
}

// wantStated checks a caller's answers about a request that ended by an operator's statement.
func (b bench) wantStated(t *testing.T, intent map[string]any) {
	t.Helper()
	status, answer := b.again(t, stack.CallerAccount, http.MethodPost, "/api/v1/tx", intent)
	if status != http.StatusConflict || !strings.Contains(answer, `"REQUEST_RECORDED"`) || !strings.Contains(answer, "an operator stated") {
		t.Errorf("posted again: got %d %s, want 409 REQUEST_RECORDED that says whose word it is", status, answer)
	}
	var r record
	a := b.byRequest(t, stack.CallerAccount, intent)
	a.decode(&r)
	if r.State != "CONFIRMED" || text(r.SubState) != "RECORDED" || r.TxHash != nil || string(r.Receipt) != "null" || !strings.Contains(text(r.LastError), "an operator stated") {
		t.Errorf("by request: got %s, want CONFIRMED/RECORDED without a receipt, on an operator's statement", a.text)
	}
	_, answer = b.again(t, stack.CallerAccount, http.MethodPost, "/api/v1/tx/"+r.TxID+"/cancel", nil)
	says(t, "cancel", answer, `"EXECUTED"`, `"stated":true`)
}

package acceptance

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack"
)

// answers returns all that an account can read of a transaction, by path.
func (b bench) answers(t *testing.T, account, txID, requestID string) map[string]string {
	t.Helper()
	s := url.QueryEscape(string(b.Submitters()[0]))
	all := map[string]string{}
	for _, path := range []string{"/api/v1/tx/" + txID, "/api/v1/tx/by-request?submitter=" + s + "&requestId=" + requestID,
		"/api/v1/tx?submitter=" + s, "/api/v1/events?submitter=" + s} {
		a := b.call(t, account, http.MethodGet, path, nil)
		a.need(path, http.StatusOK)
		all[path] = a.text
	}
	return all
}

// A node's messages contain nonces. Only operators see these messages; no answer to a caller and no
// event has them.
func TestNoNonceReachesACaller(t *testing.T) {
	t.Parallel()
	const words = "nonce too high: tx nonce 31337, gapped, next nonce 31336"
	b := setup(t, stack.Options{RPCProxy: true, Submitters: 1, Processes: 1, Settings: withSettings(quick, map[string]string{
		"FENCEPOST_EVENTS_MODE": "mq_outbox", "FENCEPOST_RESUBMIT_MAX_ATTEMPTS": "1000",
	})})
	s := b.Submitters()[0]
	_, refused := b.post(t, map[string]any{"submitter": s, "requestId": "reverts", "payload": map[string]any{"data": "0xfe"}})
	b.await(t, s, "FAILED", 1)
	b.RPC.SetFaults(rpcproxy.Faults{Refuse: func(*types.Transaction) string { return words }})
	_, held := b.post(t, transfer(s, "held"))
	b.awaitCount(t, "the node's words were never stored: this test sees nothing", 1, `select count(*) from managed_tx where tx_id = $1 and last_error like '%31337%'`, held)
	for requestID, txID := range map[string]string{"reverts": refused, "held": held} {
		for path, answer := range b.answers(t, stack.CallerAccount, txID, requestID) {
			for _, word := range []string{"31337", "31336", `"nonce":`, "lastErrorDetail", "for operators", "opcode"} {
				if strings.Contains(answer, word) {
					t.Errorf("a caller's GET %s has %q: %s", path, word, answer)
				}
			}
		}
	}
	says(t, "the caller's answer", b.answers(t, stack.CallerAccount, held, "held")["/api/v1/tx/"+held],
		`"nonce_too_high: the node refuses it before the transactions of lower nonces; it is sent again"`)
	says(t, "the operator's answer", b.answers(t, stack.OperatorAccount, held, "held")["/api/v1/tx/"+held], `"lastErrorDetail":"`+words+`"`)
	b.wantCount(t, "events with the sentence for callers", 1, `select count(*) from event where type = 'TxFailed' and body -> 'data' ->> 'detail' = 'the call would revert'`)
	b.RPC.SetFaults(rpcproxy.Faults{})
}

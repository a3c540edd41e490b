package attacks

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
)

// A policy that names one function of a token contract forbids the contract's other
// functions. It refuses new intents, and those that wait for a nonce when it is set.
func TestAFunctionOfATargetAllowsNoOther(t *testing.T) {
	t.Parallel()
	h := setup(t, stack.Options{Processes: 2})
	s := h.Submitters()[0]
	operator, shop := h.operator(t), h.token(t, stack.CallerAccount)
	const token, thief = "0x00000000000000000000000000000000000cafe0", "0x00000000000000000000000000000000000e71b2"
	calls := func(requestID, function string) answer {
		in := intent(s, requestID)
		in["payload"] = map[string]any{"to": token, "function": function, "args": []any{thief, "1000"}}
		return h.call(t, shop, http.MethodPost, "/api/v1/tx", in)
	}
	const transfer, approve = "transfer(address,uint256)", "approve(address,uint256)"
	h.Chain.StopMining()
	first := calls("bound", transfer)
	h.await(t, first.TxID, "TRACKING")
	waiting := calls("waiting", approve)
	waiting.wantStatus(t, "without a policy", http.StatusAccepted)
	must(operator.SetPolicy(h.ctx, string(s), client.Policy{Targets: []string{token + ":" + transfer}}, "pays in this token alone"))(t)
	calls("approve", approve).want(t, "approve", "403 POLICY_REFUSED", "payload.to")
	pays := intent(s, "pays")
	pays["payload"] = map[string]any{"to": token, "value": "1"}
	h.call(t, shop, http.MethodPost, "/api/v1/tx", pays).want(t, "a payment to the contract", "403 POLICY_REFUSED")
	good := calls("transfer", transfer)
	h.Chain.StartMining()
	h.await(t, first.TxID, "CONFIRMED")
	h.await(t, waiting.TxID, "FAILED")
	h.await(t, good.TxID, "CONFIRMED")
	end := h.says(t, `select coalesce(sub_state, '') || ' ' || coalesce(nonce::text, 'no nonce') || ': ' || last_error from managed_tx where tx_id = $1`, waiting.TxID)
	if want := "REJECTED no nonce: the submitter's policy does not allow this target"; !strings.HasPrefix(end, want) {
		t.Errorf("what waited: got %q, want %q", end, want)
	}
}

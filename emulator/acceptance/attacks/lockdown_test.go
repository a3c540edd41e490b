package attacks

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
)

// A thief's queued intent is not carried out after the operator sets a policy that forbids it. It ends
// without a nonce, with the reason, and blocks no later intent.
func TestAPolicyHoldsForWhatIsQueued(t *testing.T) {
	t.Parallel()
	h := setup(t, stack.Options{Processes: 2})
	h.Chain.StopMining()
	s := h.Submitters()[0]
	operator, shop := h.operator(t), h.token(t, stack.CallerAccount)
	bound := h.post(t, shop, s, "bound before")
	h.await(t, bound.TxID, "TRACKING")
	const thief = "0x00000000000000000000000000000000000e71b2"
	var stolen []string
	for i := range 5 {
		in := intent(s, fmt.Sprint("theft-", i))
		in["payload"] = map[string]any{"to": thief, "value": "1000000000000000000"}
		a := h.call(t, shop, http.MethodPost, "/api/v1/tx", in)
		a.wantStatus(t, fmt.Sprint("theft ", i), http.StatusAccepted)
		stolen = append(stolen, a.TxID)
	}
	h.wantCount(t, "the queued thefts", 5, `select count(*) from managed_tx where tx_id = any($1) and state = 'QUEUED'`, stolen)
	must(operator.SuspendSubmitter(h.ctx, string(s), "a theft"))(t)
	allowed := client.Policy{MaxValue: "1", Targets: []string{"0x00000000000000000000000000000000000cafe0"}}
	set := must(operator.SetPolicy(h.ctx, string(s), allowed, "a theft"))(t)
	if set.Forbidden == nil || *set.Forbidden != len(stolen) {
		t.Errorf("before the resume: told that %v of the queue are forbidden, want %d", set.Forbidden, len(stolen))
	}
	h.Chain.StartMining()
	must(operator.ResumeSubmitter(h.ctx, string(s), "the policy forbids it"))(t)
	good := h.post(t, shop, s, "good")
	h.await(t, bound.TxID, "CONFIRMED")
	h.await(t, good.TxID, "CONFIRMED")
	for _, id := range stolen {
		h.await(t, id, "FAILED")
	}
	reasons := h.says(t, `select string_agg(distinct coalesce(sub_state, '') || ' ' || coalesce(nonce::text, 'no nonce') || ': ' || last_error, '; ') from managed_tx where tx_id = any($1)`, stolen)
	if want := "REJECTED no nonce: the submitter's policy allows at most 1 wei in one transaction"; !strings.HasPrefix(reasons, want) || strings.Contains(reasons, ";") {
		t.Errorf("the thefts' ends: got %q, want %q", reasons, want)
	}
}

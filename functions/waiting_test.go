package functions_test

import (
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// A caller sees why its transaction waits, its place in the queue, and what it waits for.
func TestCallerSeesWhyItsTransactionWaits(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.Register(t, shopAccount, 1)
	ids := map[string]string{}
	for _, name := range []string{"first", "second"} {
		ids[name] = fmt.Sprint(h.as("shop", "POST", "/api/v1/tx", map[string]any{"submitter": shopAccount, "requestId": name, "payload": map[string]any{"to": paidTo}}).body["txId"])
	}
	waiting := func(name string) map[string]any {
		t.Helper()
		w, _ := h.as("shop", "GET", "/api/v1/tx/"+ids[name], nil).body["waiting"].(map[string]any)
		return w
	}
	h.run(`update managed_tx set wait_cause = 'BALANCE', waiting_since = now() where tx_id = $1`, ids["first"])
	first, second := waiting("first"), waiting("second")
	check.Equal(t, "the head", fmt.Sprint(first["cause"], first["position"], first["blockedBy"], first["expectedAt"]), "BALANCE1 <nil> <nil>")
	by, _ := second["blockedBy"].(map[string]any)
	check.Equal(t, "behind it", fmt.Sprint(second["cause"], second["position"], by["txId"] == ids["first"], by["cause"]), "EARLIER_INTENT2 true BALANCE")
	h.as("shop", "POST", "/api/v1/tx/"+ids["first"]+"/cancel", nil).wants(t, 200, "cancel")
	if w := waiting("first"); w != nil {
		t.Errorf("ended: got %v, want nothing", w)
	}
}

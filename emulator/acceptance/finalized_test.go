package acceptance

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// On a chain whose nodes have no tag "finalized" a loss cannot be accepted until an operator declares
// this by chain.finalizedTag. Then the final count is the count at confirmations.required blocks below
// the head.
func TestResyncWithoutAFinalizedTag(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Submitters: 1, Processes: 1, RPCProxy: true, Settings: withSettings(quick, map[string]string{
		"FENCEPOST_CONFIRMATIONS_REQUIRED": "5",
	})})
	s := b.Submitters()[0]
	b.RPC.SetFaults(rpcproxy.Faults{NoTags: true})
	b.useTheKey(t, 0, 1)
	b.mine(t, 1)
	b.post(t, transfer(s, "waiting"))
	incident, _ := b.inProtect(t, s)
	b.mine(t, 70)
	resync := map[string]any{"incident": incident, "mode": "resync", "count": 1, "reason": "the key was used by hand", "requests": map[string]string{"0": "none"}}
	if status, text := b.release(t, s, resync); status != http.StatusBadRequest || !strings.Contains(text, "chain.finalizedTag") {
		t.Errorf("resync where nobody declared that the tag is missing: got %d %s, want 400 and which setting", status, text)
	}
	before := b.Processes()
	if _, err := b.StartProcess(b.ctx, map[string]string{"FENCEPOST_CHAIN_FINALIZED_TAG": "false"}); err != nil {
		t.Fatal(err)
	}
	for _, p := range before {
		b.forget(p)
	}
	wrong := map[string]any{"incident": incident, "mode": "resync", "count": 2, "reason": "a slip"}
	if status, text := b.release(t, s, wrong); status != http.StatusBadRequest || !strings.Contains(text, "is 1") {
		t.Errorf("resync to another count: got %d %s, want 400 with the chain's", status, text)
	}
	if status, text := b.release(t, s, resync); status != http.StatusOK {
		t.Fatalf("resync: got %d %s, want 200", status, text)
	}
	b.await(t, s, txmanager.Confirmed, 1)
	b.wantContiguous(t, s, 2)
}

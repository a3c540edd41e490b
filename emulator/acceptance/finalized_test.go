package acceptance

import (
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
	incident := b.inProtect(t, s)
	b.mine(t, 70)
	resync := map[string]any{"incident": incident, "mode": "resync", "count": 1, "reason": "the key was used by hand", "requests": map[string]string{"0": "none"}}
	b.refusedRelease(t, "resync where nobody declared that the tag is missing", s, resync, "chain.finalizedTag")
	before := b.Processes()
	must(b.StartProcess(b.ctx, map[string]string{"FENCEPOST_CHAIN_FINALIZED_TAG": "false"}))(t)
	for _, p := range before {
		b.forget(p)
	}
	wrong := map[string]any{"incident": incident, "mode": "resync", "count": 2, "reason": "a slip"}
	b.refusedRelease(t, "resync to another count", s, wrong, "is 1")
	b.released(t, s, "", resync)
	b.await(t, s, txmanager.Confirmed, 1)
	b.wantContiguous(t, s, 2)
}

package acceptance

import (
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// One node that tags its head as safe makes nothing final if the other nodes' tag is lower. A node
// that does not know that block, asked first, prevents no finality.
func TestFinalityByTagOfSeveralNodes(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Nodes: 3, Settings: withSettings(nodesQuick, map[string]string{
		"FENCEPOST_FINALITY_MODE": "safe", "FENCEPOST_CONFIRMATIONS_STALE_RECEIPT_TIMEOUT": "1s",
	})})
	s := b.Submitters()[0]
	b.Chain.StopMining()
	for _, n := range b.Nodes[1:] {
		n.SetFaults(rpcproxy.Faults{TagsBehind: 10}) // here the head is safe at once
	}
	b.postUntilAnswered(t, transfer(s, "first"))
	b.await(t, s, txmanager.Tracking, 1)
	b.mine(t, 9)
	b.confirmedBy(t, 9)
	b.wantCount(t, "final by the tag of one node", 0, `select count(*) from managed_tx where state = 'CONFIRMED'`)
	b.mine(t, 1+64)
	b.await(t, s, txmanager.Confirmed, 1)
	for _, n := range b.Nodes[1:] {
		n.SetFaults(rpcproxy.Faults{})
	}
	b.Nodes[0].SetFaults(rpcproxy.Faults{NoTags: true})
	b.postUntilAnswered(t, transfer(s, "second"))
	b.await(t, s, txmanager.Tracking, 1)
	b.mine(t, 65)
	b.ends(t, map[txmanager.Submitter]int{s: 2})
	b.calm(t)
}

// With finality by the chain's tags no number of confirming blocks makes a transaction final. The tag
// does, once it reaches the transaction's block.
func TestFinalityByTag(t *testing.T) {
	t.Parallel()
	for _, tag := range []string{"safe", "finalized"} {
		parallel(t, tag, func(t *testing.T) {
			b := setup(t, stack.Options{RPCProxy: true, Settings: withSettings(quick, map[string]string{
				"FENCEPOST_FINALITY_MODE": tag, "FENCEPOST_CONFIRMATIONS_REQUIRED": "1", "FENCEPOST_CONFIRMATIONS_STALE_RECEIPT_TIMEOUT": "1s",
			})})
			s := b.Submitters()[0]
			b.Chain.StopMining()
			b.RPC.SetFaults(rpcproxy.Faults{TagsBehind: 10}) // here the head is safe at once
			b.postUntilAnswered(t, transfer(s, "first"))
			b.postUntilAnswered(t, transfer(s, "second"))
			b.await(t, s, txmanager.Tracking, 1)
			b.mine(t, 9)
			b.confirmedBy(t, 9) // the list has all of them
			b.wantCount(t, fmt.Sprintf("final below the %s block", tag), 0, `select count(*) from managed_tx where state = 'CONFIRMED'`)
			b.mine(t, 1+64) // the development chain finalizes the last but one of every 32nd block
			b.await(t, s, txmanager.Confirmed, 1)
			b.RPC.SetFaults(rpcproxy.Faults{})
			b.await(t, s, txmanager.Tracking, 1)
			b.mine(t, 65)
			b.ends(t, map[txmanager.Submitter]int{s: 2})
			b.calm(t)
		})
	}
}

package local

import (
	"slices"
	"time"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/chain/nodes"
	"github.com/fencepost/fencepost/shared/client"
)

func slowNode(x *exercise) {
	x.faultyNode(0, rpcproxy.Faults{Hang: 1}, nodes.Failed, "answers nothing any more. Expect: its calls time out")
}

// lyingNode has the fault at another node than slowNode, whose node may still be excluded.
func lyingNode(x *exercise) {
	x.faultyNode(1, rpcproxy.Faults{WrongStatus: true}, nodes.Outvoted, "says of each transaction that it failed. Expect: the others contradict it")
}

// faultyNode causes a fault at a node, and posts intents until the node is excluded with the result. They end by the
// others.
func (x *exercise) faultyNode(i int, f rpcproxy.Faults, want nodes.Result, expect string) {
	x.Nodes[i].SetFaults(f)
	defer x.Nodes[i].SetFaults(rpcproxy.Faults{})
	x.say(`The node %s %s, and it is excluded for a while. The intents still end by the others.
GET /admin/v1/chains shows it, and fencepost_rpc_node_total on /metrics counts it (docs/telemetry.md). docs/runbooks/%s
says what to do about each result.`, x.Nodes[i].URL(), expect, x.Runbook)
	var shown client.Node
	for shown.Excluded != string(want) {
		x.goesOn()
		shown = x.nodeShown(i, func(n client.Node) bool { return n.Excluded == string(want) })
	}
	x.say("GET /admin/v1/chains: %s is excluded until %s: %s. Last error: %s", shown.Name, shown.ExcludedUntil.Format(time.TimeOnly), shown.Excluded, shown.LastError)
	x.Nodes[i].SetFaults(rpcproxy.Faults{})
	if shown = x.nodeShown(i, func(n client.Node) bool { return n.Error == "" }); shown.Error != "" {
		steps.Stopf("the node %s is well again, and answers %s", shown.Name, shown.Error)
	}
	x.say("The node is well again. Each process uses it again once it is not excluded any more (rpc.leaveOut).")
}

// nodeShown returns a node of the chain as an operator sees it. Each process has its own exclusions, so several are
// asked until the node is as wanted.
func (x *exercise) nodeShown(i int, wanted func(client.Node) bool) (n client.Node) {
	for range 4 * len(x.Processes()) {
		chains := steps.Value(x.operator.ListChains(x.ctx))
		c := slices.IndexFunc(chains, func(c client.Chain) bool { return c.ChainID == x.Chain.ChainID() })
		if c < 0 || len(chains[c].Nodes) <= i {
			steps.Stopf("chains: got %+v, want chain %d with its nodes", chains, x.Chain.ChainID())
		}
		if n = chains[c].Nodes[i]; wanted(n) {
			break
		}
	}
	return n
}

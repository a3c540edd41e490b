package local

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/shared/chain/nodes"
	"github.com/fencepost/fencepost/shared/client"
)

func slowNode(ctx context.Context, x *exercise) error {
	return x.faultyNode(ctx, 0, rpcproxy.Faults{Hang: 1}, nodes.Failed, "answers nothing any more. Expect: its calls time out")
}

// lyingNode has the fault at another node than slowNode, whose node may still be excluded.
func lyingNode(ctx context.Context, x *exercise) error {
	return x.faultyNode(ctx, 1, rpcproxy.Faults{WrongStatus: true}, nodes.Outvoted, "says of each transaction that it failed. Expect: the others contradict it")
}

// faultyNode causes a fault at a node, and posts intents until the node is excluded with the result. They end by the
// others.
func (x *exercise) faultyNode(ctx context.Context, i int, f rpcproxy.Faults, want nodes.Result, expect string) error {
	x.Nodes[i].SetFaults(f)
	defer x.Nodes[i].SetFaults(rpcproxy.Faults{})
	x.say(`The node %s %s, and it is excluded for a while. The intents still end by the others.
GET /admin/v1/chains shows it, and fencepost_rpc_node_total on /metrics counts it (docs/telemetry.md). docs/runbooks/%s
says what to do about each result.`, x.Nodes[i].URL(), expect, x.runbook)
	var shown client.Node
	for shown.Excluded != string(want) {
		err := x.goesOn(ctx)
		if err == nil {
			shown, err = x.nodeShown(ctx, i, func(n client.Node) bool { return n.Excluded == string(want) })
		}
		if err != nil {
			return err
		}
	}
	x.say("GET /admin/v1/chains: %s is excluded until %s: %s. Last error: %s", shown.Name, shown.ExcludedUntil.Format(time.TimeOnly), shown.Excluded, shown.LastError)
	x.Nodes[i].SetFaults(rpcproxy.Faults{})
	shown, err := x.nodeShown(ctx, i, func(n client.Node) bool { return n.Error == "" })
	if err == nil && shown.Error != "" {
		err = fmt.Errorf("the node %s is well again, and answers %s", shown.Name, shown.Error)
	}
	if err == nil {
		x.say("The node is well again. Each process uses it again once it is not excluded any more (rpc.leaveOut).")
	}
	return err
}

// nodeShown returns a node of the chain as an operator sees it. Each process has its own exclusions, so several are
// asked until the node is as wanted.
func (x *exercise) nodeShown(ctx context.Context, i int, wanted func(client.Node) bool) (n client.Node, err error) {
	for range 4 * len(x.Processes()) {
		chains, err := x.operator.ListChains(ctx)
		if err != nil {
			return n, err
		}
		c := slices.IndexFunc(chains, func(c client.Chain) bool { return c.ChainID == x.Chain.ChainID() })
		if c < 0 || len(chains[c].Nodes) <= i {
			return n, fmt.Errorf("chains: got %+v, want chain %d with its nodes", chains, x.Chain.ChainID())
		}
		if n = chains[c].Nodes[i]; wanted(n) {
			return n, nil
		}
	}
	return n, nil
}

package acceptance

import (
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// An operator sees each submitter's account as the nodes show it, what it spends, and each node's trouble. A
// node that fails or hangs is shown, and fails no answer.
func TestOperatorSeesChainsAndAccounts(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Nodes: 3, Seed: 1, Processes: 1, Settings: nodesQuick})
	s := b.Submitters()[0]
	for _, request := range []string{"1", "2"} {
		b.post(t, transfer(s, request))
		b.await(t, s, txmanager.Confirmed, int(request[0]-'0'))
	}
	operator := must(b.Client(stack.OperatorAccount))(t)
	var shown *client.ChainAccount
	var took time.Duration
	// A busy machine may let a sound node miss the time for an answer, and a rate needs a second.
	see := func(what string, met func() bool) {
		t.Helper()
		b.until(t, what, func() bool {
			began := time.Now()
			shown = must(operator.Submitter(b.ctx, string(s)))(t).Chain
			took = time.Since(began)
			return met()
		})
	}
	see("the account was never shown by three nodes with a rate", func() bool {
		return shown != nil && shown.Spending != nil && shown.Spending.LastsSeconds != nil && !slices.ContainsFunc(shown.Nodes, func(n client.NodeAccount) bool { return n.Error != "" })
	})
	if shown == nil || shown.Latest == nil || *shown.Latest != 2 || *shown.Pending != 2 || len(shown.Balance) < 19 || len(shown.Nodes) != 3 || shown.Error != "" {
		t.Fatalf("the account: got %+v, want two transactions and a balance, by three nodes", shown)
	}
	if p := shown.Spending; p == nil || p.Transactions != 2 || len(p.Wei) < 12 || p.LastsSeconds == nil || *p.LastsSeconds <= 0 {
		t.Errorf("spending: got %+v, want that of two transactions", p)
	}
	b.Nodes[0].SetFaults(rpcproxy.Faults{Unavailable: 1})
	b.Nodes[1].SetFaults(rpcproxy.Faults{Hang: 1})
	see("the third node's answer was never shown within a limit beside two in trouble", func() bool {
		return shown.Nodes[2].Error == "" && took < 6*time.Second
	})
	if n := shown.Nodes; n[0].Error == "" || n[0].Latest != nil || n[1].Error == "" || n[2].Error != "" || *n[2].Latest != 2 || *shown.Latest != 2 {
		t.Errorf("with two nodes in trouble: got %+v, want the answer of the third", shown)
	}
	b.Nodes[2].SetFaults(rpcproxy.Faults{Unavailable: 1})
	if shown = must(operator.Submitter(b.ctx, string(s)))(t).Chain; shown.Latest != nil || shown.Balance != "" || shown.Nodes[2].Error == "" {
		t.Errorf("without a node: got %+v, want no count", shown)
	}
	b.Nodes[1].SetFaults(rpcproxy.Faults{})
	b.Nodes[2].SetFaults(rpcproxy.Faults{})
	b.post(t, transfer(s, "3")) // whoever works for it excludes the first node
	b.await(t, s, txmanager.Confirmed, 3)
	var chain client.Chain
	b.until(t, "the sound nodes never answered", func() bool {
		chain = must(operator.ListChains(b.ctx))(t)[0]
		return len(chain.Nodes) == 3 && chain.Nodes[1].Error+chain.Nodes[2].Error+chain.Nodes[2].Excluded == "" && chain.MeasuredBlockTime != nil
	})
	if chain.ChainID != b.Chain.ChainID() || chain.Quorum != 2 || len(chain.Nodes) != 3 || chain.MeasuredBlockTime == nil {
		t.Fatalf("chains: got %+v, want the one with three nodes and its block time", chain)
	}
	bad, good := chain.Nodes[0], chain.Nodes[2]
	if bad.Error == "" || bad.Head != nil || bad.Excluded != "error" || bad.ExcludedUntil == nil || bad.LastError == "" || bad.LastErrorAt == nil {
		t.Errorf("the node in trouble: got %+v, want its error and its exclusion", bad)
	}
	if good.Error != "" || good.Head == nil || *good.Lag > 2 || time.Since(*good.HeadAt) > time.Minute || good.Excluded != "" {
		t.Errorf("a sound node: got %+v, want its head", good)
	}
}

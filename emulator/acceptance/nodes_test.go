package acceptance

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// nodesQuick readmits excluded nodes soon.
var nodesQuick = withSettings(quick, map[string]string{
	"FENCEPOST_RPC_LEAVE_OUT": "1s", "FENCEPOST_CONFIRMATIONS_REQUIRED": "2", "FENCEPOST_RESUBMIT_MAX_ATTEMPTS": "1000",
})

// fork returns another chain of the same id, on which the first submitter's account was used n times.
func (b bench) fork(t *testing.T, n int) *devchain.Chain {
	t.Helper()
	funded := devchain.DevAccounts(b.first + 4)
	chain := must(devchain.Start(b.ctx, devchain.Options{BlockTime: 200 * time.Millisecond, Accounts: funded}))(t)
	t.Cleanup(func() { _ = chain.Close() })
	forked := bench{Deployment: &acceptancetest.Deployment{Stack: &stack.Stack{Chain: chain}, Node: must(ethclient.DialContext(b.ctx, chain.URL()))(t)}, ctx: b.ctx}
	defer forked.Node.Close()
	for i := range n {
		forked.byHand(t, funded[b.first], forked.Payment(uint64(i), unused, 7, 1))
	}
	check(t, chain.WaitBlock(b.ctx, 60))
	return chain
}

// The first node fails, does not answer, lags, is on another chain, or is on a fork on which the key
// was used. Work continues in order by the other nodes, and opens no PROTECT incident.
func TestSeveralNodesOneInTrouble(t *testing.T) {
	t.Parallel()
	troubles := map[string]func(t *testing.T, b bench){
		"unavailable": func(_ *testing.T, b bench) { b.Nodes[0].SetFaults(rpcproxy.Faults{Unavailable: 1}) },
		"silent":      func(_ *testing.T, b bench) { b.Nodes[0].SetFaults(rpcproxy.Faults{Hang: 1}) },
		"lagging":     func(_ *testing.T, b bench) { b.Nodes[0].SetFaults(rpcproxy.Faults{Lag: 9, LagShare: 1}) },
		"refusing what is sent": func(_ *testing.T, b bench) {
			b.Nodes[0].SetFaults(rpcproxy.Faults{Refuse: func(*types.Transaction) string { return "nonce too low" }})
		},
		"without receipts": func(_ *testing.T, b bench) { b.Nodes[0].SetFaults(rpcproxy.Faults{ForgetReceipt: 1}) },
		"gone by turns": func(_ *testing.T, b bench) {
			b.Nodes[0].SetFaults(rpcproxy.Faults{Unavailable: 0.5})
			b.Nodes[1].SetFaults(rpcproxy.Faults{Drop: 0.3, Lag: 3, LagShare: 0.3})
		},
		"of another chain": func(t *testing.T, b bench) {
			other := must(devchain.Start(b.ctx, devchain.Options{ChainID: 4242}))(t)
			t.Cleanup(func() { _ = other.Close() })
			b.Nodes[0].SetTarget(other.URL())
		},
		"wrong about success": func(_ *testing.T, b bench) { b.Nodes[0].SetFaults(rpcproxy.Faults{WrongStatus: true}) },
		"on a fork":           func(t *testing.T, b bench) { b.Nodes[0].SetTarget(b.fork(t, 5).URL()) },
	}
	o := stack.Options{Nodes: 3, Seed: 1, Settings: nodesQuick}
	inTurn(t, o, slices.Sorted(maps.Keys(troubles)), func(t *testing.T, b bench, trouble string) {
		before := b.postAll(t, 2)
		b.finish(t)
		troubles[trouble](t, b)
		for s, n := range b.postMore(t, "more", 3) {
			before[s] += n
		}
		b.ends(t, before)
		b.inOrder(t)
		b.calm(t)
		b.Nodes[0].SetFaults(rpcproxy.Faults{})
		b.Nodes[0].SetTarget(b.Chain.URL())
		for s, n := range b.postMore(t, "later", 1) {
			before[s] += n
		}
		b.ends(t, before)
		b.calm(t)
		b.Nodes[1].SetFaults(rpcproxy.Faults{})
	})
}

func (b bench) postMore(t *testing.T, name string, n int) map[txmanager.Submitter]int {
	t.Helper()
	want := make(map[txmanager.Submitter]int)
	for _, s := range b.Submitters() {
		for i := range n {
			b.call(t, stack.CallerAccount, http.MethodPost, "/api/v1/tx", transfer(s, fmt.Sprintf("%s-%d", name, i))).need("post", http.StatusAccepted)
			want[s]++
		}
	}
	return want
}

// The same fork at the only node opens PROTECT, as no other node disagrees. With several nodes, a
// foreign transaction that all of them show also opens it, and the evidence names the agreeing nodes.
func TestForeignUseByOneNodeAndByAll(t *testing.T) {
	t.Parallel()
	parallel(t, "one node", func(t *testing.T) {
		b := setup(t, stack.Options{Nodes: 1, Settings: nodesQuick})
		b.RPC.SetTarget(b.fork(t, 5).URL())
		b.post(t, transfer(b.Submitters()[0], "refused"))
		b.inProtect(t, b.Submitters()[0])
	})
	parallel(t, "three nodes", func(t *testing.T) {
		b := setup(t, stack.Options{Nodes: 3, Settings: nodesQuick})
		b.useTheKey(t, 0, 1)
		b.post(t, transfer(b.Submitters()[0], "refused"))
		b.inProtect(t, b.Submitters()[0], strings.TrimPrefix(b.Nodes[1].URL(), "http://"), strings.TrimPrefix(b.Nodes[2].URL(), "http://"))
	})
}

// With every node down nothing fails and nothing is STUCK. Transactions wait and continue when one
// node is back, and then a second.
func TestAllNodesAwayHarmNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Nodes: 3, Settings: nodesQuick})
	s := b.Submitters()[0]
	want := b.postAll(t, 2)
	b.finish(t)
	away := []rpcproxy.Faults{{Unavailable: 1}, {Drop: 1}, {Hang: 1}}
	for i, f := range away {
		b.Nodes[i].SetFaults(f)
	}
	for s, n := range b.postMore(t, "meanwhile", 2) {
		want[s] += n
	}
	b.logged(t, "chain not reached")
	b.await(t, s, txmanager.Queued, 2)
	b.Nodes[1].SetFaults(rpcproxy.Faults{})
	b.logged(t, "the chain's other nodes do not agree")
	b.wantCount(t, "final by one node of three", 2, `select count(*) from managed_tx where submitter = $1 and state = 'CONFIRMED'`, s)
	b.Nodes[0].SetFaults(rpcproxy.Faults{})
	b.ends(t, want)
	b.inOrder(t)
	b.calm(t)
}

// Two nodes are on two forks, each with the transaction in a different block. Neither ends it,
// whichever is ahead. Once they agree, it ends.
func TestTwoNodesOnTwoForks(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Nodes: 2, Submitters: 1, Settings: withSettings(nodesQuick, map[string]string{
		"FENCEPOST_LEASE_DURATION": "30s", "FENCEPOST_LEASE_RENEW_INTERVAL": "10s", "FENCEPOST_RPC_TIMEOUT": "30s", // a slow node is not down
	})})
	s := b.Submitters()[0]
	fork := b.fork(t, 0)
	b.Nodes[1].SetTarget(fork.URL())
	b.post(t, transfer(s, "on both"))
	b.logged(t, "the chain's other nodes do not agree")
	for _, chain := range []*devchain.Chain{b.Chain, fork} {
		check(t, chain.WaitBlock(b.ctx, chain.Head()+20))
	}
	b.wantCount(t, "ends while the two nodes disagree", 0, `select count(*) from tx_history where state in ('CONFIRMED', 'FAILED')`)
	b.Nodes[1].SetTarget(b.Chain.URL())
	b.await(t, s, txmanager.Confirmed, 1)
	b.wantContiguous(t, s, 1)
	b.wantCount(t, "PROTECT incidents", 0, `select count(*) from protect_incident`)
}

// An accepted loss must be proven by a quorum. With two of three nodes down resync is refused and
// changes nothing. With one of them back it succeeds in the same process, which excludes that node for
// longer than the test takes.
func TestResyncNeedsAQuorumOfNodes(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Nodes: 3, Submitters: 1, Processes: 1, Settings: withSettings(nodesQuick, map[string]string{
		"FENCEPOST_RPC_LEAVE_OUT":  "1h", // a sound node that is slow for a while must not be excluded
		"FENCEPOST_LEASE_DURATION": "30s", "FENCEPOST_LEASE_RENEW_INTERVAL": "10s", "FENCEPOST_RPC_TIMEOUT": "30s", "FENCEPOST_RPC_MAX_LAG": "1000",
	})})
	s := b.Submitters()[0]
	id := b.inFlight(t, transfer(s, "taken"))
	b.Chain.DropPool()
	b.useTheKey(t, 0, 200) // more than our transaction pays, which can have been sent again
	b.Chain.StartMining()
	incident := b.inProtect(t, s)
	b.await(t, s, txmanager.Protect, 1)
	b.mine(t, 70)
	resync := map[string]any{"incident": incident, "mode": "resync", "count": 1, "reason": "the key was shared"}
	for _, n := range b.Nodes[1:] {
		n.SetFaults(rpcproxy.Faults{Unavailable: 1})
	}
	status, text := b.releaseOnce(t, s, resync)
	equal(t, "resync by one node of three", status, http.StatusServiceUnavailable)
	says(t, "resync by one node of three", text, "no quorum agrees")
	b.wantState(t, "the intent after it", id, "PROTECT")
	b.Nodes[2].SetFaults(rpcproxy.Faults{})
	b.released(t, s, "", resync)
	b.wantFate(t, "the intent", id, "FAILED/DISPLACED", 0)
}

// A reservation queries the chain by the same rules. The fork of the first node, on which the key was
// used, neither refuses it nor opens PROTECT.
func TestReservationsNeedAQuorumOfNodes(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Nodes: 3, Submitters: 1, Settings: withHooks(nodesQuick)})
	s := b.Submitters()[0]
	b.Nodes[0].SetTarget(b.fork(t, 5).URL())
	all := b.allocate(t, s, "owner", "one")
	if len(all) != 1 || all[0].Nonce != 0 {
		t.Fatalf("reserved: got %+v, want nonce 0", all)
	}
	b.uses(t, all[0])
	b.await(t, s, txmanager.Confirmed, 1)
	b.calm(t)
}

// With three nodes a transaction costs three round trips more than with one: two sends to the others,
// and one call to agree on its end by quorum.
func TestRoundTripsOfThreeNodes(t *testing.T) {
	t.Parallel()
	of := func(nodes int, enough stack.Cost) stack.Cost {
		b := setup(t, stack.Options{Nodes: nodes, Submitters: 1, Processes: 1, BlockTime: time.Second, Settings: map[string]string{
			"FENCEPOST_RPC_LEAVE_OUT": "1h", // heads are compared once
		}})
		return b.cheapest(t, enough)
	}
	if one, three := of(1, oneNodeLife), of(3, threeNodesLife); one != oneNodeLife || three != threeNodesLife {
		t.Errorf("round trips of a life: got %+v with one node and %+v with three, want %+v and %+v", one, three, oneNodeLife, threeNodesLife)
	}
}

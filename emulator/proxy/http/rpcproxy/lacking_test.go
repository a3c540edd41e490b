package rpcproxy_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/chain/nodes"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// A node without a finalized block is skipped for reads of it while another node has it. It is not
// excluded, and it is first again once it has one.
func TestNodeWithoutTagsIsSkippedForThem(t *testing.T) {
	t.Parallel()
	account := eip155.NewSubmitter(1337, devchain.DevAccounts(1)[0].Address)
	for name, q := range map[string]txmanager.ChainQuery{
		"the block": {Finality: "finalized"},
		"a count":   {Submitter: account, FinalCount: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := severalNodes(t, 3, nil)
			check.OK(t)(s.chain.Mine(100))
			query := func(when string, node int) {
				t.Helper()
				v, err := s.connector.Query(t.Context(), q)
				if err != nil || s.number(v.Node) != node || v.Tagged == nil && v.FinalCount == nil {
					t.Fatalf("query %s: got node %d, tag %v, count %v, %v; want it from node %d", when, s.number(v.Node), v.Tagged, v.FinalCount, err, node)
				}
			}
			query("before", 0)
			for i := range 3 {
				s.proxies[i].SetFaults(rpcproxy.Faults{NoTags: true})
				if i < 2 {
					query("while the first have none", i+1)
				}
				s.query(t, "for something else", 0)
			}
			if v, err := s.connector.Query(t.Context(), q); err != nil || v.Tagged != nil || v.FinalCount != nil {
				t.Fatalf("query while none has one: got tag %v, count %v, %v; want an observation without", v.Tagged, v.FinalCount, err)
			}
			if got := s.connector.Excluded(); len(got) != 0 {
				t.Errorf("excluded: got %v, want none", got)
			}
			for i := 2; i >= 0; i-- {
				s.proxies[i].SetFaults(rpcproxy.Faults{})
				s.queryUntil(t, "it has one again", i, q)
			}
		})
	}
}

// A send refused by all healthy nodes alone is offered to the excluded ones, without a wait for one
// that does not answer.
func TestRefusedSendDoesNotWaitForAnUnresponsiveNode(t *testing.T) {
	t.Parallel()
	s := severalNodes(t, 3, nil)
	s.proxies[0].SetFaults(rpcproxy.Faults{Unavailable: 1})
	s.query(t, "without the first", 1)
	s.proxies[0].SetFaults(rpcproxy.Faults{Hang: 1})
	for _, p := range s.proxies[1:] {
		p.SetFaults(rpcproxy.Faults{Refuse: func(*types.Transaction) string { return "nonce too low" }})
	}
	began := time.Now()
	got := s.connector.Send(t.Context(), [][]byte{s.transfer(t, 0)})
	if took := time.Since(began); got[0].Class != txmanager.SendNonceTooLow || took > 3*time.Second { // the time-out is 5 s
		t.Errorf("got %+v after %s, want it refused long before the time-out", got, took)
	}
}

// Full request slots (rpc.maxInFlight) exclude no node.
func TestFullRequestSlotsExcludeNoNode(t *testing.T) {
	t.Parallel()
	slots := chain.NewRequestSlots(1)
	s := severalNodes(t, 3, func(_ *nodes.Options, each *evm.Options) { each.RequestSlots = slots })
	s.query(t, "before", 0)
	slots <- struct{}{} // a request to another chain has it
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if v, err := s.connector.Query(ctx, txmanager.ChainQuery{}); err == nil {
		t.Fatalf("query without a request slot: got %+v, want an error", v)
	}
	if got := s.connector.QueryOthers(ctx, txmanager.ChainQuery{}, 9); slices.ContainsFunc(got, func(v txmanager.ChainObservation) bool { return !v.NoAnswer }) || len(got) != 3 {
		t.Fatalf("ask without a place: got %+v, want nobody heard, and nobody away", got)
	}
	if got := s.connector.Excluded(); len(got) != 0 {
		t.Errorf("excluded: got %v, want none", got)
	}
	<-slots
	s.query(t, "with a place", 0)
}

// A voting node that fails is named once as not answering: until then it was healthy. After that it
// is down, and no query waits for its vote.
func TestFailedVoterIsNamedOnceThenDown(t *testing.T) {
	t.Parallel()
	s := severalNodes(t, 2, nil)
	s.query(t, "before", 0)
	names := namesOf(s.connector)
	if views := s.connector.QueryOthers(t.Context(), txmanager.ChainQuery{}, 1, names[0]); len(views) != 1 || views[0].NoAnswer {
		t.Fatalf("while it answers: got %+v, want its view", views)
	}
	s.proxies[1].SetFaults(rpcproxy.Faults{Unavailable: 1})
	if views := s.connector.QueryOthers(t.Context(), txmanager.ChainQuery{}, 1, names[0]); len(views) != 1 || !views[0].NoAnswer || views[0].Node != names[1] {
		t.Errorf("when it fails: got %+v, want it named as silent", views)
	}
	if views := s.connector.QueryOthers(t.Context(), txmanager.ChainQuery{}, 1, names[0]); len(views) != 0 {
		t.Errorf("once it is away: got %+v, want nothing", views)
	}
}

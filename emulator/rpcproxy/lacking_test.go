package rpcproxy_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/emulator/rpcproxy"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/chain/nodes"
	"github.com/fencepost/fencepost/shared/nonce"
)

// A node that has no finalized block is not who answers what asks for one, as long as
// another has it; it is not left out for that, and once it has one it is first again.
func TestNodeWithoutTags(t *testing.T) {
	t.Parallel()
	account := nonce.NewSubmitter(1337, devchain.DevAccounts(1)[0].Address)
	for name, q := range map[string]nonce.Look{
		"the block": {Finality: "finalized"},
		"a count":   {Submitter: account, FinalCount: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := severalNodes(t, 3, nil)
			if err := s.chain.Mine(100); err != nil {
				t.Fatal(err)
			}
			look := func(when string, node int) {
				t.Helper()
				v, err := s.connector.Look(t.Context(), q)
				if err != nil || s.number(v.Node) != node || v.Tagged == nil && v.FinalCount == nil {
					t.Fatalf("look %s: got node %d, tag %v, count %v, %v; want it told by node %d", when, s.number(v.Node), v.Tagged, v.FinalCount, err, node)
				}
			}
			look("before", 0)
			for i := range 3 {
				s.proxies[i].SetFaults(rpcproxy.Faults{NoTags: true})
				if i < 2 {
					look("while the first have none", i+1)
				}
				s.look(t, "for something else", 0)
			}
			if v, err := s.connector.Look(t.Context(), q); err != nil || v.Tagged != nil || v.FinalCount != nil {
				t.Fatalf("look while none has one: got tag %v, count %v, %v; want a view without", v.Tagged, v.FinalCount, err)
			}
			if got := s.connector.LeftOut(); len(got) != 0 {
				t.Errorf("left out: got %v, want none", got)
			}
			for i := 2; i >= 0; i-- {
				s.proxies[i].SetFaults(rpcproxy.Faults{})
				for end := time.Now().Add(2 * time.Minute); ; {
					v, err := s.connector.Look(t.Context(), q)
					if err == nil && s.number(v.Node) == i {
						break
					}
					if time.Now().After(end) {
						t.Fatalf("node %d has one again: got node %d, %v", i, s.number(v.Node), err)
					}
				}
			}
		})
	}
}

// What every healthy node refuses alike is offered to those that are left out, but not
// for as long as one of them is silent.
func TestRefusedSendDoesNotWaitForTheSilent(t *testing.T) {
	t.Parallel()
	s := severalNodes(t, 3, nil)
	s.proxies[0].SetFaults(rpcproxy.Faults{Unavailable: 1})
	s.look(t, "without the first", 1)
	s.proxies[0].SetFaults(rpcproxy.Faults{Hang: 1})
	for _, p := range s.proxies[1:] {
		p.SetFaults(rpcproxy.Faults{Refuse: func(*types.Transaction) string { return "nonce too low" }})
	}
	began := time.Now()
	got := s.connector.Send(t.Context(), [][]byte{s.transfer(t, 0, nil)})
	if took := time.Since(began); got[0].Class != nonce.SendNonceTooLow || took > 3*time.Second { // the time-out is 5 s
		t.Errorf("got %+v after %s, want it refused long before the time-out", got, took)
	}
}

// That all places of rpc.maxInFlight are taken is no node's fault: none is left out.
func TestNoPlaceIsNoFaultOfANode(t *testing.T) {
	t.Parallel()
	places := evm.NewPlaces(1)
	s := severalNodes(t, 3, func(o *nodes.Options) { o.Node.Places = places })
	s.look(t, "before", 0)
	places <- struct{}{} // somebody else's round trip, to another chain
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if v, err := s.connector.Look(ctx, nonce.Look{}); err == nil {
		t.Fatalf("look without a place: got %+v, want an error", v)
	}
	if got := s.connector.Ask(ctx, nonce.Look{}, 9); slices.ContainsFunc(got, func(v nonce.View) bool { return !v.Silent }) || len(got) != 3 {
		t.Fatalf("ask without a place: got %+v, want nobody heard, and nobody away", got)
	}
	if got := s.connector.LeftOut(); len(got) != 0 {
		t.Errorf("left out: got %v, want none", got)
	}
	<-places
	s.look(t, "with a place", 0)
}

// A witness that fails was a node like the others until then, and may have known better:
// it is named as silent once. After that it is away, and nobody waits for its word.
func TestWitnessIsSilentOnceThenAway(t *testing.T) {
	t.Parallel()
	s := severalNodes(t, 2, nil)
	s.look(t, "before", 0)
	first := s.connector.Nodes()[0]
	if views := s.connector.Ask(t.Context(), nonce.Look{}, 1, first); len(views) != 1 || views[0].Silent {
		t.Fatalf("while it answers: got %+v, want its view", views)
	}
	s.proxies[1].SetFaults(rpcproxy.Faults{Unavailable: 1})
	if views := s.connector.Ask(t.Context(), nonce.Look{}, 1, first); len(views) != 1 || !views[0].Silent || views[0].Node != s.connector.Nodes()[1] {
		t.Errorf("when it fails: got %+v, want it named as silent", views)
	}
	if views := s.connector.Ask(t.Context(), nonce.Look{}, 1, first); len(views) != 0 {
		t.Errorf("once it is away: got %+v, want nothing", views)
	}
}

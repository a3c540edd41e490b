package evm_test

import (
	"testing"

	"github.com/fencepost/fencepost/shared/chain/chaintest"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/nonce"
)

const (
	getBlock  = "eth_getBlockByNumber"
	getHeader = "eth_getHeaderByNumber"
)

// Of a node that gives headers no block is asked for once it has shown so.
func TestHeadersAlone(t *testing.T) {
	t.Parallel()
	chain := startChain(t)
	c := connect(t, evm.Options{URL: chain.URL(), ChainID: chain.ChainID()})
	for range 3 {
		if _, err := c.Look(t.Context(), nonce.Look{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := chain.Calls(getBlock); got != 2 { // the first look's heads
		t.Errorf("calls of %s: got %d, want 2", getBlock, got)
	}
	if got := chain.Calls(getHeader); got != 5 {
		t.Errorf("calls of %s: got %d, want 5: one to see, two for each further look", getHeader, got)
	}
}

// A node that stops giving headers, or another one that answers in its place, is
// asked for blocks in the same look.
func TestHeadersNoLonger(t *testing.T) {
	t.Parallel()
	chain := startChain(t)
	proxy := chaintest.NewProxy(t, chain.URL())
	c := connect(t, evm.Options{URL: proxy.URL, ChainID: chain.ChainID()})
	if _, err := c.Look(t.Context(), nonce.Look{}); err != nil {
		t.Fatal(err)
	}
	unknown := map[string]any{"error": map[string]any{"code": -32601, "message": "the method does not exist"}}
	proxy.Set(chaintest.SpoilMethod(getHeader, unknown))
	for range 2 {
		if _, err := c.Look(t.Context(), nonce.Look{}); err != nil {
			t.Errorf("look at a node without headers: got %v, want nil", err)
		}
	}
	if got := proxy.RoundTrips(); got != 4 {
		t.Errorf("round trips of three looks: got %d, want 4", got)
	}
}

// What is no header as ours is makes the node one without.
func TestHeadersOfAnotherKind(t *testing.T) {
	t.Parallel()
	for name, response := range map[string]map[string]any{
		"null":            {"result": nil},
		"text":            {"result": "0x1"},
		"without a hash":  {"result": map[string]any{"number": "0x1", "timestamp": "0x1", "baseFeePerGas": "0x1"}},
		"an error":        chaintest.NodeError("not for you"),
		"without its fee": {"result": map[string]any{"number": "0x1", "timestamp": "0x1", "hash": nonce.Hash{1}.String()}},
	} {
		chain := startChain(t)
		proxy := chaintest.NewProxy(t, chain.URL())
		c := connect(t, evm.Options{URL: proxy.URL, ChainID: chain.ChainID()})
		proxy.Set(chaintest.SpoilMethod(getHeader, response))
		for range 2 {
			if _, err := c.Look(t.Context(), nonce.Look{}); err != nil {
				t.Errorf("%s for a header: got %v, want a look by blocks", name, err)
			}
		}
	}
}

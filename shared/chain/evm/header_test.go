package evm_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/chain/chaintest"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const (
	getBlock  = "eth_getBlockByNumber"
	getHeader = "eth_getHeaderByNumber"
)

// If the node gives headers, no block is requested.
func TestHeadersNeedNoBlocks(t *testing.T) {
	t.Parallel()
	chain, proxy := startBehindProxy(t)
	c := connect(t, evm.Options{URL: proxy.URL, ChainID: chain.ChainID()})
	for range 3 {
		check.OK(t)(c.Query(t.Context(), txmanager.ChainQuery{}))
	}
	check.Equal(t, "calls of "+getBlock, proxy.Calls(getBlock), 0)
	check.Equal(t, "calls of "+getHeader, proxy.Calls(getHeader), 6)
}

// A node that gives no headers, stops giving them, or gives incomplete ones is asked for blocks in the
// same query, and for a while in later ones.
func TestMissingHeadersAreReadFromBlocks(t *testing.T) {
	t.Parallel()
	whole := func(without string) map[string]any {
		h := map[string]any{"number": "0x1", "hash": txmanager.Hash{1}.String(), "parentHash": txmanager.Hash{2}.String(), "timestamp": "0x1", "baseFeePerGas": "0x1"}
		delete(h, without)
		return map[string]any{"result": h}
	}
	responses := map[string]map[string]any{
		"no such method":   noMethod,
		"not whitelisted":  {"error": map[string]any{"code": -32001, "message": "not whitelisted"}},
		"null":             {"result": nil},
		"text":             {"result": "0x1"},
		"no number":        whole("number"),
		"no hash":          whole("hash"),
		"no parent":        whole("parentHash"),
		"no time":          whole("timestamp"),
		"no fee":           whole("baseFeePerGas"),
		"a number as text": {"result": map[string]any{"number": 1}},
	}
	for name, response := range responses {
		for _, known := range []bool{false, true} {
			chain, proxy := startBehindProxy(t)
			c := connect(t, evm.Options{URL: proxy.URL, ChainID: chain.ChainID()})
			if known {
				mustQuery(t, c, chain)
			}
			proxy.Set(chaintest.FaultyMethod(getHeader, response))
			before := proxy.RoundTrips()
			mustQuery(t, c, chain)
			mustQuery(t, c, chain)
			check.Equal(t, fmt.Sprintf("%s: round trips of two queries", name), proxy.RoundTrips()-before, 3)
		}
	}
}

// A gateway that rejects requests with an unknown call gets the request without it. A busy one does
// not.
func TestGatewayThatRejectsHeadersIsAskedForBlocks(t *testing.T) {
	t.Parallel()
	chain := startChain(t)
	for status, passes := range map[int]bool{http.StatusForbidden: true, http.StatusBadRequest: true, http.StatusTooManyRequests: false, http.StatusBadGateway: false} {
		g, _ := newGateway(t, chain, func(r chaintest.Request) bool { return strings.Contains(r.Body, getHeader) },
			func(w http.ResponseWriter, _ chaintest.Request) { w.WriteHeader(status) })
		c := connect(t, evm.Options{URL: g.URL, ChainID: chain.ChainID()})
		_, err := c.Query(t.Context(), txmanager.ChainQuery{})
		if (err == nil) != passes {
			t.Errorf("status %d for headers: got %v, want a query by blocks: %t", status, err, passes)
		}
		check.Equal(t, fmt.Sprintf("status %d: requests", status), g.RoundTrips(), map[bool]uint64{true: 2, false: 1}[passes])
	}
}

// mustQuery requires a complete observation of the chain's head.
func mustQuery(t *testing.T, c *evm.Connector, chain *devchain.Chain) {
	t.Helper()
	v := check.Value(c.Query(t.Context(), txmanager.ChainQuery{}))(t)
	if v.Head.Number != chain.Head() || v.Head.Hash == (txmanager.Hash{}) || v.Head.Time == 0 {
		t.Errorf("head: got %+v, want that of block %d", v.Head, chain.Head())
	}
}

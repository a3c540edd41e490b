package functions_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// These functions query no node and get no node URL. The others refuse to start without one.
func TestFunctionsThatQueryNoNodeStartWithoutAnURL(t *testing.T) {
	t.Parallel()
	h := build(t)
	for target, wanted := range map[string]bool{
		"create": false, "query": false, "cancel": false, "publish": false,
		"admin": true, "advance": true, "receipt": true, "confirm": true, "resubmit": true, "sweep": true, "all": true,
	} {
		got := h.startError(functions.Extensions{}, "FUNCTION_TARGET="+target, "FENCEPOST_RPC_URLS=")
		if (got != "") != wanted || wanted && !strings.Contains(got, "has no nodes") {
			t.Errorf("%s: got %q, want it refused for want of a node %t", target, got, wanted)
		}
	}
}

// The function create knows only the chains' ids, and accepts intents of each.
func TestCreateAcceptsIntentsWithoutANode(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.url = h.listen(h.opened("FUNCTION_TARGET=create", "FENCEPOST_RPC_URLS=", `FENCEPOST_CHAINS=[{"id": 1338, "urls": ["http://127.0.0.1:1"]}]`), "create")
	for chain, want := range map[int]string{1337: "202", 1338: "202", 5: "404"} {
		account := fmt.Sprintf("eip155:%d:0x%040x", chain, 0xa11)
		if chain != 5 {
			h.Register(t, txmanager.Submitter(account), 1)
		}
		got := h.as("shop", "POST", "/api/v1/tx", map[string]any{"submitter": account, "requestId": "r", "payload": map[string]any{"to": "0x000000000000000000000000000000000000dead"}})
		check.Equal(t, fmt.Sprintf("an intent on chain %d (%v)", chain, got.body), got.is(), want)
	}
}

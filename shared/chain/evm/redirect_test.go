package evm_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/nonce"
)

// A node that redirects gives no answer: neither bytes nor credentials go where it leads.
func TestARedirectOfANodeIsNotFollowed(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		fmt.Fprint(w, `{"jsonrpc": "2.0", "id": 1, "result": "0x1"}`)
	}))
	t.Cleanup(elsewhere.Close)
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		node := httptest.NewServer(http.RedirectHandler(elsewhere.URL, status))
		t.Cleanup(node.Close)
		c := connect(t, evm.Options{URL: node.URL, ChainID: 1})
		if _, err := c.Look(t.Context(), nonce.Look{}); err == nil {
			t.Errorf("a look answered %d: got no error", status)
		}
		if sent := c.Send(t.Context(), [][]byte{{2}})[0]; sent.Class != nonce.SendUnknown {
			t.Errorf("bytes answered %d: got %+v, want unknown", status, sent)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("where the redirects lead: asked %d times, want never", n)
	}
}

package evm_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
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
		if _, err := c.Query(t.Context(), txmanager.ChainQuery{}); err == nil {
			t.Errorf("a look answered %d: got no error", status)
		}
		check.Equal(t, fmt.Sprintf("bytes answered %d", status), c.Send(t.Context(), [][]byte{{2}})[0].Class, txmanager.SendUnknown)
	}
	check.Equal(t, "requests where the redirects lead", asked.Load(), 0)
}

// proxied makes the test below ask a node, in a separate process: a process reads the
// variables of proxies once.
const proxied = "FENCEPOST_TEST_PROXIED"

// A proxy of the environment is not asked for a node, whose URL has a key in it.
func TestNoProxyStandsBeforeANode(t *testing.T) {
	if os.Getenv(proxied) != "" {
		_, err := connect(t, evm.Options{URL: "http://node.invalid/v3/secret", ChainID: 1}).Query(t.Context(), txmanager.ChainQuery{})
		t.Logf("no node: %v", err)
		return
	}
	t.Parallel()
	var asked atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(proxy.Close)
	again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), proxied+"=1", "HTTP_PROXY="+proxy.URL, "http_proxy="+proxy.URL, "NO_PROXY=", "no_proxy=")
	if out, err := again.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	check.Equal(t, "requests to the proxy", asked.Load(), 0)
}

package evm_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	chainport "github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/anvil"
	"github.com/fencepost/fencepost/shared/chain/chaintest"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// startChain starts a chain with one account.
func startChain(t *testing.T) *devchain.Chain {
	t.Helper()
	return start(t, devchain.Options{Accounts: devchain.DevAccounts(1)})
}

func start(t *testing.T, o devchain.Options) *devchain.Chain {
	t.Helper()
	chain := check.Value(devchain.Start(t.Context(), o))(t)
	t.Cleanup(func() { _ = chain.Close() })
	return chain
}

// startBehindProxy starts a chain with one account, and a proxy before it.
func startBehindProxy(t *testing.T) (*devchain.Chain, *chaintest.Proxy) {
	t.Helper()
	chain := startChain(t)
	return chain, chaintest.NewProxy(t, chain.URL())
}

// transfer signs the transaction of the chain's first account with a nonce.
func transfer(t testing.TB, chain *devchain.Chain, nonce uint64, tipWei int64) txmanager.Signed {
	t.Helper()
	return chaintest.Transfer(t, devchain.DevAccounts(1)[0].Key, chain.ChainID(), nonce, tipWei)
}

func connect(t *testing.T, o evm.Options) *evm.Connector {
	t.Helper()
	c := check.Value(evm.New(o))(t)
	t.Cleanup(c.Close)
	return c
}

// The connector fulfils the contract on a go-ethereum chain.
func TestContractOnDevchain(t *testing.T) {
	t.Parallel()
	chaintest.Run(t, func(t *testing.T) chaintest.Fixture {
		chain := startChain(t)
		return chaintest.Fixture{
			URL: chain.URL(), ChainID: chain.ChainID(), Key: devchain.DevAccounts(1)[0].Key,
			Mine: chain.Mine, ReorgReturns: true, BumpPercent: 10, EndlessEstimate: txmanager.Refused, Connect: connectTo,
			Reorg:    func(blocks ...[][]byte) error { return chain.Reorg(uint64(len(blocks)), blocks...) },
			DropPool: func() error { chain.DropPool(); return nil }, SyncPool: chain.SyncPool,
		}
	})
}

// The connector fulfils the same contract on anvil.
func TestContractOnAnvil(t *testing.T) {
	t.Parallel()
	startAnvil := func(t *testing.T) *anvil.Chain {
		chain, err := anvil.Start(t.Context())
		if errors.Is(err, anvil.ErrNotThere) {
			t.Skip("Left out: ", err)
		}
		check.OK(t)(err)
		t.Cleanup(func() { _ = chain.Close() })
		return chain
	}
	startAnvil(t) // skips once, not test by test
	chaintest.Run(t, func(t *testing.T) chaintest.Fixture {
		chain := startAnvil(t)
		return chaintest.Fixture{
			URL: chain.URL(), ChainID: chain.ChainID(), Key: devchain.DevAccounts(1)[0].Key,
			Mine: chain.Mine, DropPool: chain.DropPool, Reorg: chain.Reorg, BumpPercent: 1, KeepsStates: true, PoorEstimate: txmanager.Done, EndlessEstimate: txmanager.Unknown, Connect: connectTo,
		}
	})
}

// A go-ethereum node without a complete transaction index says so for each transaction that its pool
// does not have: unknown, never not found. With the index an unsent transaction is not found.
func TestUnindexedNodeLeavesReceiptsUnknown(t *testing.T) {
	t.Parallel()
	chain := start(t, devchain.Options{Unindexed: true})
	c := connect(t, evm.Options{URL: chain.URL(), ChainID: chain.ChainID()})
	nobody := txmanager.Hash{0: 0xde, 31: 0xad}
	answers := func() [2]txmanager.Answer {
		v := check.Value(c.Query(t.Context(), txmanager.ChainQuery{Receipts: []txmanager.Hash{nobody}, Known: []txmanager.Hash{nobody}}))(t)
		return [2]txmanager.Answer{v.Receipts[nobody].Answer, v.Known[nobody]}
	}
	check.Equal(t, "receipt and transaction without an index", answers(), ([2]txmanager.Answer{txmanager.AnswerUnknown, txmanager.AnswerUnknown}))
	check.OK(t)(chain.Mine(1))
	deadline := time.After(2 * time.Minute)
	for want := ([2]txmanager.Answer{txmanager.AnswerNotFound, txmanager.AnswerNotFound}); answers() != want; {
		select {
		case <-deadline:
			t.Fatalf("receipt and transaction after the first block: got %v, want %v", answers(), want)
		default:
		}
	}
}

func connectTo(t *testing.T, url string, chainID uint64, timeout time.Duration) txmanager.ChainConnector {
	return connect(t, evm.Options{URL: url, ChainID: chainID, Timeout: timeout})
}

// New does not connect. It refuses invalid options without showing them.
func TestNewRejectsInvalidOptions(t *testing.T) {
	t.Parallel()
	connect(t, evm.Options{URL: "http://192.0.2.1:1", ChainID: 1})
	for name, o := range map[string]evm.Options{
		"no URL":        {ChainID: 1},
		"websocket":     {URL: "ws://user:secret@localhost:1", ChainID: 1},
		"unparsable":    {URL: "http://user:secret@local host", ChainID: 1},
		"no chain":      {URL: "http://localhost:1"},
		"small batch":   {URL: "http://localhost:1", ChainID: 1, MaxBatch: 2},
		"negative time": {URL: "http://localhost:1", ChainID: 1, Timeout: -1},
	} {
		if _, err := evm.New(o); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want an error without the secret", name, err)
		}
	}
}

// No error and no evidence shows the credentials in any part of a URL.
func TestCredentialsAreNeverShown(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "no such project: "+r.URL.String(), http.StatusForbidden)
	}))
	defer refusing.Close()
	for name, server := range map[string]*httptest.Server{"gone": gone, "refusing": refusing} {
		at, err := url.Parse(server.URL)
		check.OK(t)(err)
		c := connect(t, evm.Options{URL: fmt.Sprintf("http://user:secret@%s/v3/secret?key=secret", at.Host), ChainID: 1})
		_, err = c.Query(t.Context(), txmanager.ChainQuery{})
		result := c.Send(t.Context(), [][]byte{{2}})[0]
		if err == nil || result.Class != txmanager.SendUnknown {
			t.Errorf("%s: got %v and %+v, want an error and unknown", name, err, result)
		}
		if said := fmt.Sprint(err, result); strings.Contains(said, "secret") || !strings.Contains(said, at.Host) {
			t.Errorf("%s: got %q, want the node's name and no secret", name, said)
		}
	}
}

// A query of more calls than one batch takes more round trips and has the same result, even if blocks
// are added in between.
func TestLargeQueryIsSplit(t *testing.T) {
	t.Parallel()
	chain := startChain(t)
	check.OK(t)(chain.Mine(60))
	var trips atomic.Int64
	c := connect(t, evm.Options{URL: chain.URL(), ChainID: chain.ChainID(), MaxBatch: 20, OnRoundTrip: func(context.Context) func(error) {
		trips.Add(1)
		check.Err(t, "mine", nil)(chain.Mine(3))
		return func(error) {}
	}})
	hashes := make([]txmanager.Hash, 25)
	for i := range hashes {
		hashes[i][0] = byte(i)
	}
	v := check.Value(c.Query(t.Context(), txmanager.ChainQuery{FromBlock: 11, ToBlock: 50, Receipts: hashes}))(t)
	check.Equal(t, "round trips", trips.Load(), 4) // 66 calls, 17 of them in each batch
	if got := len(v.Headers); got != 40 || v.Headers[0].Number != 11 {
		t.Errorf("headers: got %d, want 40 from 11 on", got)
	}
	check.Equal(t, "receipts", len(v.Receipts), len(hashes))
	check.Equal(t, "head", v.Head.Number, chain.Head())
	if _, err := c.Query(t.Context(), txmanager.ChainQuery{ToBlock: 1 << 40}); err == nil {
		t.Error("a trillion headers: got nil, want an error")
	}
}

// If the chain is replaced between two round trips of a query, the query fails.
func TestSplitQueryAcrossReorgFails(t *testing.T) {
	t.Parallel()
	chain := startChain(t)
	check.OK(t)(chain.Mine(10))
	var trips atomic.Int64
	c := connect(t, evm.Options{URL: chain.URL(), ChainID: chain.ChainID(), MaxBatch: 20, OnRoundTrip: func(context.Context) func(error) {
		if trips.Add(1) == 3 {
			check.Err(t, "reorg", nil)(chain.Reorg(3, nil, nil, nil, nil, nil))
		}
		return func(error) {}
	}})
	if _, err := c.Query(t.Context(), txmanager.ChainQuery{Receipts: make([]txmanager.Hash, 60)}); err == nil {
		t.Error("got nil, want an error")
	}
}

// Bytes that do not fit one request are sent in several. After a refusal nothing more is sent.
func TestLargeSendIsSplit(t *testing.T) {
	t.Parallel()
	chain, proxy := startBehindProxy(t)
	c := connect(t, evm.Options{URL: proxy.URL, ChainID: chain.ChainID()})
	raws := make([][]byte, 40)
	for i := range raws {
		raws[i] = make([]byte, 128<<10)
	}
	results := c.Send(t.Context(), raws)
	for i, r := range results {
		if r.Class == txmanager.SendAccepted || r.Node == "" {
			t.Errorf("result %d: got %+v, want a refusal", i, r)
		}
	}
	check.Equal(t, "round trips", proxy.RoundTrips(), 1) // 15 × 256 KiB of hex in 4 MiB: refused, so the rest is not sent
}

// While transactions are accepted, sending continues request by request, in order.
func TestSendOfManyTakesSeveralRequests(t *testing.T) {
	t.Parallel()
	chain, proxy := startBehindProxy(t)
	c := connect(t, evm.Options{URL: proxy.URL, ChainID: chain.ChainID(), MaxBatch: 6})
	raws := make([][]byte, 9)
	for i := range raws {
		raws[i] = transfer(t, chain, uint64(i), 1e9).Raw
	}
	for i, r := range c.Send(t.Context(), raws) {
		check.Equal(t, fmt.Sprintf("result %d (%s)", i, r.Text), r.Class, txmanager.SendAccepted)
	}
	if got := proxy.RoundTrips(); got < 2 || got > 5 {
		t.Errorf("round trips of 9 transactions, at most 6 calls each: got %d, want several", got)
	}
}

// After a round trip without an answer nothing more is sent.
func TestSendStopsAtSilence(t *testing.T) {
	t.Parallel()
	chain, proxy := startBehindProxy(t)
	proxy.Set(chaintest.Fault{Drop: true})
	c := connect(t, evm.Options{URL: proxy.URL, ChainID: chain.ChainID(), MaxBatch: 6})
	for i, r := range c.Send(t.Context(), make([][]byte, 10)) {
		if r.Class != txmanager.SendUnknown || r.Text == "" {
			t.Errorf("result %d: got %+v, want unknown with a reason", i, r)
		}
	}
	check.Equal(t, "round trips", proxy.RoundTrips(), 1)
}

// A search keeps to MaxBatch: it takes more round trips, and ends.
func TestConsumerIsFoundInSmallBatches(t *testing.T) {
	t.Parallel()
	chain := startChain(t)
	check.OK(t)(chain.Mine(100))
	tx := transfer(t, chain, 0, 1e9)
	check.OK(t)(errors.Join(chain.MineExactly(tx.Raw), chain.Mine(100)))
	proxy := chaintest.NewProxy(t, chain.URL())
	var limit atomic.Int64
	proxy.Set(chaintest.Fault{Batch: func(calls int) { limit.Store(max(limit.Load(), int64(calls))) }})
	c := connect(t, evm.Options{URL: proxy.URL, ChainID: chain.ChainID(), MaxBatch: 6})
	s := eip155.NewSubmitter(chain.ChainID(), devchain.DevAccounts(1)[0].Address)
	check.Equal(t, "transaction", check.Value(c.FindConsumingTx(t.Context(), s, 0))(t).Hash, tx.Hash)
	if got := limit.Load(); got > 6 {
		t.Errorf("calls in one batch: got %d, want at most 6", got)
	}
}

// At most as many requests run at once as there are slots: the server releases three at a time, and never sees a
// fourth.
func TestRoundTripsKeepToTheirSlots(t *testing.T) {
	t.Parallel()
	const limit = 3
	var under, high atomic.Int64
	group := make(chan chan struct{}, limit)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		high.Store(max(high.Load(), under.Add(1)))
		gone := make(chan struct{})
		group <- gone
		<-gone
		under.Add(-1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	slots := chainport.NewRequestSlots(limit)
	var looks sync.WaitGroup
	for range 5 * limit {
		c := connect(t, evm.Options{URL: server.URL, ChainID: 1, RequestSlots: slots}) // queries of one connector would share requests
		looks.Go(func() {
			if _, err := c.Query(t.Context(), txmanager.ChainQuery{}); err == nil {
				t.Error("query: got nil, want the server's refusal")
			}
		})
	}
	for range 5 {
		var waiting []chan struct{}
		for range limit {
			waiting = append(waiting, <-group)
		}
		for _, gone := range waiting {
			close(gone)
		}
	}
	looks.Wait()
	if got := high.Load(); got > limit {
		t.Errorf("requests at once: got %d, want at most %d", got, limit)
	}
}

// The wait for a request slot ends at the time-out, and nothing was sent.
func TestWaitForARequestSlotEnds(t *testing.T) {
	t.Parallel()
	chain, proxy := startBehindProxy(t)
	proxy.Set(chaintest.Fault{Hang: true})
	c := connect(t, evm.Options{URL: proxy.URL, ChainID: chain.ChainID(), RequestSlots: chainport.NewRequestSlots(1), Timeout: 300 * time.Millisecond})
	var looks sync.WaitGroup
	for range 2 {
		looks.Go(func() {
			check.Err(t, "query", context.DeadlineExceeded)(c.Query(t.Context(), txmanager.ChainQuery{}))
		})
	}
	looks.Wait()
}

// The chain id is requested until it is known, and never after that.
func TestChainIDIsAskedForOnce(t *testing.T) {
	t.Parallel()
	chain, proxy := startBehindProxy(t)
	c := connect(t, evm.Options{URL: proxy.URL, ChainID: chain.ChainID()})
	proxy.Set(chaintest.FaultyMethod("eth_chainId", chaintest.Result("0x1")))
	check.Err(t, "wrong chain", chainport.ErrWrongChain)(c.Query(t.Context(), txmanager.ChainQuery{}))
	proxy.Set(chaintest.FaultyMethod("eth_chainId", chaintest.NodeError("starting")))
	if _, err := c.Query(t.Context(), txmanager.ChainQuery{}); err == nil {
		t.Error("no chain id: got nil, want an error")
	}
	proxy.Set(chaintest.Fault{})
	for range 5 {
		check.OK(t)(c.Query(t.Context(), txmanager.ChainQuery{}))
	}
	check.Equal(t, "calls of eth_chainId", proxy.Calls("eth_chainId"), 3)
}

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

package evm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/chain/chaintest"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// newGateway starts a proxy before the chain's node. It answers the requests for which refuses is true itself, and
// counts them.
func newGateway(t *testing.T, chain *devchain.Chain, refuses func(chaintest.Request) bool,
	answer func(http.ResponseWriter, chaintest.Request)) (g *chaintest.Proxy, refused *atomic.Uint64) {
	t.Helper()
	g, refused = chaintest.NewProxy(t, chain.URL()), new(atomic.Uint64)
	g.Set(chaintest.Fault{Instead: func(w http.ResponseWriter, r chaintest.Request) bool {
		if !refuses(r) {
			return false
		}
		refused.Add(1)
		answer(w, r)
		return true
	}})
	return g, refused
}

func drop(http.ResponseWriter, chaintest.Request) { panic(http.ErrAbortHandler) }

// manyCalls reports a request of more calls than one query of an account has.
func manyCalls(r chaintest.Request) bool { return len(r.Calls) > 10 }

// submitterOf returns a submitter without transactions, the same for the same number.
func submitterOf(chain *devchain.Chain, i int) txmanager.Submitter {
	return eip155.NewSubmitter(chain.ChainID(), eip155.Address([20]byte{0: 0xab, 19: byte(i)}))
}

// queryAtOnce queries n accounts at once, and returns their errors.
func queryAtOnce(t *testing.T, c *evm.Connector, chain *devchain.Chain, n int) []error {
	t.Helper()
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			_, errs[i] = c.Query(t.Context(), txmanager.ChainQuery{Submitter: submitterOf(chain, i), Account: true})
		})
	}
	all.Wait()
	return errs
}

// A hundred queries make few HTTP requests. Heads and tips, equal for all, are requested once in each.
func TestConcurrentQueriesShareRequests(t *testing.T) {
	t.Parallel()
	chain, proxy := startBehindProxy(t)
	c := connect(t, evm.Options{URL: proxy.URL, ChainID: chain.ChainID(), MaxBatch: 100})
	check.OK(t)(errors.Join(queryAtOnce(t, c, chain, 1)...))
	requests, fees, heads := proxy.RoundTrips(), proxy.Calls("eth_maxPriorityFeePerGas"), proxy.Calls(getHeader)
	check.OK(t)(errors.Join(queryAtOnce(t, c, chain, 100)...))
	requests, fees, heads = proxy.RoundTrips()-requests, proxy.Calls("eth_maxPriorityFeePerGas")-fees, proxy.Calls(getHeader)-heads
	if requests > 25 { // 23 accounts fit one; on a busy machine they come in several groups
		t.Errorf("HTTP requests: got %d, want at most 25", requests)
	}
	check.Equal(t, "requests for the tip", fees, requests)
	check.Equal(t, "requests for a head", heads, 2*requests)
	check.Equal(t, "requests for a balance", proxy.Calls("eth_getBalance"), 101)
}

// Where a node refuses a shared request, or gives it up, each query is repeated alone.
func TestRefusedSharedRequestIsRepeatedAlone(t *testing.T) {
	t.Parallel()
	text := func(format string, args ...any) func(http.ResponseWriter, chaintest.Request) {
		return func(w http.ResponseWriter, _ chaintest.Request) { fmt.Fprintf(w, format, args...) }
	}
	each := func(code int) func(http.ResponseWriter, chaintest.Request) {
		return func(w http.ResponseWriter, r chaintest.Request) {
			var answers []map[string]any
			for _, a := range r.Calls {
				answers = append(answers, map[string]any{"jsonrpc": "2.0", "id": a.ID, "error": map[string]any{"code": code, "message": "cut off"}})
			}
			_ = json.NewEncoder(w).Encode(answers)
		}
	}
	for name, answer := range map[string]func(http.ResponseWriter, chaintest.Request){
		"status 413":      func(w http.ResponseWriter, _ chaintest.Request) { w.WriteHeader(http.StatusRequestEntityTooLarge) },
		"status 503":      func(w http.ResponseWriter, _ chaintest.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"dropped":         drop,
		"silent":          func(_ http.ResponseWriter, r chaintest.Request) { <-r.Gone },
		"one error":       text(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"batch too large"}}`),
		"nothing":         text(`[]`),
		"no JSON":         text(`too large`),
		"out of time":     each(-32002),
		"answer too long": each(-32003),
		"too expensive":   each(-32005),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chain := startChain(t)
			g, refused := newGateway(t, chain, manyCalls, answer)
			timeout := 20 * time.Second
			if name == "silent" {
				timeout = 6 * time.Second // the shared request and each repetition share it, also on a busy machine
			}
			c := connect(t, evm.Options{URL: g.URL, ChainID: chain.ChainID(), Timeout: timeout})
			check.OK(t)(errors.Join(queryAtOnce(t, c, chain, 20)...))
			check.Equal(t, "some shared requests are refused", refused.Load() > 0, true)
			if got := g.RoundTrips(); got > 20+2*refused.Load()+1 {
				t.Errorf("requests: got %d, %d of them refused; want each query repeated once", got, refused.Load())
			}
		})
	}
}

// A query whose calls make the node drop every request with them fails alone.
func TestPoisonousQueryFailsAlone(t *testing.T) {
	t.Parallel()
	chain := startChain(t)
	poison := submitterOf(chain, 7).Address().String()
	g, _ := newGateway(t, chain, func(r chaintest.Request) bool { return strings.Contains(r.Body, poison) }, drop)
	c := connect(t, evm.Options{URL: g.URL, ChainID: chain.ChainID()})
	for i, err := range queryAtOnce(t, c, chain, 20) {
		if (err != nil) != (i == 7) {
			t.Errorf("query %d: got %v, want an error only for query 7", i, err)
		}
	}
}

// transferOf signs a transfer of the chain's account i with nonce 0.
func transferOf(t *testing.T, chain *devchain.Chain, i int) []byte {
	t.Helper()
	return chaintest.Transfer(t, devchain.DevAccounts(i + 1)[i].Key, chain.ChainID(), 0, 1e9).Raw
}

// sendAtOnce sends a transfer of each of ten accounts at once.
func sendAtOnce(t *testing.T, chain *devchain.Chain, c *evm.Connector) (results [10]txmanager.SendResult) {
	t.Helper()
	var all sync.WaitGroup
	for i := range results {
		raw := transferOf(t, chain, i)
		all.Go(func() { results[i] = c.Send(t.Context(), [][]byte{raw})[0] })
	}
	all.Wait()
	return results
}

func startRichChain(t *testing.T) *devchain.Chain {
	t.Helper()
	return start(t, devchain.Options{Accounts: devchain.DevAccounts(10)})
}

// Concurrent sends share requests. If the node takes the bytes and its answer is lost, each repeats its
// own, and learns that the node has them. One that gets no answer alone either stays unknown.
func TestSharedSendWithoutAnswerIsRepeated(t *testing.T) {
	t.Parallel()
	chain := startRichChain(t)
	poison := fmt.Sprintf("%x", transferOf(t, chain, 3))
	g, _ := newGateway(t, chain, func(r chaintest.Request) bool {
		return len(r.Calls) > 2 || strings.Contains(r.Body, poison)
	}, func(_ http.ResponseWriter, r chaintest.Request) {
		if taken, err := http.Post(chain.URL(), "application/json", strings.NewReader(r.Body)); err == nil {
			_ = taken.Body.Close()
		}
		panic(http.ErrAbortHandler)
	})
	c := connect(t, evm.Options{URL: g.URL, ChainID: chain.ChainID()})
	shared := int64(0)
	for i, r := range sendAtOnce(t, chain, c) {
		switch {
		case i == 3 && (r.Class != txmanager.SendUnknown || r.Text == ""):
			t.Errorf("send %d without an answer: got %+v, want unknown with a reason", i, r)
		case i != 3 && !r.Acknowledged():
			t.Errorf("send %d: got %+v, want it acknowledged", i, r)
		case r.Class == txmanager.SendAlreadyKnown:
			shared++
		}
	}
	check.Equal(t, "some sends are repeated, and the node had them", shared > 0, true)
	check.OK(t)(chain.Mine(1))
}

// The answer to one call of a shared request is its own: bytes that the node refuses fail no others, and
// nothing is repeated.
func TestRefusalInASharedSendIsItsOwn(t *testing.T) {
	t.Parallel()
	chain := startRichChain(t)
	var mixed atomic.Int64 // requests with bytes of both kinds
	g, _ := newGateway(t, chain, func(r chaintest.Request) bool {
		if strings.Contains(r.Body, `"0x02"`) && strings.Contains(r.Body, `"0x02f`) {
			mixed.Add(1)
		}
		return false
	}, nil)
	c := connect(t, evm.Options{URL: g.URL, ChainID: chain.ChainID()})
	for attempt := 1; mixed.Load() == 0; attempt++ { // on a busy machine each send may come by itself
		var refused sync.WaitGroup
		for range 10 {
			refused.Go(func() {
				if r := c.Send(t.Context(), [][]byte{{2}})[0]; r.Acknowledged() {
					t.Errorf("bytes of no transaction: got %+v, want a refusal", r)
				}
			})
		}
		for i, r := range sendAtOnce(t, chain, c) {
			if !r.Acknowledged() {
				t.Errorf("send %d: got %+v, want it acknowledged", i, r)
			}
		}
		refused.Wait()
		check.Equal(t, "transactions that were sent", g.Calls("eth_sendRawTransaction"), uint64(20*attempt))
		if t.Failed() {
			return
		}
	}
}

// A caller leaves a shared request at its own deadline, and the others get their answers.
func TestCallerLeavesASharedRequest(t *testing.T) {
	t.Parallel()
	chain := startChain(t)
	held, free := make(chan struct{}, 100), make(chan struct{})
	g := chaintest.NewProxy(t, chain.URL())
	g.Set(chaintest.Fault{Instead: func(_ http.ResponseWriter, r chaintest.Request) bool {
		if manyCalls(r) {
			held <- struct{}{}
			<-free
		}
		return false
	}})
	c := connect(t, evm.Options{URL: g.URL, ChainID: chain.ChainID(), Timeout: time.Minute})
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 20)
	for i := range 20 {
		go func() {
			_, err := c.Query(ctx, txmanager.ChainQuery{Submitter: submitterOf(chain, i), Account: true})
			left <- err
		}()
	}
	others := make(chan []error, 1)
	go func() { others <- queryAtOnce(t, c, chain, 20) }()
	<-held // at least one shared request is under way
	leave()
	gone := 0
	for range 20 {
		if err := <-left; errors.Is(err, context.Canceled) {
			gone++
		}
	}
	check.Equal(t, "some callers left at the end of their context", gone > 0, true)
	close(free)
	check.OK(t)(errors.Join(<-others...))
}

// Gas estimates of several submitters make a request each. One that a node works on for long delays no
// other, whether its call has data or only reaches a contract.
func TestSlowEstimateDelaysNoOther(t *testing.T) {
	t.Parallel()
	const others = 10
	slow, quick := eip155.Address([20]byte{0: 0xcd}), eip155.Address([20]byte{0: 0xef})
	for name, data := range map[string][]byte{"data": {1, 2, 3, 4}, "no data": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chain := startChain(t)
			held, free := make(chan struct{}, 2), make(chan struct{})
			g := chaintest.NewProxy(t, chain.URL())
			g.Set(chaintest.Fault{Instead: func(_ http.ResponseWriter, r chaintest.Request) bool {
				if strings.Contains(r.Body, slow.String()) {
					held <- struct{}{}
					<-free
				}
				return false
			}})
			c := connect(t, evm.Options{URL: g.URL, ChainID: chain.ChainID(), Timeout: time.Minute})
			estimate := func(ctx context.Context, i int, to txmanager.Address) error {
				_, err := c.Query(ctx, txmanager.ChainQuery{Submitter: submitterOf(chain, i), Estimates: []txmanager.Call{{To: &to, Data: data}}})
				return err
			}
			var late, soon sync.WaitGroup
			late.Go(func() { check.Equal(t, "the first slow estimate", estimate(t.Context(), 0, slow), nil) })
			<-held // those that come now could share the next request
			late.Go(func() { check.Equal(t, "the second slow estimate", estimate(t.Context(), 1, slow), nil) })
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			for i := range others {
				soon.Go(func() { check.Equal(t, "an estimate beside a slow one", estimate(ctx, 2+i, quick), nil) })
			}
			soon.Wait()
			close(free)
			late.Wait()
			check.Equal(t, "HTTP requests", g.RoundTrips(), 2+others)
		})
	}
}

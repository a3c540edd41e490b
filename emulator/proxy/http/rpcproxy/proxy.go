// Package rpcproxy is an HTTP proxy before a real JSON-RPC node. It injects faults of nodes and
// networks at random from a seed, and counts them. All other traffic passes unchanged.
package rpcproxy

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	httpproxy "github.com/fencepost/fencepost/emulator/proxy/http"
)

const maxBytes = 128 << 20 // of a request, and of an answer

// Options are the proxy's node and its seed.
type Options struct {
	Target string // the node's URL
	Seed   uint64 // of the draws; timing decides which request gets which draw
}

// Proxy is a running proxy. Several goroutines can use it.
type Proxy struct {
	*httpproxy.Proxy[string]

	mu     sync.Mutex
	rand   *rand.Rand     // guarded by mu
	calls  map[string]int // by method; guarded by mu
	faults atomic.Pointer[Faults]
}

// Start serves on a free port of 127.0.0.1 until Close. While the node is down, requests are answered 502.
func Start(o Options) (_ *Proxy, err error) {
	p := &Proxy{rand: rand.New(rand.NewPCG(o.Seed, o.Seed)), calls: map[string]int{}}
	p.SetFaults(Faults{})
	p.Proxy, err = httpproxy.Start[string](o.Target, maxBytes, p.serve)
	return p, err
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, body []byte) {
	x := &exchange{proxy: p, faults: p.faults.Load()}
	if p.strikes(Unavailable, x.faults.Unavailable) {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	answer, err := x.run(r.Context(), body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	if x.hasSend() && p.strikes(DropSendAnswer, x.faults.DropSendAnswer) || p.strikes(Drop, x.faults.Drop) {
		httpproxy.Cut()
	}
	if p.strikes(Hang, x.faults.Hang) {
		httpproxy.Hang(r.Context())
		httpproxy.Cut()
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // the client may have left
}

// Calls returns the number of calls of a method that clients made, each of a batch, and also those that the proxy answers
// itself. Calls answered with 503, and calls without an id, do not count.
func (p *Proxy) Calls(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[method]
}

func (p *Proxy) countCalls(calls []*call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range calls {
		p.calls[c.Method]++
	}
}

func (p *Proxy) forward(ctx context.Context, body []byte) ([]byte, error) {
	resp, answer, err := p.Ask(ctx, http.MethodPost, "", http.Header{"Content-Type": {"application/json"}}, body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the node answered with status %d", resp.StatusCode)
	}
	return answer, err
}

// ask sends the calls that have no answer yet to the node, in one batch.
func (p *Proxy) ask(ctx context.Context, calls []*call) error {
	calls = slices.DeleteFunc(slices.Clone(calls), func(c *call) bool { return c.got != nil })
	if len(calls) == 0 {
		return nil
	}
	body, err := json.Marshal(calls)
	if err != nil {
		return err
	}
	text, err := p.forward(ctx, body)
	if err != nil {
		return err
	}
	var list []response
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("the node's answer to a batch: %w", err)
	}
	answers := make(map[string]*response, len(list))
	for i, a := range list {
		answers[string(a.ID)] = &list[i]
	}
	for _, c := range calls {
		c.got = answers[string(c.ID)]
	}
	return nil
}

// Package ubsproxy is an HTTP proxy before a real trading core. It gives the functions one address for
// the core's changing processes. It records every call that moves money, for later repetition, and
// injects faults of networks into chosen calls.
package ubsproxy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	httpproxy "github.com/fencepost/fencepost/emulator/proxy/http"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
)

// Call is one call that moves money, or resolves such a call.
type Call struct {
	Number    int // in the order of arrival, from 1
	Path      string
	Body      []byte
	Operation wire.Operation // the body, decoded

	Status int    // of the core's answer; 0: none
	Answer []byte // the core's, even if the caller did not get it
}

// Options are the proxy's core and whether it records calls.
type Options struct {
	Target string // host:port of the core; "": none yet
	Keep   bool   // record every call for [Proxy.Calls]
}

// Proxy is a running proxy. Several goroutines can use it.
type Proxy struct {
	*httpproxy.Proxy[Kind]

	keep   bool
	mu     sync.Mutex
	calls  []*Call
	faults []*Fault
	late   []held
}

// Start serves on a free port of 127.0.0.1 until Close. While the core is down, every connection is
// closed without an answer.
func Start(o Options) (_ *Proxy, err error) {
	p := &Proxy{keep: o.Keep}
	p.Proxy, err = httpproxy.Start[Kind](o.Target, wire.MaxAnswer, p.serve)
	return p, err
}

// Calls returns the recorded calls that match, in the order of arrival; nil matches all.
func (p *Proxy) Calls(match func(Call) bool) (all []Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		if match == nil || match(*c) {
			all = append(all, *c)
		}
	}
	return all
}

// Replay repeats a call to the core without faults, and returns the answer.
func (p *Proxy) Replay(ctx context.Context, c Call, secret string) (status int, answer []byte, err error) {
	h := http.Header{"Authorization": {"Bearer " + secret}, "Content-Type": {"application/json"}}
	resp, answer, err := p.Ask(ctx, http.MethodPost, c.Path, h, c.Body)
	if err != nil {
		return 0, nil, fmt.Errorf("replay call %d: %w", c.Number, err)
	}
	return resp.StatusCode, answer, nil
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, body []byte) {
	call := p.arrived(r, body)
	resp, answer, err := p.carry(r, call, body)
	if err != nil {
		httpproxy.Cut()
	}
	for _, name := range []string{"Content-Type", "Content-Length", "Cache-Control", "Retry-After", "Www-Authenticate", "Allow"} {
		if v := resp.Header.Get(name); v != "" {
			w.Header().Set(name, v)
		}
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(answer) // the caller may have left
}

// arrived records the call, or returns nil if the request moves no money.
func (p *Proxy) arrived(r *http.Request, body []byte) *Call {
	if r.Method != http.MethodPost || (r.URL.Path != wire.OperationsPath && r.URL.Path != wire.ResolvePath) {
		return nil
	}
	c := &Call{Path: r.URL.Path, Body: body}
	_ = json.Unmarshal(body, &c.Operation) // an invalid body matches no fault, and the core refuses it
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keep {
		p.calls = append(p.calls, c)
		c.Number = len(p.calls)
	}
	return c
}

// pass sends the call to the core and records its answer.
func (p *Proxy) pass(ctx context.Context, r *http.Request, c *Call, body []byte) (*http.Response, []byte, error) {
	resp, answer, err := p.Ask(ctx, r.Method, r.URL.RequestURI(), r.Header, body)
	if err == nil && c != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		c.Status, c.Answer = resp.StatusCode, answer
	}
	return resp, answer, err
}

// Package ubsproxy is an HTTP proxy before a real trading core. It gives the functions one address for
// the core's changing processes. It records every call that moves money, for later repetition, and
// injects faults of networks into chosen calls. All other traffic passes unchanged.
package ubsproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/stack/loopback"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
)

// hangLimit ends a wait for a caller that does not leave.
const hangLimit = time.Minute

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
	keep   bool
	server *loopback.Server
	client *http.Client

	mu     sync.Mutex
	target string
	calls  []*Call
	faults []*armed
	late   []held
	struck map[Kind]int
}

// Start serves on a free port of 127.0.0.1 until [Proxy.Close].
func Start(o Options) (*Proxy, error) {
	p := &Proxy{
		keep: o.Keep, target: o.Target, struck: map[Kind]int{},
		client: &http.Client{
			Transport:     &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	var err error
	if p.server, err = loopback.Serve("", http.HandlerFunc(p.serve)); err != nil {
		return nil, fmt.Errorf("start the proxy of the trading core: %w", err)
	}
	return p, nil
}

// URL is the core's address for the functions.
func (p *Proxy) URL() string { return p.server.URL() }

// SetTarget replaces the core's address, as host:port. Without one ("") every connection is closed
// without an answer, as with a core that is down.
func (p *Proxy) SetTarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
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
	resp, answer, err := p.ask(ctx, http.MethodPost, c.Path, h, c.Body)
	if err != nil {
		return 0, nil, fmt.Errorf("replay call %d: %w", c.Number, err)
	}
	return resp.StatusCode, answer, nil
}

// Close cuts every connection. A second call does nothing.
func (p *Proxy) Close() error {
	err := p.server.Close()
	p.client.CloseIdleConnections()
	return err
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MaxAnswer))
	if err != nil {
		panic(http.ErrAbortHandler) // closes the connection without an answer
	}
	call := p.arrived(r, body)
	resp, answer, err := p.carry(r, call, body)
	cut := errors.Is(err, errCut)
	if err != nil && !cut {
		panic(http.ErrAbortHandler)
	}
	for _, name := range []string{"Content-Type", "Cache-Control", "Retry-After", "Www-Authenticate", "Allow"} {
		if v := resp.Header.Get(name); v != "" {
			w.Header().Set(name, v)
		}
	}
	if cut {
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	}
	w.WriteHeader(resp.StatusCode)
	if cut {
		_, _ = w.Write(answer[:len(answer)/2])
		_ = http.NewResponseController(w).Flush() // otherwise half of it stays in the server's buffer
		panic(http.ErrAbortHandler)
	}
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
	resp, answer, err := p.ask(ctx, r.Method, r.URL.RequestURI(), r.Header, body)
	if err == nil && c != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		c.Status, c.Answer = resp.StatusCode, answer
	}
	return resp, answer, err
}

func (p *Proxy) ask(ctx context.Context, method, uri string, header http.Header, body []byte) (*http.Response, []byte, error) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	if target == "" {
		return nil, nil, fmt.Errorf("there is no core")
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+target+uri, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	for _, name := range []string{"Authorization", "Content-Type"} {
		if v := header.Get(name); v != "" {
			req.Header.Set(name, v)
		}
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, wire.MaxAnswer))
	return resp, answer, err
}

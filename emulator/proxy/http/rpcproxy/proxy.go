// Package rpcproxy is an HTTP proxy before a real JSON-RPC node. It injects faults of nodes and
// networks at random from a seed, and counts them. All other traffic passes unchanged.
package rpcproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/stack/loopback"
)

const (
	maxBytes  = 128 << 20 // of a request, and of an answer
	hangLimit = time.Minute
)

// Options are the proxy's node and its seed.
type Options struct {
	Target string // the node's URL
	Seed   uint64 // of the draws; timing decides which request gets which draw
}

// Proxy is a running proxy. Several goroutines can use it.
type Proxy struct {
	server *loopback.Server
	client *http.Client

	mu     sync.Mutex
	target string
	rand   *rand.Rand
	faults Faults
	counts map[string]int
}

// Start serves on a free port of 127.0.0.1 until [Proxy.Close]. While the node is down, requests are
// answered 502.
func Start(o Options) (*Proxy, error) {
	p := &Proxy{
		target: o.Target, client: &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()},
		rand: rand.New(rand.NewPCG(o.Seed, o.Seed)), counts: map[string]int{},
	}
	var err error
	if p.server, err = loopback.Serve("", http.HandlerFunc(p.serve)); err != nil {
		return nil, fmt.Errorf("start the proxy of %s: %w", o.Target, err)
	}
	return p, nil
}

// URL is the proxy's address.
func (p *Proxy) URL() string { return p.server.URL() }

// SetTarget replaces the node behind the proxy's address.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

func (p *Proxy) node() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target
}

// Close cuts every connection. A second call does nothing.
func (p *Proxy) Close() error {
	err := p.server.Close()
	p.client.CloseIdleConnections()
	return err
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBytes))
	if err != nil {
		http.Error(w, "want a request of at most 128 MiB", http.StatusRequestEntityTooLarge)
		return
	}
	x := &exchange{proxy: p, faults: p.now()}
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
		panic(http.ErrAbortHandler) // closes the connection without an answer
	}
	if p.strikes(Hang, x.faults.Hang) {
		hang(r.Context())
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // the client may have left
}

func hang(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, hangLimit)
	defer cancel()
	<-ctx.Done()
}

// forward sends the body to the node and returns its answer.
func (p *Proxy) forward(ctx context.Context, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.node(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxBytes))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the node answered with status %d", resp.StatusCode)
	}
	return answer, err
}

// ask sends the calls to the node in one batch and returns the answers by id.
func (p *Proxy) ask(ctx context.Context, calls []*call) (map[string]response, error) {
	if len(calls) == 0 {
		return nil, nil
	}
	body, err := json.Marshal(calls)
	if err != nil {
		return nil, err
	}
	text, err := p.forward(ctx, body)
	if err != nil {
		return nil, err
	}
	var list []response
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("the node's answer to a batch: %w", err)
	}
	answers := make(map[string]response, len(list))
	for _, a := range list {
		answers[string(a.ID)] = a
	}
	return answers, nil
}

// Package ubsproxy is an HTTP proxy before a real trading core. It is where the
// functions find the core, whichever process that is at the moment; it takes down
// every call that moves money, so that it can be made again later, and does to
// calls that a test names what networks do. What it does not spoil it passes on
// unchanged.
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

	"github.com/fencepost/fencepost/emulator/loopback"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
)

// hangLimit ends a wait for a caller that does not leave.
const hangLimit = time.Minute

// Call is one call that moves money, or resolves one, as it arrived.
type Call struct {
	Number    int // in the order of arrival, from 1
	Path      string
	Body      []byte
	Operation wire.Operation // the body, decoded

	Status int    // of the core's answer; 0: the core gave none, or was not asked
	Answer []byte // the core's, whoever heard it
}

// Options say what the proxy does with what it sees.
type Options struct {
	Target string // host:port of the core; "": nobody is there yet
	Keep   bool   // every call is taken down, for [Proxy.Calls]
}

// Proxy is a running proxy. Its methods may be called from several goroutines at
// once.
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

// Start listens on a free port of 127.0.0.1 until [Proxy.Close].
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

// URL is where the functions find the core.
func (p *Proxy) URL() string { return p.server.URL() }

// SetTarget names the core from now on, as host:port; "": there is none, and
// every connection is closed without an answer, as by a host whose process is
// dead.
func (p *Proxy) SetTarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

// Calls lists what has arrived so far and matches, in the order of arrival; nil
// matches everything.
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

// Replay makes a call to the core again, past every fault, and returns its answer.
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
		panic(http.ErrAbortHandler) // the one way to close without an answer
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
		_ = http.NewResponseController(w).Flush() // else it is half in our own buffer
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(answer) // a caller that has gone needs none
}

// arrived takes a call down; nil where the request moves no money.
func (p *Proxy) arrived(r *http.Request, body []byte) *Call {
	if r.Method != http.MethodPost || (r.URL.Path != wire.OperationsPath && r.URL.Path != wire.ResolvePath) {
		return nil
	}
	c := &Call{Path: r.URL.Path, Body: body}
	_ = json.Unmarshal(body, &c.Operation) // what is none matches no fault, and the core refuses it
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keep {
		p.calls = append(p.calls, c)
		c.Number = len(p.calls)
	}
	return c
}

// pass asks the core and takes its answer down.
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

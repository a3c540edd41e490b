// Package httpproxy is an HTTP proxy before a real server, whose handler can inject faults of servers
// and networks into chosen requests. The handlers are in packages rpcproxy and ubsproxy.
package httpproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/emulator/stack/loopback"
)

// hangLimit ends a wait for a caller that does not leave.
const hangLimit = time.Minute

// Proxy is a running proxy. F names its faults. Several goroutines can use it.
type Proxy[F comparable] struct {
	*loopback.Server
	client   *http.Client
	maxBytes int64        // of a request, and of an answer
	target   atomic.Value // a string

	mu     sync.Mutex
	counts map[F]int
}

// Start serves on a free port of 127.0.0.1 until [Proxy.Close]. The handler gets each request with its
// body, of at most maxBytes. The target is the server's URL, or its host:port.
func Start[F comparable](target string, maxBytes int64, handle func(http.ResponseWriter, *http.Request, []byte)) (*Proxy[F], error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 256
	p := &Proxy[F]{maxBytes: maxBytes, counts: make(map[F]int), client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	p.SetTarget(target)
	var err error
	p.Server, err = loopback.Serve("", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBytes))
		if err != nil {
			Cut()
		}
		handle(w, r, body)
	}))
	if err != nil {
		return nil, fmt.Errorf("start the proxy of %s: %w", target, err)
	}
	return p, nil
}

// SetTarget replaces the server behind the proxy's address. "" is a server that is down.
func (p *Proxy[F]) SetTarget(target string) { p.target.Store(target) }

// Close cuts every connection. A second call does nothing.
func (p *Proxy[F]) Close() error {
	err := p.Server.Close()
	p.client.CloseIdleConnections()
	return err
}

// Count counts one strike of the fault.
func (p *Proxy[F]) Count(fault F) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[fault]++
}

// Counts returns how often each fault struck since the start. A strike is counted before the client can
// notice it.
func (p *Proxy[F]) Counts() map[F]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// Ask sends a request to the server, and returns its answer. Only the headers that both servers know
// are passed on.
func (p *Proxy[F]) Ask(ctx context.Context, method, uri string, header http.Header, body []byte) (*http.Response, []byte, error) {
	target := p.target.Load().(string)
	if target == "" {
		return nil, nil, errors.New("there is no server")
	}
	if !strings.Contains(target, "://") {
		target = "http://" + target
	}
	req, err := http.NewRequestWithContext(ctx, method, target+uri, bytes.NewReader(body))
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
	answer, err := io.ReadAll(io.LimitReader(resp.Body, p.maxBytes))
	return resp, answer, err
}

// Hang returns when the caller has left.
func Hang(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, hangLimit)
	defer cancel()
	<-ctx.Done()
}

// Cut closes the connection without an answer.
func Cut() { panic(http.ErrAbortHandler) }

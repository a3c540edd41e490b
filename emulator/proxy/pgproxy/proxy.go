// Package pgproxy is a TCP proxy before a Postgres server that understands the wire protocol. With it a
// test can break a connection around a commit, the one moment that matters.
//
// It forwards every message unchanged, including the login, and encrypts nothing. The SQL of a transaction
// selects the fault. Messages are forwarded one by one as they come, so the server has run the statements
// before a commit when the fault strikes.
//
// Source: https://www.postgresql.org/docs/17/protocol.html, version 3.0.
package pgproxy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Options are the proxy's two ends.
type Options struct {
	Target string // the server, host:port
	Addr   string // where to listen, host:port; "": a free port of 127.0.0.1
}

// Proxy is a running proxy. Several goroutines can use it.
type Proxy struct {
	listener net.Listener
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu       sync.Mutex
	target   string
	sessions map[*session]bool
	refusing bool
	armed    []*fault
	counts   Counts
}

// Counts are what a proxy saw and did since its start.
type Counts struct {
	RoundTrips int          // messages after which a client waits for the server: Sync and simple Query
	Commits    int          // that the server confirmed: of a commit statement, or of a batch that writes
	Hits       map[Kind]int // transactions that a fault struck
}

// Start listens and forwards until [Proxy.Close] or until ctx ends. While the server is down, the proxy
// closes new connections.
func Start(ctx context.Context, o Options) (*Proxy, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cmp.Or(o.Addr, "127.0.0.1:0"))
	if err != nil {
		return nil, fmt.Errorf("start the proxy of %s: %w", o.Target, err)
	}
	ctx, stop := context.WithCancel(ctx)
	p := &Proxy{target: o.Target, listener: listener, stop: stop, sessions: map[*session]bool{}}
	p.counts.Hits = map[Kind]int{}
	p.running.Go(func() { p.accept(ctx) })
	p.running.Go(func() {
		<-ctx.Done()
		_ = listener.Close()
		p.CutAll()
	})
	return p, nil
}

// Addr is the proxy's host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// URL returns the given Postgres URL with the proxy's address. For an invalid URL the result has no user.
func (p *Proxy) URL(databaseURL string) string {
	u, err := url.Parse(databaseURL)
	if err != nil {
		u = &url.URL{Scheme: "postgres"}
	}
	u.Host = p.Addr()
	query := u.Query()
	for _, overruling := range []string{"host", "hostaddr", "port"} {
		query.Del(overruling)
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// Close cuts every connection and waits until all goroutines of the proxy have ended. A second call does
// nothing.
func (p *Proxy) Close() {
	p.stop()
	p.running.Wait()
}

// Refuse makes the proxy close every new connection at once, or ends that.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = refuse
}

// Retarget directs new connections to another server, host:port, and cuts the present ones, as a failover
// does.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	p.CutAll()
}

// CutAll cuts every connection, frozen ones too, and returns how many there were.
func (p *Proxy) CutAll() int {
	all := p.all()
	for _, s := range all {
		s.cut()
	}
	return len(all)
}

// Thaw ends every running [Freeze] and delivers the held bytes.
func (p *Proxy) Thaw() {
	for _, s := range p.all() {
		s.thaw()
	}
}

func (p *Proxy) all() []*session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.sessions))
}

func (p *Proxy) accept(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = client.Close()
			}
			return
		}
		if err != nil { // out of file descriptors, or the client has gone already
			continue
		}
		p.running.Go(func() { p.serve(ctx, client) })
	}
}

func (p *Proxy) serve(ctx context.Context, client net.Conn) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := dialer.DialContext(ctx, "tcp", target)
	if err != nil {
		_ = client.Close()
		return
	}
	s := newSession(p, client, server)
	defer s.cut()
	p.mu.Lock()
	accepted := ctx.Err() == nil && !p.refusing && target == p.target // CutAll at ctx's end finds every accepted session
	if accepted {
		p.sessions[s] = true
	}
	p.mu.Unlock()
	if !accepted {
		return
	}
	s.run()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sessions, s)
}

package urlmap

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// newTransport returns a transport for thousands of short requests a second to few backends: it keeps as many
// connections as there were concurrent requests.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 2 * time.Second}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &countingConn{Conn: conn}, nil
		},
		MaxIdleConnsPerHost: 2048,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true, // bodies pass unchanged
	}
}

// countingConn counts the bytes written to it.
type countingConn struct {
	net.Conn
	written atomic.Int64
}

// Write writes b and counts its bytes.
func (c *countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}

// watch records whether any byte of one request was written to a backend. The transport can try several kept
// connections for it in turn.
type watch struct {
	mu     sync.Mutex
	conn   *countingConn
	before int64 // bytes written to conn before this request
}

func (w *watch) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: w.gotConn})
}

func (w *watch) gotConn(info httptrace.GotConnInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn, _ = info.Conn.(*countingConn)
	if w.conn != nil {
		w.before = w.conn.written.Load()
	}
}

func (w *watch) sent() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.conn != nil && w.conn.written.Load() > w.before
}

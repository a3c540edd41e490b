package urlmap

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
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

func (c *countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}

// watched returns a context for one request, and a function that reports whether any byte of the request was
// written to a backend. The transport can try several kept connections for it in turn: the last one counts.
func watched(ctx context.Context) (_ context.Context, sent func() bool) {
	type use struct {
		conn   *countingConn
		before int64 // bytes written to conn before this request
	}
	var last atomic.Pointer[use]
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		conn := info.Conn.(*countingConn)
		last.Store(&use{conn, conn.written.Load()})
	}})
	return ctx, func() bool {
		u := last.Load()
		return u != nil && u.conn.written.Load() > u.before
	}
}

package urlmap

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fencepost/fencepost/shared/web"
)

// maxReplay is the longest body, in bytes, that is kept for a second backend. Functions accept less.
const maxReplay = 1 << 20

// badGateway is a load balancer's answer when a backend's connection breaks.
var badGateway = web.Code{Name: web.Unavailable.Name, Status: http.StatusBadGateway}

type service struct {
	mu       sync.Mutex
	backends []string // replaced, never changed in place
	next     int

	invocations, inFlight, failovers, broken, unserved atomic.Int64
}

// turn returns the backends in the order of this request's tries: the next one in turn, then the others.
func (s *service) turn() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.backends)
	if n == 0 {
		return nil
	}
	first := s.next % n
	s.next = first + 1
	return slices.Concat(s.backends[first:], s.backends[:first])
}

// proxy returns the handler that sends requests to the named service.
func (m *Map) proxy(name string) http.Handler {
	s, ok := m.services[name]
	if !ok {
		s = &service{}
		m.services[name] = s
	}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme = "http" // the host is the backend's: see balancer
			r.SetXForwarded()
		},
		Transport:    &balancer{service: s, transport: m.transport},
		BufferPool:   buffers{},
		ErrorHandler: s.fail,
		ErrorLog:     slog.NewLogLogger(slog.Default().Handler(), slog.LevelWarn),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.inFlight.Add(1)
		defer s.inFlight.Add(-1)
		forward.ServeHTTP(w, r)
	})
}

// fail answers a request without an answer from a backend.
func (s *service) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := &web.Problem{Code: badGateway, Detail: "the connection to the backend broke; what it did is not known", Cause: err}
	switch {
	case errors.Is(err, errUnreached):
		s.unserved.Add(1)
		p = web.UnavailableBecause(err, "no backend can be reached; try again")
	case r.Context().Err() == nil: // if the caller left, the backend has no fault
		s.broken.Add(1)
	}
	web.Fail(w, r, p)
}

// errUnreached reports a request of which no backend got any byte.
var errUnreached = errors.New("no backend was reached")

// balancer is the transport that selects the backend.
type balancer struct {
	service   *service
	transport *http.Transport
}

// RoundTrip tries the backends in turn until one gets the request.
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	replay, err := keepBody(r)
	if err != nil {
		return nil, err
	}
	last := errors.New("the service has no backend")
	for i, addr := range b.service.turn() {
		if i > 0 {
			b.service.failovers.Add(1)
		}
		resp, sent, err := b.try(r, addr)
		if err == nil || sent || r.Context().Err() != nil {
			b.service.invocations.Add(1)
			return resp, err
		}
		last = err
		if !replay {
			break // the body was streamed and can be consumed
		}
	}
	return nil, fmt.Errorf("%w: %w", errUnreached, last)
}

func (b *balancer) try(r *http.Request, addr string) (_ *http.Response, sent bool, err error) {
	ctx, wrote := watched(r.Context())
	out := r.Clone(ctx)
	out.URL.Host = addr
	hideIdempotency(out.Header)
	if r.GetBody != nil {
		if out.Body, err = r.GetBody(); err != nil {
			return nil, false, err
		}
	}
	resp, err := b.transport.RoundTrip(out)
	return resp, wrote(), err
}

// hideIdempotency prevents [http.Transport] from sending a POST again after it was sent once. The transport does
// so on a kept connection for requests with one of these headers. It knows only their canonical spelling; for the
// backend all spellings are the same.
func hideIdempotency(h http.Header) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := h[name]; ok {
			delete(h, name)
			h[strings.ToLower(name)] = values
		}
	}
}

// keepBody reads a short body into memory, so that it can be sent again, and reports whether it did. The transport
// itself can then repeat the request if a kept connection is dead before any byte was written.
func keepBody(r *http.Request) (replay bool, err error) {
	if r.Body == nil || r.Body == http.NoBody {
		return true, nil
	}
	if r.ContentLength < 0 || r.ContentLength > maxReplay {
		return false, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return false, fmt.Errorf("read the caller's body: %w", err)
	}
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return true, nil
}

var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// buffers has the copy buffers of the reverse proxy.
type buffers struct{}

func (buffers) Get() []byte  { return copyBuffers.Get().(*[32 << 10]byte)[:] }
func (buffers) Put(b []byte) { copyBuffers.Put((*[32 << 10]byte)(b)) }

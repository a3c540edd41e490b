package web

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// TooManyRequests refuses a request of a caller who has the maximum of running requests in this
// instance. Its body was not read.
var TooManyRequests = Code{"TOO_MANY_REQUESTS", http.StatusTooManyRequests}

// busyRetryAfter is the Retry-After of such an answer.
const busyRetryAfter = time.Second

// Callers limits the concurrent requests of one caller in an instance. A caller above the limit is
// refused, and other callers are not affected. Create it with [NewCallers].
type Callers struct {
	requests int
	bytes    int64
	body     int64

	mu     sync.Mutex
	atWork map[string]load // of callers with running requests
}

type load struct {
	requests int
	bytes    int64
}

// NewCallers gives each caller so many running requests, and so many bytes of their bodies. body is the
// maximum of one body, and at most bytes.
func NewCallers(requests int, bytes, body int64) *Callers {
	return &Callers{requests: requests, bytes: bytes, body: body, atWork: make(map[string]load)}
}

type placeKey struct{}

// place is a request's share of its caller's limit, once the caller is known.
type place struct {
	caller string
	bytes  int64
	taken  bool
}

// Track returns r in the form that [Callers.Enter] needs. leave must be called when r is answered.
func (c *Callers) Track(r *http.Request) (_ *http.Request, leave func()) {
	p := new(place)
	return r.WithContext(context.WithValue(r.Context(), placeKey{}, p)), func() { c.leave(p) }
}

// Enter counts r, which [Callers.Track] returned, as one of the caller's requests until it is answered.
// A body of unknown length counts as the longest. The error is TOO_MANY_REQUESTS. A second Enter of a
// request does not count.
func (c *Callers) Enter(r *http.Request, caller string) error {
	p, ok := r.Context().Value(placeKey{}).(*place)
	if !ok || p.taken {
		return nil
	}
	bytes := min(r.ContentLength, c.body)
	if bytes < 0 {
		bytes = c.body
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.atWork[caller]
	if now.requests >= c.requests || now.bytes+bytes > c.bytes {
		p := &Problem{Code: TooManyRequests, RetryAfter: busyRetryAfter,
			Detail: "too many of your requests, or too many bytes of them, are at work in this instance: wait for their answers, or send fewer at a time. Nothing of this one was read"}
		if r.ContentLength != 0 { // the answer must not wait for a body that may never arrive
			p.Header = http.Header{"Connection": {"close"}}
		}
		return p
	}
	*p = place{caller, bytes, true}
	c.atWork[caller] = load{now.requests + 1, now.bytes + bytes}
	return nil
}

// Free gives back the share of a request that will only be answered. ctx is the request's.
func (c *Callers) Free(ctx context.Context) {
	if p, ok := ctx.Value(placeKey{}).(*place); ok {
		c.leave(p)
	}
}

func (c *Callers) leave(p *place) {
	if !p.taken {
		return
	}
	p.taken = false
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.atWork[p.caller]
	if now.requests--; now.requests == 0 {
		delete(c.atWork, p.caller)
		return
	}
	now.bytes -= p.bytes
	c.atWork[p.caller] = now
}

// Holds delays answers to refused requests. A client that repeats a request without the pause that
// Retry-After asks for would otherwise take the processor from others.
type Holds struct {
	places chan struct{}
	length time.Duration
}

// NewHolds delays each answer by length, and at most so many answers at once.
func NewHolds(places int, length time.Duration) *Holds {
	return &Holds{make(chan struct{}, places), length}
}

// Hold waits. It returns early when the client has left or the instance stops, and at once if all places
// are taken. The caller's share of its limit is free meanwhile; see [Callers.Free].
func (h *Holds) Hold(ctx context.Context, atWork *Callers) {
	select {
	case h.places <- struct{}{}:
	default:
		return
	}
	defer func() { <-h.places }()
	atWork.Free(ctx)
	timer := time.NewTimer(h.length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-closing(ctx):
	}
}

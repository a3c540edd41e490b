package web

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// TooManyRequests refuses a request of a caller who has as many as may be at work in
// this instance already. Nothing of its body was read.
var TooManyRequests = Code{"TOO_MANY_REQUESTS", http.StatusTooManyRequests}

// busyRetryAfter is when a caller may find one of its requests answered.
const busyRetryAfter = time.Second

// Callers bounds how much one caller has an instance do at a time. A caller who sends
// more is refused, and other callers are not. Make one with [NewCallers].
type Callers struct {
	requests int
	bytes    int64
	body     int64

	mu     sync.Mutex
	atWork map[string]load // of callers with a request at work
}

type load struct {
	requests int
	bytes    int64
}

// NewCallers lets each caller have so many requests at work, and so many bytes of
// their bodies. body is the most bytes of one body, and not more than bytes.
func NewCallers(requests int, bytes, body int64) *Callers {
	return &Callers{requests: requests, bytes: bytes, body: body, atWork: make(map[string]load)}
}

type placeKey struct{}

// place is what one request takes of its caller's share, once it is known whose it is.
type place struct {
	caller string
	bytes  int64
	taken  bool
}

// Track is r as [Callers.Enter] wants it. leave is called when r is answered.
func (c *Callers) Track(r *http.Request) (_ *http.Request, leave func()) {
	p := new(place)
	return r.WithContext(context.WithValue(r.Context(), placeKey{}, p)), func() { c.leave(p) }
}

// Enter counts r, which [Callers.Track] returned, among the caller's requests until it
// is answered. A body whose length is not told counts as the longest. The error is a
// TOO_MANY_REQUESTS. A request that has entered is not counted again.
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
		if r.ContentLength != 0 { // the answer does not wait for a body that may never come
			p.Header = http.Header{"Connection": {"close"}}
		}
		return p
	}
	*p = place{caller, bytes, true}
	c.atWork[caller] = load{now.requests + 1, now.bytes + bytes}
	return nil
}

func (c *Callers) leave(p *place) {
	if !p.taken {
		return
	}
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

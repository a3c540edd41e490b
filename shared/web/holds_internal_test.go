package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/shared/check"
)

// held is a request of a caller that a [Gate] has admitted and that is held back.
func held(t *testing.T, g *Gate, c *Callers, h *Holds) (leave func(), answered <-chan time.Duration) {
	t.Helper()
	client, hangUp := context.WithCancel(t.Context())
	ctx, left, ok := g.enter(client)
	check.Equal(t, "admitted", ok, true)
	r, done := c.Track(httptest.NewRequest(http.MethodPost, "/", nil).WithContext(ctx))
	check.OK(t)(c.Enter(r, "shop"))
	after, began := make(chan time.Duration, 1), time.Now()
	go func() {
		h.Hold(r.Context(), c)
		done()
		left()
		after <- time.Since(began)
	}()
	synctest.Wait()
	return hangUp, after
}

// An answer is held for its time, or until its client leaves or the instance stops. An answer above the
// bound is not held.
func TestHoldsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(hangUp func(), g *Gate)
		after time.Duration
	}{
		"its time":            {func(func(), *Gate) {}, time.Second},
		"the client leaves":   {func(hangUp func(), _ *Gate) { hangUp() }, 100 * time.Millisecond},
		"the instance stops":  {func(_ func(), g *Gate) { g.shut() }, 100 * time.Millisecond},
		"a deadline of drain": {func(_ func(), g *Gate) { g.abandon() }, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, callers, h := NewGate(), NewCallers(10, 100, 100), NewHolds(1, time.Second)
				hangUp, first := held(t, g, callers, h)
				defer hangUp()
				_, second := held(t, g, callers, h)
				check.Equal(t, "above the bound", <-second, 0)
				time.Sleep(100 * time.Millisecond)
				c.end(hangUp, g)
				check.Equal(t, "the held one", <-first, c.after)
				if name == "its time" {
					_, third := held(t, g, callers, h)
					check.Equal(t, "the next one", <-third, time.Second)
				}
			})
		})
	}
}

// A held request takes no part of its caller's limit, and gives it back once.
func TestHeldRequestsFreeTheirCallersShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, callers, h := NewGate(), NewCallers(1, 100, 100), NewHolds(2, time.Second)
		_, first := held(t, g, callers, h)
		_, second := held(t, g, callers, h) // enters beside the first
		r, leave := callers.Track(httptest.NewRequest(http.MethodPost, "/", nil))
		check.OK(t)(callers.Enter(r, "shop"))
		<-first
		<-second
		again, _ := callers.Track(httptest.NewRequest(http.MethodPost, "/", nil))
		check.Equal(t, "refused beside the one at work", callers.Enter(again, "shop") != nil, true)
		leave()
		check.OK(t)(callers.Enter(again, "shop"))
	})
}

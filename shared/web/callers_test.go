package web_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/shared/web"
)

// entering is one request of a caller with a body of so many bytes; -1: not told.
func entering(c *web.Callers, caller string, bytes int64) (leave func(), err error) {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.ContentLength = bytes
	r, leave = c.Track(r)
	err = c.Enter(r, caller)
	if again := c.Enter(r, caller); err == nil && again != nil {
		return leave, errors.New("a request that has entered is refused")
	}
	return leave, err
}

func refusedBusy(err error) bool {
	var p *web.Problem
	return errors.As(err, &p) && p.Code == web.TooManyRequests && p.Code.Status == 429 && p.RetryAfterSeconds() == 1
}

// A caller has so many requests at work and so many bytes of them, others have their
// own, and what is answered makes room.
func TestCallers(t *testing.T) {
	t.Parallel()
	type step struct {
		caller string
		bytes  int64
		fits   bool
	}
	for name, steps := range map[string][]step{
		"requests":            {{"a", 0, true}, {"a", 0, true}, {"a", 0, true}, {"a", 0, false}, {"b", 0, true}},
		"bytes":               {{"a", 60, true}, {"a", 40, true}, {"a", 1, false}, {"a", 0, true}, {"b", 60, true}},
		"too long for a body": {{"a", 1 << 40, true}, {"a", 41, false}, {"a", 40, true}},
		"of untold length":    {{"a", -1, true}, {"a", 41, false}, {"a", -1, false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := web.NewCallers(3, 100, 60)
			for range 2 { // what has left takes nothing of the second round
				var leaves []func()
				for i, s := range steps {
					leave, err := entering(c, s.caller, s.bytes)
					if s.fits && err != nil || !s.fits && !refusedBusy(err) {
						t.Errorf("step %d: got %v, want it to fit: %t", i, err, s.fits)
					}
					leaves = append(leaves, leave)
				}
				for _, leave := range leaves {
					leave()
				}
			}
		})
	}
}

// The bytes of a request that has left are free again while others are at work.
func TestCallersGiveBytesBack(t *testing.T) {
	t.Parallel()
	c := web.NewCallers(9, 100, 60)
	if _, err := entering(c, "a", 40); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		leave, err := entering(c, "a", 60)
		if err != nil {
			t.Fatalf("60 bytes beside 40: got %v, want room", err)
		}
		if _, err := entering(c, "a", 1); !refusedBusy(err) {
			t.Errorf("one byte more: got %v, want it refused", err)
		}
		leave()
	}
}

// However many requests come and go at once, no more than the bound are at work, and nothing is
// left in the end.
func TestCallersAtOnce(t *testing.T) {
	t.Parallel()
	c := web.NewCallers(3, 100, 60)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				if leave, err := entering(c, "a", 1); err == nil || refusedBusy(err) {
					leave()
				} else {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range 3 {
		if _, err := entering(c, "a", 1); err != nil {
			t.Errorf("request %d after all have left: got %v, want room", i, err)
		}
	}
}

// A request that nobody tracks is not bounded, as its end would never be seen.
func TestCallersWithoutTrack(t *testing.T) {
	t.Parallel()
	c := web.NewCallers(1, 1, 1)
	for range 3 {
		if err := c.Enter(httptest.NewRequest(http.MethodGet, "/", nil), "a"); err != nil {
			t.Errorf("got %v, want nil", err)
		}
	}
}

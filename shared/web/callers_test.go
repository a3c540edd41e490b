package web_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/web"
)

// entering is a request of a caller with a body of so many bytes; -1: unknown.
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
	p, ok := errors.AsType[*web.Problem](err)
	return ok && p.Code == web.TooManyRequests && p.Code.Status == 429 && p.RetryAfterSeconds() == 1
}

// A caller has a maximum of running requests and bytes, separate from other callers. An answered
// request frees its share.
func TestCallersHaveSeparateLimits(t *testing.T) {
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
			for range 2 { // the first requests have freed their share before the second iteration
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

// The bytes of an answered request are free again while others still run.
func TestAnsweredRequestsFreeTheirBytes(t *testing.T) {
	t.Parallel()
	c := web.NewCallers(9, 100, 60)
	check.OK(t)(entering(c, "a", 40))
	for range 3 {
		leave := check.Value(entering(c, "a", 60))(t)
		if _, err := entering(c, "a", 1); !refusedBusy(err) {
			t.Errorf("one byte more: got %v, want it refused", err)
		}
		leave()
	}
}

// With any number of concurrent requests at most the limit run at once, and nothing is left counted at
// the end.
func TestConcurrentRequestsKeepToTheLimit(t *testing.T) {
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
	for range 3 {
		check.Err(t, "a request after all have left", nil)(entering(c, "a", 1))
	}
}

// An untracked request is not limited, because its end would not be seen.
func TestUntrackedRequestsAreNotLimited(t *testing.T) {
	t.Parallel()
	c := web.NewCallers(1, 1, 1)
	for range 3 {
		check.Err(t, "an untracked request", nil)(c.Enter(httptest.NewRequest(http.MethodGet, "/", nil), "a"))
	}
}

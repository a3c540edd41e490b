package web_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/web"
)

// Any number of readiness calls, on any mux, cause one check a second, and none waits longer than that
// check takes.
func TestReadinessIsCheckedOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var checks atomic.Int64
		var broken atomic.Bool
		ready := web.Ready(func(context.Context) error {
			time.Sleep(100 * time.Millisecond)
			if checks.Add(1); broken.Load() {
				return errors.New("no database")
			}
			return nil
		})
		muxes := []*web.Mux{web.NewMux(), web.NewMux()}
		for _, mux := range muxes {
			mux.HandleHealth(ready)
		}
		flood := func(want int) {
			t.Helper()
			var all sync.WaitGroup
			began := time.Now()
			for i := range 200 {
				all.Go(func() {
					check.Equal(t, "answer", serve(muxes[i%2], "GET", "/readyz").Code, want)
				})
			}
			if all.Wait(); time.Since(began) > 100*time.Millisecond {
				t.Errorf("answers: got the last after %s, want 100ms", time.Since(began))
			}
		}
		for second := range 5 {
			for range 10 { // within one second
				flood(http.StatusOK)
			}
			check.Equal(t, fmt.Sprintf("checks in second %d", second), checks.Load(), int64(second+1))
			time.Sleep(time.Second)
		}
		broken.Store(true)
		flood(http.StatusServiceUnavailable)
		broken.Store(false)
		flood(http.StatusServiceUnavailable)
		time.Sleep(time.Second)
		flood(http.StatusOK)
	})
}

// A caller that leaves ends no check that others wait for.
func TestReadinessCheckOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mux := web.NewMux()
		mux.HandleHealth(web.Ready(func(ctx context.Context) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}))
		var all sync.WaitGroup
		for _, leaves := range []bool{true, false} {
			all.Go(func() {
				ctx, leave := context.WithCancel(t.Context())
				if leaves {
					time.AfterFunc(10*time.Millisecond, leave)
				} else {
					time.Sleep(time.Millisecond) // the caller that leaves has begun the check
					defer leave()
				}
				rec := httptest.NewRecorder()
				mux.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, "GET", "/readyz", nil))
				if !leaves && rec.Code != http.StatusOK {
					t.Errorf("the other: got %d, want 200", rec.Code)
				}
			})
		}
		all.Wait()
	})
}

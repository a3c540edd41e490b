package web_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/web"
)

// The startup check passes with the first success of the readiness check, and stays passed.
func TestStartedOnceReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fails := errors.New("no database")
		mux := web.NewMux()
		mux.HandleStartup(web.Started(func(context.Context) error { return fails }, 45*time.Second))
		check.Equal(t, "without a database", serve(mux, "GET", "/startupz").Code, http.StatusServiceUnavailable)
		time.Sleep(30 * time.Second)
		check.Equal(t, "after 30 s without one", serve(mux, "GET", "/startupz").Code, http.StatusServiceUnavailable)
		fails = nil
		check.Equal(t, "with a database", serve(mux, "GET", "/startupz").Code, http.StatusOK)
		fails = errors.New("the database is gone")
		check.Equal(t, "once the database is gone", serve(mux, "GET", "/startupz").Code, http.StatusOK)
	})
}

// An instance that never reaches its database starts all the same, so that it answers 503 with the reason.
func TestStartedAfterItsPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		checks := 0
		mux := web.NewMux()
		mux.HandleStartup(web.Started(func(context.Context) error { checks++; return errors.New("no database") }, 45*time.Second))
		time.Sleep(45*time.Second - 1)
		check.Equal(t, "just before 45 s", serve(mux, "GET", "/startupz").Code, http.StatusServiceUnavailable)
		time.Sleep(1)
		check.Equal(t, "after 45 s", serve(mux, "GET", "/startupz").Code, http.StatusOK)
		check.Equal(t, "checks: none after 45 s", checks, 1)
	})
}

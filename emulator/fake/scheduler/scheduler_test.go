package scheduler_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/issuer"
	"github.com/fencepost/fencepost/emulator/fake/scheduler"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/web"
	"go.uber.org/goleak"
)

const (
	account  = "scheduler@fencepost.test"
	audience = "https://internal.fencepost.test"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, o scheduler.Options) *scheduler.Scheduler {
	t.Helper()
	if o.Token == nil {
		o.Token = func(context.Context, string, string) (string, error) { return "token", nil }
	}
	s := check.Value(scheduler.Start(o))(t)
	t.Cleanup(s.Stop)
	return s
}

// function serves a function's handler and returns its address.
func function(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// over is a network inside the process, for tests with a fake clock. It calls the function for the status, and
// ends with the request.
type over func(r *http.Request) int

func (status over) RoundTrip(r *http.Request) (*http.Response, error) {
	code := status(r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

func TestJobSendsItsAccountsToken(t *testing.T) {
	t.Parallel()
	i := check.Value(issuer.Start(issuer.Options{Accounts: []string{account}}))(t)
	t.Cleanup(func() { _ = i.Close() })
	v := check.Value(web.NewVerifier(web.VerifierOptions{Issuer: i.URL(), JWKSURL: i.JWKSURL(), Audience: audience}))(t)
	var got []string
	url := function(t, web.RequireAccounts(v, account)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = []string{r.Method, r.Header.Get("X-CloudScheduler"), r.Header.Get("Content-Type"), string(body)}
	})).ServeHTTP)
	job := scheduler.Job{Name: "sweep", Every: time.Hour, URL: url, Body: []byte("{}"), Account: account, Audience: audience}
	unknown := job
	unknown.Name, unknown.Account = "stranger", "stranger@fencepost.test"
	s := start(t, scheduler.Options{Jobs: []scheduler.Job{job, unknown}, Token: i.Token})
	check.OK(t)(s.RunNow(t.Context(), "sweep"))
	check.Same(t, "request", got, []string{"POST", "true", "application/json", "{}"})
	check.Err(t, "an account that does not exist", issuer.ErrUnknownAccount)(s.RunNow(t.Context(), "stranger"))
}

func TestJobsRunAtTheirIntervalAndNeverBesideThemselves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		var running atomic.Int32
		s := start(t, scheduler.Options{
			Jobs: []scheduler.Job{{Name: "sweep", Every: time.Minute, URL: "http://f.test"}},
			Transport: over(func(r *http.Request) int {
				if running.Add(1) > 1 {
					t.Error("got a run beside another, want one at a time")
				}
				at = append(at, time.Since(began))
				if len(at) == 2 { // takes longer than two intervals
					<-time.After(150 * time.Second)
				}
				running.Add(-1)
				return http.StatusOK
			}),
		})
		<-time.After(6*time.Minute + time.Second)
		s.Stop()
		// The run due at 3 min begins when the one of 2 min has ended. The one due at 4 min is skipped: its tick
		// finds that of 3 min still waiting.
		want := []time.Duration{time.Minute, 2 * time.Minute, 4*time.Minute + 30*time.Second, 5 * time.Minute, 6 * time.Minute}
		check.Same(t, "starts", at, want)
	})
}

func TestAnAttemptEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, scheduler.Options{
			Jobs:      []scheduler.Job{{Name: "sweep", Every: time.Hour, URL: "http://f.test", Deadline: time.Minute}},
			Transport: over(func(r *http.Request) int { <-r.Context().Done(); return 0 }),
		})
		began := time.Now()
		check.Err(t, "the deadline", context.DeadlineExceeded)(s.RunNow(t.Context(), "sweep"))
		check.Equal(t, "answer", time.Since(began), time.Minute)
		s.Stop()
	})
}

func TestStopCancelsAttempts(t *testing.T) {
	t.Parallel()
	in := make(chan struct{})
	url := function(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body) // only after this read does net/http notice that the caller left
		in <- struct{}{}
		<-r.Context().Done()
	})
	ended := make(chan error, 10)
	s := start(t, scheduler.Options{
		Jobs:      []scheduler.Job{{Name: "sweep", Every: time.Millisecond, URL: url}},
		Attempted: func(_ string, err error) { ended <- err },
	})
	<-in
	s.Stop()
	check.Err(t, "the attempt", context.Canceled)(<-ended)
	check.Equal(t, "attempts after the scheduler was stopped", len(ended), 0)
	check.Err(t, "run when stopped", scheduler.ErrStopped)(s.RunNow(t.Context(), "sweep"))
}

func TestAnAnswerOtherThan2xxFails(t *testing.T) {
	t.Parallel()
	url := function(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) })
	s := start(t, scheduler.Options{Jobs: []scheduler.Job{{Name: "sweep", Every: time.Hour, URL: url}}})
	if err := s.RunNow(t.Context(), "sweep"); err == nil || !strings.Contains(err.Error(), "302") {
		t.Errorf("got %v, want the answer 302 as an error", err)
	}
	check.Err(t, "an unknown job", scheduler.ErrUnknownJob)(s.RunNow(t.Context(), "nothing"))
}

func TestJobsNeedAnIntervalAndAUniqueName(t *testing.T) {
	t.Parallel()
	for _, jobs := range [][]scheduler.Job{{{Name: "a"}}, {{Name: "a", Every: 1}, {Name: "a", Every: 1}}} {
		if s, err := scheduler.Start(scheduler.Options{Jobs: jobs}); err == nil {
			t.Errorf("got %v for %+v, want an error", s, jobs)
		}
	}
}

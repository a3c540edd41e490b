// Package scheduler is the emulator's Cloud Scheduler: HTTP jobs that POST to a function at a fixed interval,
// with an OIDC token of the job's account.
//
// As in the service, an attempt succeeds if it is answered 2xx before its deadline. A job never runs twice at once:
// runs that fall due meanwhile are skipped. A failed attempt is not retried: the next run follows.
package scheduler

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Errors of [Scheduler.RunNow].
var (
	ErrUnknownJob = errors.New("unknown job")
	ErrStopped    = errors.New("the scheduler is stopped")
)

// defaultDeadline is the service's default for HTTP jobs.
const defaultDeadline = 3 * time.Minute

// Job is one entry of the schedule.
type Job struct {
	Name     string
	Every    time.Duration // from one start to the next; the service allows only whole minutes
	URL      string
	Body     []byte        // sent as application/json; may be empty
	Account  string        // e-mail of the account whose token is sent
	Audience string        // of the token
	Deadline time.Duration // of one attempt; 0: 3 min
}

// Options are a scheduler's jobs and connections.
type Options struct {
	Jobs []Job

	// Token returns the token of an attempt. An error fails the attempt.
	Token func(ctx context.Context, account, audience string) (string, error)

	// Transport sends the attempts; nil: a new one.
	Transport http.RoundTripper

	// Attempted, if not nil, is called after each attempt; err is nil if it succeeded. Calls for different
	// jobs overlap.
	Attempted func(job string, err error)
}

// Scheduler runs jobs. Make one with [Start].
type Scheduler struct {
	options Options
	client  *http.Client
	stop    context.CancelFunc
	stopped <-chan struct{}
	runs    map[string]chan chan<- error // by job; see RunNow
	running sync.WaitGroup
}

// Start starts the schedule: each job first runs after its interval. The error names a job without an interval,
// or with the name of another job.
func Start(o Options) (*Scheduler, error) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Scheduler{options: o, stop: cancel, stopped: ctx.Done(), runs: map[string]chan chan<- error{}}
	transport := cmp.Or[http.RoundTripper](o.Transport, &http.Transport{})
	s.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // the service follows no redirect: an answer other than 2xx fails
	}}
	for _, j := range o.Jobs {
		if _, twice := s.runs[j.Name]; twice || j.Every <= 0 {
			cancel()
			return nil, fmt.Errorf("job %q: every %s; want a positive interval and a name of its own", j.Name, j.Every)
		}
		s.runs[j.Name] = make(chan chan<- error)
	}
	for _, j := range o.Jobs {
		s.running.Go(func() { s.keep(ctx, j, s.runs[j.Name]) })
	}
	return s, nil
}

// Stop ends the schedule, cancels attempts in progress, and waits for their end. A second call does nothing.
func (s *Scheduler) Stop() {
	s.stop()
	s.running.Wait()
	s.client.CloseIdleConnections()
}

// RunNow runs one attempt of the job outside its schedule, after an attempt of the job in progress, and waits
// for its end. It returns nil if the attempt was answered 2xx, and the attempt's error otherwise. Other errors
// are [ErrUnknownJob], [ErrStopped] and ctx's; the attempt continues when ctx ends.
func (s *Scheduler) RunNow(ctx context.Context, name string) error {
	runs, ok := s.runs[name]
	if !ok {
		return fmt.Errorf("run job %q: %w", name, ErrUnknownJob)
	}
	result := make(chan error, 1)
	select {
	case runs <- result:
		select {
		case err := <-result:
			return err
		case <-ctx.Done():
		}
	case <-s.stopped:
		return fmt.Errorf("run job %q: %w", name, ErrStopped)
	case <-ctx.Done():
	}
	return fmt.Errorf("run job %q: %w", name, ctx.Err())
}

// keep runs one job. Its single goroutine prevents two runs at once; the ticker drops the runs that fall due
// during a run.
func (s *Scheduler) keep(ctx context.Context, j Job, runs <-chan chan<- error) {
	tick := time.NewTicker(j.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case result := <-runs:
			result <- s.attempt(ctx, j, time.Now())
		case due := <-tick.C:
			_ = s.attempt(ctx, j, due) // reported by Attempted
		}
	}
}

// attempt sends one POST and reports its result. After Stop it does neither: a job can be due at the same moment.
func (s *Scheduler) attempt(ctx context.Context, j Job, due time.Time) error {
	if ctx.Err() != nil {
		return fmt.Errorf("job %s: %w", j.Name, ErrStopped)
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(j.Deadline, defaultDeadline))
	defer cancel()
	err := s.post(ctx, j, due)
	if err != nil {
		err = fmt.Errorf("job %s: %w", j.Name, err)
	}
	if s.options.Attempted != nil {
		s.options.Attempted(j.Name, err)
	}
	return err
}

func (s *Scheduler) post(ctx context.Context, j Job, due time.Time) error {
	token, err := s.options.Token(ctx, j.Account, j.Audience)
	if err != nil {
		return fmt.Errorf("token: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, j.URL, bytes.NewReader(j.Body))
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("User-Agent", "Google-Cloud-Scheduler")
	req.Header.Set("X-CloudScheduler", "true")
	req.Header.Set("X-CloudScheduler-JobName", j.Name)
	req.Header.Set("X-CloudScheduler-ScheduleTime", due.UTC().Format(time.RFC3339))
	if len(j.Body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20)) // lets the connection be used again
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("answered %s", resp.Status)
	}
	return nil
}

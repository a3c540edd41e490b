// Package scheduler is the emulator's stand-in for Cloud Scheduler: HTTP jobs
// that POST to a function at a fixed interval, with an OIDC token of the job's
// account.
//
// As in the service, an attempt is good if it is answered 2xx before its
// deadline; a failed one is retried as often as the job's [Retry] says, and a
// job never runs beside itself: what falls due meanwhile is left out.
package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Errors of [Scheduler.RunNow].
var (
	ErrUnknownJob = errors.New("unknown job")
	ErrStopped    = errors.New("the scheduler is stopped")
)

// defaultDeadline is the service's for HTTP jobs.
const defaultDeadline = 3 * time.Minute

// Job is one entry of the schedule.
type Job struct {
	Name     string
	Every    time.Duration // from one start to the next; the service knows whole minutes only
	URL      string
	Body     []byte        // sent as application/json; may be empty
	Account  string        // whose token is sent, by e-mail
	Audience string        // for whom the token is
	Deadline time.Duration // of one attempt; 0: 3 min
	Retry    Retry
}

// Retry says when a failed attempt is made again. The zero Retry never does.
//
// Source: https://docs.cloud.google.com/scheduler/docs/reference/rest/v1/projects.locations.jobs#retryconfig
type Retry struct {
	Count        int           // how many more attempts, at most
	MinBackoff   time.Duration // before the first of them; 0: 5 s
	MaxBackoff   time.Duration // never longer than this; 0: 1 h
	MaxDoublings int           // how often the pause doubles before it grows by equal steps; 0: 5
}

// Pause is how long the service waits before the retry with this number, from 1
// on: it doubles MaxDoublings times, then grows by the last step, up to
// MaxBackoff. (Of 10 s, 300 s and 3: 10, 20, 40, 80, 160, 240, 300, 300 s.)
func (r Retry) Pause(retry int) time.Duration {
	first := cmp.Or(r.MinBackoff, 5*time.Second)
	most := cmp.Or(r.MaxBackoff, time.Hour)
	doublings := cmp.Or(r.MaxDoublings, 5)
	pause, step := first, first
	for n := range retry - 1 {
		if n <= doublings { // a step as long as the pause doubles it
			step = pause
		}
		pause = min(pause+step, most)
	}
	return min(pause, most)
}

// Options say what a scheduler runs.
type Options struct {
	Jobs []Job

	// Token makes the token of an attempt. An error fails the attempt.
	Token func(ctx context.Context, account, audience string) (string, error)

	// Transport carries the attempts; nil: one of the scheduler's own.
	Transport http.RoundTripper

	// Attempted, if not nil, is told of each attempt's end; err is nil if it was
	// good. Calls for different jobs overlap.
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

// Start begins the schedule: each job runs for the first time when its interval
// has passed. The error says which job has no interval or an other job's name.
func Start(o Options) (*Scheduler, error) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Scheduler{options: o, stop: cancel, stopped: ctx.Done(), runs: map[string]chan chan<- error{}}
	if o.Transport == nil {
		s.options.Transport = &http.Transport{}
	}
	s.client = &http.Client{Transport: s.options.Transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // the service follows none: an answer other than 2xx failed
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

// Stop ends the schedule, cuts off attempts that are under way, and waits for
// their end. Stopping again is harmless.
func (s *Scheduler) Stop() {
	s.stop()
	s.running.Wait()
	s.client.CloseIdleConnections()
}

// RunNow makes one attempt of the job, besides its schedule and its pauses, and
// waits for its end. If an attempt of the job is under way, it begins after
// that. It returns what the attempt came to: nil if it was answered 2xx. Other
// errors are [ErrUnknownJob], [ErrStopped] and ctx's; the attempt goes on when
// ctx ends.
func (s *Scheduler) RunNow(ctx context.Context, name string) error {
	runs, ok := s.runs[name]
	if !ok {
		return fmt.Errorf("run job %q: %w", name, ErrUnknownJob)
	}
	result := make(chan error, 1)
	select {
	case runs <- result:
	case <-s.stopped:
		return fmt.Errorf("run job %q: %w", name, ErrStopped)
	case <-ctx.Done():
		return fmt.Errorf("run job %q: %w", name, ctx.Err())
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("run job %q: %w", name, ctx.Err())
	}
}

// keep is one job's life. That it is a single goroutine keeps the job from
// running beside itself; the ticker drops what falls due during a run.
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
			s.run(ctx, j, due, runs)
		}
	}
}

// run makes the attempts of one scheduled execution.
func (s *Scheduler) run(ctx context.Context, j Job, due time.Time, runs <-chan chan<- error) {
	err := s.attempt(ctx, j, due)
	for retry := 1; err != nil && retry <= j.Retry.Count; retry++ {
		timer := time.NewTimer(j.Retry.Pause(retry))
		for paused := true; paused; {
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case result := <-runs:
				result <- s.attempt(ctx, j, time.Now())
			case <-timer.C:
				paused = false
			}
		}
		err = s.attempt(ctx, j, due)
	}
}

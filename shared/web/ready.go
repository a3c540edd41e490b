package web

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	readyDeadline = 2 * time.Second // of one check: probes time out soon after
	readyHolds    = time.Second     // how long its result is shared
)

// Ready returns a readiness check whose result all callers share. A call within a second after a check
// began gets its result, and a call during a check waits for it. check gets two seconds and must
// respect its context. All muxes of a process should share one, since each offers it to any caller.
func Ready(check func(context.Context) error) func(context.Context) error {
	s := &sharedCheck{check: check}
	return s.result
}

// Started returns a startup check. It passes once ready, a [Ready], has passed, and at the latest when
// patience has passed since this call. From then on it always passes, without calling ready.
func Started(ready func(context.Context) error, patience time.Duration) func(context.Context) error {
	began := time.Now()
	var passed atomic.Bool
	return func(ctx context.Context) error {
		if passed.Load() || time.Since(began) >= patience {
			return nil
		}
		err := ready(ctx)
		if err == nil {
			passed.Store(true)
		}
		return err
	}
}

type sharedCheck struct {
	check func(context.Context) error

	mu   sync.Mutex
	last *oneCheck
}

type oneCheck struct {
	began time.Time
	done  chan struct{} // closed once err is known
	err   error
}

// result returns the result of the running check, of one that began less than a second ago, or of a new
// one. A caller that leaves ends no check that others wait for.
func (s *sharedCheck) result(ctx context.Context) error {
	one := s.current(ctx)
	select {
	case <-one.done:
		return one.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *sharedCheck) current(ctx context.Context) *oneCheck {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && (s.last.running() || time.Since(s.last.began) < readyHolds) {
		return s.last
	}
	one := &oneCheck{began: time.Now(), done: make(chan struct{})}
	s.last = one
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyDeadline)
		defer cancel()
		one.err = s.check(ctx)
		close(one.done)
	}()
	return one
}

func (o *oneCheck) running() bool {
	select {
	case <-o.done:
		return false
	default:
		return true
	}
}

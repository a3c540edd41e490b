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
	var mu sync.Mutex
	var last *sharedCheck
	current := func(ctx context.Context) *sharedCheck {
		mu.Lock()
		defer mu.Unlock()
		if last == nil || last.over.Err() != nil && time.Since(last.began) >= readyHolds {
			last = begin(ctx, check)
		}
		return last
	}
	return func(ctx context.Context) error {
		one := current(ctx)
		select {
		case <-one.over.Done():
			return one.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sharedCheck is one call of a check.
type sharedCheck struct {
	began time.Time
	over  context.Context // ends once err is known
	err   error
}

// begin begins a check. A caller that leaves does not end it, since others may wait for it.
func begin(ctx context.Context, check func(context.Context) error) *sharedCheck {
	over, end := context.WithCancel(context.Background())
	one := &sharedCheck{began: time.Now(), over: over}
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyDeadline)
		defer cancel()
		one.err = check(ctx)
		end()
	}()
	return one
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

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

// Shared returns a function that reads a value for all its callers. A call during a read waits for it. A later call gets the
// same result for as long as keep says of its error, counted from the read's beginning. A caller that leaves does not end the
// read, since others may wait for it.
func Shared[T any](read func(context.Context) (T, error), keep func(error) time.Duration) func(context.Context) (T, error) {
	type reading struct {
		began time.Time
		over  context.Context // ends once value and err are known
		value T
		err   error
	}
	var mu sync.Mutex
	var last *reading
	current := func(ctx context.Context) *reading {
		mu.Lock()
		defer mu.Unlock()
		if last != nil && (last.over.Err() == nil || time.Since(last.began) < keep(last.err)) {
			return last
		}
		over, end := context.WithCancel(context.Background())
		one := &reading{began: time.Now(), over: over}
		go func() {
			defer end()
			one.value, one.err = read(context.WithoutCancel(ctx))
		}()
		last = one
		return one
	}
	return func(ctx context.Context) (T, error) {
		one := current(ctx)
		select {
		case <-one.over.Done():
			return one.value, one.err
		case <-ctx.Done():
			return *new(T), ctx.Err()
		}
	}
}

// Ready returns a readiness check whose result all callers share. A call within a second after a check
// began gets its result, and a call during a check waits for it. check gets two seconds and must
// respect its context. All muxes of a process should share one, since each offers it to any caller.
func Ready(check func(context.Context) error) func(context.Context) error {
	shared := Shared(func(ctx context.Context) (struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, readyDeadline)
		defer cancel()
		return struct{}{}, check(ctx)
	}, func(error) time.Duration { return readyHolds })
	return func(ctx context.Context) error {
		_, err := shared(ctx)
		return err
	}
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

// Package retry bounds and paces the requests of the clients of a run. Clients that time out
// at a fixed interval and repeat at once would keep an overloaded machine busy with requests
// that no client waits for any more. So each timeout and each pause grows.
package retry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	shortestWait = 6 * time.Second // for an answer, without timeouts before
	maxDoublings = 4               // 96 s

	firstPause = 200 * time.Millisecond
	maxPause   = 8 * time.Second
)

// Timeout is how long one client waits for an answer. Its zero value is ready, and several
// goroutines can use it.
type Timeout struct{ late atomic.Int32 }

// Context returns a context that ends when the client gives up on the answer. The caller calls
// done after the request. A timeout doubles the next wait; an answer in time resets it.
func (p *Timeout) Context(ctx context.Context) (waiting context.Context, done func()) {
	waiting, cancel := context.WithTimeout(ctx, shortestWait<<p.late.Load())
	return waiting, func() {
		if waiting.Err() != nil {
			p.late.Store(min(p.late.Load()+1, maxDoublings))
		} else {
			p.late.Store(0)
		}
		cancel()
	}
}

// Pause waits for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	waiting, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-waiting.Done()
}

// Until calls until isDone accepts the result or ctx ends, as [Poll] does. It returns the last result.
func Until[T any](ctx context.Context, call func() T, isDone func(T) bool) (result T) {
	Poll(ctx, firstPause, func() bool {
		result = call()
		return isDone(result)
	})
	return result
}

// Poll calls until it reports the end or ctx ends. Each pause between two calls is half as long again as the one before:
// with wide windows a thousand clients poll at once.
func Poll(ctx context.Context, first time.Duration, hasEnded func() bool) {
	for pause := max(first, firstPause); ctx.Err() == nil && !hasEnded(); pause = min(pause*3/2, maxPause) {
		Pause(ctx, pause)
	}
}

// Await polls the condition until it is met or ctx ends, and reports whether it was met.
func Await(ctx context.Context, every time.Duration, met func() bool) bool {
	for !met() {
		if Pause(ctx, every); ctx.Err() != nil {
			return met()
		}
	}
	return true
}

// AtRate calls begin so often a second until ctx ends, and runs what it returns beside; nil: nothing. begin gets the
// number of the earlier ones. AtRate returns when all have ended.
func AtRate(ctx context.Context, perSecond float64, begin func(n int) func()) {
	var running sync.WaitGroup
	defer running.Wait()
	tick := time.NewTicker(time.Duration(float64(time.Second) / perSecond))
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if run := begin(n); run != nil {
				running.Go(run)
				n++
			}
		}
	}
}

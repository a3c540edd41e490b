// Package patience has how long the people of a run wait: for an answer, and before they
// ask again. On a machine that does not keep up they wait longer each time. People who
// give up at the same moment each time, and ask again at once, keep such a machine busy
// with requests that nobody waits for any more, and nothing ends.
package retry

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	shortestWait = 6 * time.Second // for an answer, while each comes in time
	maxDoublings = 4               // at most: 96 s

	firstPause = 200 * time.Millisecond
	maxPause   = 8 * time.Second
)

// Timeout is how long one person waits for an answer. Its zero value is ready, and may be
// used by several goroutines.
type Timeout struct{ late atomic.Int32 }

// Context returns a context that ends when the person gives up on an answer. Call done when
// the request is over: one that was given up doubles the next wait, and one that was not
// ends that.
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

// Backoff are those of one who asks the same again until the answer is clear: the first is
// short, and each lasts half as long again as the one before. Its zero value is ready.
type Backoff struct{ Next time.Duration } // 0: of 200 ms

// Pause waits before the same is asked again.
func (p *Backoff) Pause(ctx context.Context) {
	now := min(max(p.Next, firstPause), maxPause)
	p.Next = now * 3 / 2
	Pause(ctx, now)
}

// Pause waits for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Package patience has how long the people of a run wait: for an answer, and before they
// ask again. On a machine that does not keep up they wait longer each time. People who
// give up at the same moment each time, and ask again at once, keep such a machine busy
// with requests that nobody waits for any more, and nothing ends.
package patience

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	least     = 6 * time.Second // for an answer, while each comes in time
	doublings = 4               // at most: 96 s

	firstPause   = 200 * time.Millisecond
	longestPause = 8 * time.Second
)

// Patience is how long one person waits for an answer. Its zero value is ready, and may be
// used by several goroutines.
type Patience struct{ late atomic.Int32 }

// Bound returns a context that ends when the person gives up on an answer. Call done when
// the request is over: one that was given up doubles the next wait, and one that was not
// ends that.
func (p *Patience) Bound(ctx context.Context) (bound context.Context, done func()) {
	bound, cancel := context.WithTimeout(ctx, least<<p.late.Load())
	return bound, func() {
		if bound.Err() != nil {
			p.late.Store(min(p.late.Load()+1, doublings))
		} else {
			p.late.Store(0)
		}
		cancel()
	}
}

// Pauses are those of one who asks the same again until the answer is clear: the first is
// short, and each lasts half as long again as the one before. Its zero value is ready.
type Pauses struct{ Next time.Duration } // 0: of 200 ms

// Pause waits before the same is asked again.
func (p *Pauses) Pause(ctx context.Context) {
	now := min(max(p.Next, firstPause), longestPause)
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

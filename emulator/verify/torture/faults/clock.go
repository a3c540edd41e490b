package faults

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
)

// clockFaults move the database's clock. They need a cluster that was started with a movable
// clock.
func clockFaults() []Fault {
	return []Fault{
		{"the database's clock is put forward", 1, moveClock(1)},
		{"the database's clock is set back", 1, moveClock(-1)},
	}
}

// moveClock moves the clock by one to ten seconds, which is longer than a lease, and resets it
// after a while. The reset is a move in the other direction.
func moveClock(sign time.Duration) inject {
	return func(ctx context.Context, w *World, r *rand.Rand) (times int, err error) {
		w.clock.Lock()
		defer w.clock.Unlock()
		if err := w.Cluster.SetClock(sign * randomDuration(r, time.Second, 10*time.Second)); err != nil {
			return 0, err
		}
		retry.Pause(ctx, randomDuration(r, 2*time.Second, 8*time.Second))
		return 1, w.Cluster.SetClock(0)
	}
}

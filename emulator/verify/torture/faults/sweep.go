package faults

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
)

func sweepFaults() []Fault {
	return []Fault{
		{"two sweeps at once", 1, func(ctx context.Context, w *World, _ *rand.Rand) (int, error) {
			client.Concurrently(2, func() { w.Sweeper.Sweep(ctx) })
			return 1, nil
		}},
		{"no sweep for a while", 1, func(ctx context.Context, w *World, r *rand.Rand) (int, error) {
			w.Sweeper.paused.Add(1)
			defer w.Sweeper.paused.Add(-1)
			retry.Pause(ctx, randomDuration(r, 5*time.Second, 15*time.Second))
			return 1, nil
		}},
	}
}

// Sweeper calls the sweep at irregular times.
type Sweeper struct {
	run    func(context.Context) error
	paused atomic.Int32
}

// sweepWithin bounds one sweep: it can hit a stopped process.
const sweepWithin = 8 * time.Second

// Sweep runs one sweep. A later one makes up for a failure.
func (s *Sweeper) Sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sweepWithin)
	defer cancel()
	_ = s.run(ctx)
}

// Run sweeps every one to four seconds until ctx ends.
func (s *Sweeper) Run(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		retry.Pause(ctx, randomDuration(r, time.Second, 4*time.Second))
		if s.paused.Load() == 0 && ctx.Err() == nil {
			s.Sweep(ctx)
		}
	}
}

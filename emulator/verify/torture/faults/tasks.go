package faults

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/cloudtasks"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// tasks makes Cloud Tasks misbehave for a while.
func tasks(draw func(*cloudtasks.Faults, *rand.Rand)) inject {
	return lasting(2*time.Second, 6*time.Second, func(w *World, r *rand.Rand) (end func()) {
		seed := r.Uint64()
		return w.tasks.begin(func(f *cloudtasks.Faults) {
			f.Seed = seed
			draw(f, rand.New(rand.NewPCG(seed, seed))) // the same numbers each time that it is applied
		})
	})
}

// emptyQueues deletes the tasks of every queue, once there are some.
func emptyQueues(ctx context.Context, w *World, _ *rand.Rand) int {
	kinds := []txmanager.Kind{txmanager.KindAdvance, txmanager.KindReceipt, txmanager.KindConfirm, txmanager.KindResubmit}
	if w.Users > 0 {
		kinds = append(kinds, "transfer")
	}
	return untilStruck(ctx, func() (thrown int) {
		for _, kind := range kinds {
			thrown += steps.Value(w.Stack.Tasks.Empty(stack.QueueName(kind)))
		}
		return min(thrown, 1)
	})
}

// Sweeper calls the sweep at irregular times.
type Sweeper struct {
	run    func(context.Context) error
	paused atomic.Int32
}

// sweep runs one sweep. A later one makes up for a failure.
func (s *Sweeper) sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 8*time.Second) // it can hit a stopped process
	defer cancel()
	_ = s.run(ctx)
}

// Run sweeps every one to four seconds until ctx ends.
func (s *Sweeper) Run(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		retry.Pause(ctx, randomDuration(r, time.Second, 4*time.Second))
		if s.paused.Load() == 0 && ctx.Err() == nil {
			s.sweep(ctx)
		}
	}
}

func sweepTwice(ctx context.Context, w *World, _ *rand.Rand) int {
	client.Concurrently(2, func() { w.Sweeper.sweep(ctx) })
	return 1
}

func pauseSweeper(w *World, _ *rand.Rand) (end func()) {
	w.Sweeper.paused.Add(1)
	return func() { w.Sweeper.paused.Add(-1) }
}

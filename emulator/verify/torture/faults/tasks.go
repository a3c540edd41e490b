package faults

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/cloudtasks"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

func taskFaults() []Fault {
	share := func(r *rand.Rand) float64 { return 0.2 + 0.8*r.Float64() }
	return []Fault{
		{"tasks delivered up to 5 times at once", 2, tasks(func(f *cloudtasks.Faults, r *rand.Rand) { f.Copies = 2 + r.IntN(4) })},
		{"tasks delayed and reordered", 2, tasks(func(f *cloudtasks.Faults, r *rand.Rand) {
			f.Delay = randomDuration(r, 500*time.Millisecond, 4*time.Second)
		})},
		{"tasks lost", 2, tasks(func(f *cloudtasks.Faults, r *rand.Rand) { f.Drop = share(r) })},
		{"answers to tasks not heard", 1, tasks(func(f *cloudtasks.Faults, r *rand.Rand) { f.DropAck = share(r) })},
		{"answers of Cloud Tasks lost", 1, tasks(func(f *cloudtasks.Faults, r *rand.Rand) { f.DropResponse = share(r) })},
		{"Cloud Tasks unavailable", 1, tasks(func(f *cloudtasks.Faults, _ *rand.Rand) { f.Unavailable = true })},
		{"queues emptied", 1, emptyQueues},
	}
}

// tasks makes Cloud Tasks misbehave for a while.
func tasks(draw func(*cloudtasks.Faults, *rand.Rand)) inject {
	return func(ctx context.Context, w *World, r *rand.Rand) (int, error) {
		seed := r.Uint64()
		end := w.tasks.begin(func(f *cloudtasks.Faults) {
			f.Seed = seed
			draw(f, rand.New(rand.NewPCG(seed, seed))) // the same numbers each time that it is applied
		})
		defer end()
		retry.Pause(ctx, randomDuration(r, 2*time.Second, 6*time.Second))
		return 1, nil
	}
}

// emptyQueues deletes the tasks of every queue, once there are some.
func emptyQueues(ctx context.Context, w *World, _ *rand.Rand) (times int, err error) {
	until(ctx, targetTimeout, func() bool {
		thrown := 0
		kinds := []txmanager.Kind{txmanager.KindAdvance, txmanager.KindReceipt, txmanager.KindConfirm, txmanager.KindResubmit}
		if w.Users > 0 {
			kinds = append(kinds, "transfer")
		}
		for _, kind := range kinds {
			n, failed := w.Stack.Tasks.Empty(stack.QueueName(kind))
			thrown, err = thrown+n, failed
		}
		times = min(thrown, 1)
		return times > 0 || err != nil
	})
	return times, err
}

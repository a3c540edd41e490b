package main

import (
	"context"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/verify/torture/faults"
	"github.com/fencepost/fencepost/emulator/verify/torture/plan"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
)

// faultGrace is how long after the last event a fault may still wait for a target.
const faultGrace = 3 * time.Second

// injectAll injects each event at its time, while earlier ones may still last. It returns when all
// have been undone.
func (e *episode) injectAll(ctx context.Context) {
	lasting, undo := context.WithCancel(ctx)
	defer undo()
	began := time.Now()
	var under sync.WaitGroup
	for _, one := range e.events {
		retry.Pause(ctx, time.Until(began.Add(one.At)))
		if ctx.Err() != nil {
			break
		}
		under.Go(func() { e.inject(lasting, one.Kind, one.Seed) })
	}
	retry.Pause(ctx, faultGrace)
	undo()
	under.Wait()
}

func (e *episode) inject(ctx context.Context, f faults.Fault, seed uint64) {
	e.folder.event("begins: %s (seed %d)", f.Name, seed)
	n, err := f.Inject(ctx, e.world, plan.Source(seed))
	e.folder.event("over: %s (seed %d): %d times, error: %v", f.Name, seed, n, err)
	e.struck.Add(f.Name, n)
}

// injected returns how often each kind struck so far, and all together.
func (e *episode) injected() (times map[string]int, total int) {
	var names []string
	for _, f := range e.kinds() {
		names = append(names, f.Name)
	}
	times = e.struck.Did(names)
	for _, n := range times {
		total += n
	}
	return times, total
}

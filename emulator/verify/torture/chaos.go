package main

import (
	"context"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/emulator/verify/torture/faults"
	"github.com/fencepost/fencepost/emulator/verify/torture/plan"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
)

// chaos is the chaos run: it injects the scheduled faults and counts them.
type chaos struct {
	client.Counts // by kind of fault

	world  *faults.World
	kinds  []faults.Fault
	events []plan.Event[faults.Fault]
	kept   *folder
}

// faultGrace is how long after the last event a fault may still wait for a target.
const faultGrace = 3 * time.Second

// run injects each event at its time, while earlier ones may still last. It returns when all
// have been undone.
func (s *chaos) run(ctx context.Context) {
	lasting, undo := context.WithCancel(ctx)
	defer undo()
	began := time.Now()
	var under sync.WaitGroup
	for _, e := range s.events {
		retry.Pause(ctx, time.Until(began.Add(e.At)))
		if ctx.Err() != nil {
			break
		}
		under.Go(func() { s.inject(lasting, e) })
	}
	retry.Pause(ctx, faultGrace)
	undo()
	under.Wait()
}

func (s *chaos) inject(ctx context.Context, e plan.Event[faults.Fault]) {
	f := e.Kind
	s.kept.event("begins: %s (seed %d)", f.Name, e.Seed)
	n, err := f.Inject(ctx, s.world, plan.Source(e.Seed))
	s.kept.event("over: %s (seed %d): %d times, error: %v", f.Name, e.Seed, n, err)
	s.Add(f.Name, n)
}

// injected returns how often each kind struck so far.
func (s *chaos) injected() map[string]int {
	var names []string
	for _, f := range s.kinds {
		names = append(names, f.Name)
	}
	return s.Did(names)
}

func (s *chaos) total() (n int) {
	for _, times := range s.injected() {
		n += times
	}
	return n
}

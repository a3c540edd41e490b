package faults

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/emulator/processes"
	"github.com/fencepost/fencepost/emulator/torture/retry"
)

func processFaults() []Fault {
	return []Fault{
		{"SIGKILL", 3, signal(syscall.SIGKILL)},
		{"SIGTERM", 1, signal(syscall.SIGTERM)},
		{"SIGSTOP beyond the lease", 2, stop},
	}
}

// signal ends a process; the pool starts another.
func signal(s syscall.Signal) func(context.Context, *World, *rand.Rand) (int, error) {
	return func(_ context.Context, w *World, r *rand.Rand) (int, error) {
		p, err := pick(r, w.Stack.Processes())
		if err != nil {
			return 0, err
		}
		if err := p.Signal(s); err != nil {
			return 0, err
		}
		return 1, nil
	}
}

// stopDuration is how long a process is stopped: past the lease and the allowance.
func stopDuration(r *rand.Rand) time.Duration {
	return randomDuration(r, 2500*time.Millisecond, 5*time.Second)
}

// stop freezes a process; half the time the load balancer notices, and sends it
// nothing until it is back.
func stop(ctx context.Context, w *World, r *rand.Rand) (int, error) {
	p, err := pick(r, w.Stack.Processes())
	if err != nil {
		return 0, err
	}
	w.stopped.Store(p, true)
	defer w.stopped.Delete(p)
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return 0, err
	}
	if r.IntN(2) == 0 {
		defer w.removeFromURLMap(p)()
	}
	retry.Pause(ctx, stopDuration(r))
	return 1, p.Signal(syscall.SIGCONT)
}

// removeFromURLMap takes a process out of every service; the function returned puts it
// back, if it lives.
func (w *World) removeFromURLMap(p *processes.Process) (restoreToURLMap func()) {
	services := w.Stack.URLMap.Stats()
	for name := range services {
		w.Stack.URLMap.Remove(name, p.Addr())
	}
	return func() {
		for name := range services {
			if p.Err() != nil {
				w.Stack.URLMap.Remove(name, p.Addr())
				continue
			}
			_ = w.Stack.URLMap.Add(name, p.Addr()) // the name is a service's
		}
	}
}

// resumeProcesses wakes whatever is stopped; not, unless all is true, what a fault of its
// own has put to sleep.
func (w *World) resumeProcesses(all bool) {
	list := w.Stack.Processes()
	if w.Supervisor != nil {
		list = append(list, w.Stack.Core.Process())
	}
	for _, p := range list {
		if _, stopped := w.stopped.Load(p); all || !stopped {
			_ = p.Signal(syscall.SIGCONT) // one that has ended needs none
		}
	}
}

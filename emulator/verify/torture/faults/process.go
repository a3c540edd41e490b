package faults

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
)

// signal ends a process; the pool starts another.
func signal(s syscall.Signal) inject {
	return func(_ context.Context, w *World, r *rand.Rand) (int, error) {
		p, err := pick(r, w.Stack.Processes())
		if err != nil {
			return 0, err
		}
		return struckOnce(p.Signal(s))
	}
}

// stop stops a process. Half the time the load balancer notices, and routes nothing to it until
// it runs again.
func stop(ctx context.Context, w *World, r *rand.Rand) (int, error) {
	p, err := pick(r, w.Stack.Processes())
	if err != nil {
		return 0, err
	}
	if r.IntN(2) == 0 {
		defer w.removeFromURLMap(p)()
	}
	return w.suspend(ctx, r, p)
}

// suspend stops a process for a while.
func (w *World) suspend(ctx context.Context, r *rand.Rand, p *processes.Process) (int, error) {
	w.stopped.Store(p, true)
	defer w.stopped.Delete(p)
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return 0, err
	}
	retry.Pause(ctx, stopDuration(r))
	return 1, p.Signal(syscall.SIGCONT)
}

// stopDuration draws how long a process is stopped: longer than the lease and the allowance, and
// than the time limit of a call to the core.
func stopDuration(r *rand.Rand) time.Duration {
	return randomDuration(r, 2500*time.Millisecond, 5*time.Second)
}

// removeFromURLMap takes a process out of every service. The returned function puts a running
// process back.
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
			_ = w.Stack.URLMap.Add(name, p.Addr()) // the service exists
		}
	}
}

// resumeProcesses resumes stopped processes. Unless all is true it skips the ones that a fault
// has stopped and will resume.
func (w *World) resumeProcesses(all bool) {
	list := w.Stack.Processes()
	if w.Supervisor != nil {
		list = append(list, w.Stack.Core.Process())
	}
	for _, p := range list {
		if _, stopped := w.stopped.Load(p); all || !stopped {
			_ = p.Signal(syscall.SIGCONT) // an ended process needs none
		}
	}
}

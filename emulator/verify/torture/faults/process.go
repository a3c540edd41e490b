package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/crash"
)

// signal ends a process; the pool starts another.
func signal(s syscall.Signal) inject {
	return func(_ context.Context, w *World, r *rand.Rand) int {
		return struckOnce(pick(r, w.Stack.Processes()).Signal(s))
	}
}

// stop stops a process. Half the time the load balancer notices, and routes nothing to it until
// it runs again.
func stop(ctx context.Context, w *World, r *rand.Rand) int {
	p := pick(r, w.Stack.Processes())
	if r.IntN(2) == 0 {
		defer w.removeFromURLMap(p)()
	}
	return w.suspend(ctx, r, p)
}

func (w *World) suspend(ctx context.Context, r *rand.Rand, p *processes.Process) int {
	w.stopped.Store(p, true)
	defer w.stopped.Delete(p)
	steps.OK(p.Signal(syscall.SIGSTOP))
	retry.Pause(ctx, stopDuration(r))
	_ = p.Signal(syscall.SIGCONT) // a process that another fault has ended needs none
	return 1
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

// Crashes arms the crash points in turn.
type Crashes struct {
	client.Counts // hits by point

	folder string
	points []string

	mu    sync.Mutex
	order []string // of the points that are not armed
}

// reachedPoints returns the crash points that the load reaches. It leaves out the points of
// handlers, hooks and proposals. Points of transfers and events are in it only with such load.
func reachedPoints(transfers, events bool) []string {
	return slices.DeleteFunc(crash.All(), func(p string) bool {
		switch of, _, _ := strings.Cut(p, "."); of {
		case "transfer", "payout", "ubscore":
			return !transfers
		case "publish":
			return !events
		case "reserve", "mark", "proposal":
			return true
		}
		return strings.HasPrefix(p, "advance.handler_")
	})
}

func newCrashes(folder string, points []string, source *rand.Rand) *Crashes {
	c := &Crashes{folder: folder, points: points, order: slices.Clone(points)}
	source.Shuffle(len(c.order), func(i, j int) { c.order[i], c.order[j] = c.order[j], c.order[i] })
	return c
}

// Hits returns how often each point was hit.
func (c *Crashes) Hits() map[string]int { return c.Did(c.points) }

// arm arms the named point, or for "" the point whose turn it is.
func (c *Crashes) arm(named string, pass int, action string) (point string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.order, func(p string) bool { return named == "" || named == p })
	if i < 0 {
		return "", fmt.Errorf("every crash point is armed already, or %q is", named)
	}
	point = c.order[i]
	c.order = slices.Delete(c.order, i, i+1)
	if err = crash.Arm(c.folder, point, pass, action); err != nil {
		c.order = append(c.order, point) // the others have their turn first
	}
	return point, err
}

// await waits until the point was hit, and counts it. After the limit it disarms the point, whose turn is last then.
func (c *Crashes) await(ctx context.Context, point string, limit time.Duration) (times int) {
	hit := until(ctx, limit, func() bool { return crash.Hit(c.folder, point) })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.order = append(c.order, point)
	if !hit {
		c.remove(point)
		return 0
	}
	c.Count(point)
	return 1
}

func (c *Crashes) remove(point string) {
	files, _ := filepath.Glob(filepath.Join(c.folder, point+".*")) // the pattern is good
	for _, f := range files {
		_ = os.Remove(f) // a process that reaches the point removes the file too
	}
}

func (c *Crashes) disarm() {
	for _, p := range c.points {
		c.remove(p)
	}
}

// killAtPoint arms three to six points, each at one of its next passes. A rarely reached point
// stays armed until the faults end.
func killAtPoint(ctx context.Context, w *World, r *rand.Rand) int {
	return w.armAndAwait(ctx, r, 3+r.IntN(4), crash.Kill, time.Hour)
}

// stopAtPoint stops up to three processes at points, for longer than their lease. It disarms
// rarely reached points soon and arms others.
func stopAtPoint(ctx context.Context, w *World, r *rand.Rand) (times int) {
	w.stopping.Lock()
	defer w.stopping.Unlock()
	times = untilStruck(ctx, func() int { return w.armAndAwait(ctx, r, 3, crash.Stop, 3*time.Second) })
	if times > 0 {
		retry.Pause(ctx, stopDuration(r))
	}
	w.resumeProcesses(false)
	return times
}

// armAndAwait arms points at one of their next passes, and counts the ones hit in time.
func (w *World) armAndAwait(ctx context.Context, r *rand.Rand, points int, action string, limit time.Duration) (times int) {
	var waiting sync.WaitGroup
	var hits atomic.Int64
	var err error
	for range points {
		var point string
		if point, err = w.Crashes.arm("", 1+r.IntN(3), action); err != nil {
			break // the armed ones are enough
		}
		waiting.Go(func() { hits.Add(int64(w.Crashes.await(ctx, point, limit))) })
	}
	waiting.Wait()
	if times = int(hits.Load()); times == 0 {
		steps.OK(err)
	}
	return times
}

package faults

import (
	"context"
	"fmt"
	"maps"
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
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/crash"
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

// Crashes arms the crash points in turn.
type Crashes struct {
	folder string

	mu    sync.Mutex
	order []string
	armed map[string]bool
	hits  map[string]int
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
	c := &Crashes{folder: folder, order: points, armed: make(map[string]bool), hits: make(map[string]int)}
	for _, p := range points {
		c.hits[p] = 0
	}
	source.Shuffle(len(c.order), func(i, j int) { c.order[i], c.order[j] = c.order[j], c.order[i] })
	return c
}

// Hits returns how often each point was hit.
func (c *Crashes) Hits() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.hits)
}

// arm arms the named point, or for "" the point whose turn it is.
func (c *Crashes) arm(named string, pass int, action string) (point string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, p := range c.order {
		if c.armed[p] || named != "" && named != p {
			continue
		}
		c.order = append(append(c.order[:i:i], c.order[i+1:]...), p) // to the end of the queue
		if err := crash.Arm(c.folder, p, pass, action); err != nil {
			return "", err
		}
		c.armed[p] = true
		return p, nil
	}
	return "", fmt.Errorf("every crash point is armed already, or %q is", named)
}

// await waits until the point was hit, and counts it. After the limit it disarms the point.
func (c *Crashes) await(ctx context.Context, point string, limit time.Duration) (times int) {
	hit := until(ctx, limit, func() bool { return crash.Hit(c.folder, point) })
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.armed, point)
	if !hit {
		c.remove(point)
		return 0
	}
	c.hits[point]++
	return 1
}

func (c *Crashes) remove(point string) {
	files, _ := filepath.Glob(filepath.Join(c.folder, point+".*")) // the pattern is good
	for _, f := range files {
		_ = os.Remove(f) // a process that reaches the point removes the file too
	}
}

func (c *Crashes) disarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.order {
		c.remove(p)
	}
}

// killAtPoint arms three to six points, each at one of its next passes. A rarely reached point
// stays armed until the faults end.
func killAtPoint(ctx context.Context, w *World, r *rand.Rand) (times int, err error) {
	return w.armAndAwait(ctx, r, 3+r.IntN(4), crash.Kill, time.Hour)
}

// stopAtPoint stops up to three processes at points, for longer than their lease. It disarms
// rarely reached points soon and arms others.
func stopAtPoint(ctx context.Context, w *World, r *rand.Rand) (times int, err error) {
	w.stopping.Lock()
	defer w.stopping.Unlock()
	for deadline := time.Now().Add(targetTimeout); times == 0 && time.Now().Before(deadline) && ctx.Err() == nil; {
		if times, err = w.armAndAwait(ctx, r, 3, crash.Stop, 3*time.Second); err != nil {
			return 0, err
		}
	}
	if times > 0 {
		retry.Pause(ctx, stopDuration(r))
	}
	w.resumeProcesses(false)
	return times, nil
}

// armAndAwait arms points at one of their next passes, and counts the ones hit in time.
func (w *World) armAndAwait(ctx context.Context, r *rand.Rand, points int, action string, limit time.Duration) (times int, err error) {
	var waiting sync.WaitGroup
	var hits atomic.Int64
	for range points {
		var point string
		if point, err = w.Crashes.arm("", 1+r.IntN(3), action); err != nil {
			break // the armed ones are enough
		}
		waiting.Go(func() { hits.Add(int64(w.Crashes.await(ctx, point, limit))) })
	}
	waiting.Wait()
	if times = int(hits.Load()); times > 0 {
		err = nil
	}
	return times, err
}

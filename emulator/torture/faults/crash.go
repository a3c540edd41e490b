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
	"time"

	"github.com/fencepost/fencepost/emulator/torture/retry"
	"github.com/fencepost/fencepost/shared/crash"
)

func crashFaults() []Fault {
	return []Fault{
		{"SIGKILL at a crash point", 12, killAtPoint},
		{"SIGSTOP at a crash point", 5, stopAtPoint},
	}
}

// Crashes arms the crash points by turns.
type Crashes struct {
	folder string

	mu    sync.Mutex
	order []string
	armed map[string]bool
	hits  map[string]int
}

// reachedPoints are the points that the load passes: those of transactions made by a
// handler, which the function server has none of, are not among them, nor those of the
// hooks, which are off, and those of transfers and of events only where there are some.
func reachedPoints(transfers, events bool) []string {
	return slices.DeleteFunc(crash.All(), func(p string) bool {
		switch of, _, _ := strings.Cut(p, "."); of {
		case "transfer", "payout", "ubscore":
			return !transfers
		case "publish":
			return !events
		case "reserve", "mark":
			return true
		}
		return strings.HasPrefix(p, "advance.handler_")
	})
}

func newCrashes(folder string, points []string, source *rand.Rand) *Crashes {
	c := &Crashes{folder: folder, order: points, armed: make(map[string]bool), hits: make(map[string]int)}
	source.Shuffle(len(c.order), func(i, j int) { c.order[i], c.order[j] = c.order[j], c.order[i] })
	return c
}

// Hits says how often each point did what it was armed for; those that never
// did are 0.
func (c *Crashes) Hits() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	hits := make(map[string]int, len(c.order))
	for _, p := range c.order {
		hits[p] = c.hits[p]
	}
	return hits
}

// arm arms the point whose turn it is; or, unless it is "", the one that is named.
func (c *Crashes) arm(named string, pass int, action string) (point string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, p := range c.order {
		if c.armed[p] || named != "" && named != p {
			continue
		}
		c.order = append(append(c.order[:i:i], c.order[i+1:]...), p) // to the end of the line
		if err := crash.Arm(c.folder, p, pass, action); err != nil {
			return "", err
		}
		c.armed[p] = true
		return p, nil
	}
	return "", fmt.Errorf("every crash point is armed already, or %q is", named)
}

// await waits until the point has been hit, and counts it; what was not hit in
// time is disarmed.
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
		_ = os.Remove(f) // somebody passed the point and took it
	}
}

func (c *Crashes) disarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.order {
		c.remove(p)
	}
}

// killAtPoint arms three to six points, each at one of its next passes. A point that
// is rarely passed stays armed to the end of the faults.
func killAtPoint(ctx context.Context, w *World, r *rand.Rand) (times int, err error) {
	return w.armAndAwait(ctx, r, 3+r.IntN(4), crash.Kill, time.Hour)
}

// stopAtPoint freezes up to three processes at points, for longer than their
// lease. What is rarely passed is disarmed soon, and others are armed.
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

// armAndAwait arms points at one of their next passes and counts those that were
// hit in time.
func (w *World) armAndAwait(ctx context.Context, r *rand.Rand, points int, action string, limit time.Duration) (times int, err error) {
	var waiting sync.WaitGroup
	var mu sync.Mutex
	for range points {
		var point string
		if point, err = w.Crashes.arm("", 1+r.IntN(3), action); err != nil {
			break // those that are armed will do
		}
		waiting.Go(func() {
			n := w.Crashes.await(ctx, point, limit)
			mu.Lock()
			defer mu.Unlock()
			times += n
		})
	}
	waiting.Wait()
	if times > 0 {
		err = nil
	}
	return times, err
}

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/transfer"
)

// killCore kills the core's process, which the supervisor starts again. It can be down already.
func killCore(ctx context.Context, w *World, _ *rand.Rand) (int, error) {
	return try(ctx, func() error { return w.Stack.Core.Process().Signal(syscall.SIGKILL) })
}

func stopCore(ctx context.Context, w *World, r *rand.Rand) (int, error) {
	return w.suspend(ctx, r, w.Stack.Core.Process())
}

// tearLog kills the core between the write of a record and its fsync. It leaves a part of the
// record or nothing.
func tearLog(ctx context.Context, w *World, r *rand.Rand) (times int, err error) {
	w.tearing.Lock()
	defer w.tearing.Unlock()
	keep := r.Int64N(60)
	for deadline := time.Now().Add(targetTimeout); times == 0 && time.Now().Before(deadline) && ctx.Err() == nil; {
		torn := w.Supervisor.tearNext(keep)
		point, failed := w.Crashes.arm("ubscore.appended", 1, crash.Kill)
		if failed == nil {
			w.Crashes.await(ctx, point, targetTimeout)
		}
		select {
		case n := <-torn:
			times = int(min(n, 1))
		case <-time.After(targetTimeout):
			return 0, fmt.Errorf("the core did not end: %w", failed)
		case <-ctx.Done():
		}
	}
	return times, nil
}

// wire injects a fault into some calls to the core, of every operation or of one, and counts
// the calls hit.
func wire(kind ubsproxy.Kind) inject {
	ops := []transfer.Op{"", "", transfer.Withdraw, transfer.Deposit, transfer.Refund}
	return func(ctx context.Context, w *World, r *rand.Rand) (int, error) {
		p := w.Stack.Core.Proxy
		f := ubsproxy.Fault{Kind: kind, Op: ops[r.IntN(len(ops))], Times: 1 + r.IntN(8)}
		target := p.Struck(kind) + f.Times
		defer p.Arm(f)()
		return w.strikes.await(ctx, kind, target, func() int { return p.Struck(kind) }), nil
	}
}

// deliverLate holds calls until their callers have repeated them, and then delivers them, the
// last first.
func deliverLate(ctx context.Context, w *World, r *rand.Rand) (int, error) {
	p := w.Stack.Core.Proxy
	f := ubsproxy.Fault{Kind: ubsproxy.Late, Times: 1 + r.IntN(4)}
	target := p.Struck(f.Kind) + f.Times
	disarm := p.Arm(f)
	times := w.strikes.await(ctx, f.Kind, target, func() int { return p.Struck(f.Kind) })
	disarm()
	retry.Pause(ctx, randomDuration(r, time.Second, 8*time.Second))
	p.Deliver(context.WithoutCancel(ctx), 0)
	return times, nil
}

// callAgain repeats recorded calls of any age, as a network with delayed copies does. It waits
// for a core that is down.
func callAgain(ctx context.Context, w *World, r *rand.Rand) (times int, err error) {
	core := w.Stack.Core
	until(ctx, targetTimeout, func() bool { return len(core.Proxy.Calls(nil)) > 0 })
	calls := core.Proxy.Calls(nil)
	again := 5 + r.IntN(20)
	until(ctx, targetTimeout, func() bool {
		c, failed := pick(r, calls)
		if failed != nil {
			err = failed
			return true
		}
		once, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if _, _, err = core.Proxy.Replay(once, c, core.Secret); err == nil {
			times++
		}
		return times == again
	})
	if times > 0 {
		err = nil
	}
	return times, err
}

// withStatus gives some users' accounts the status, and later makes them ACTIVE again: these users
// cannot move money for a while, with transfers in progress. The deployment itself has no fault then.
func withStatus(status string) inject {
	return func(ctx context.Context, w *World, r *rand.Rand) (times int, err error) {
		side := []transfer.AccountType{transfer.Funding, transfer.Spot}[r.IntN(2)]
		asset := []transfer.Asset{stack.USDT, stack.BTC, stack.JPY, stack.ETH}[r.IntN(4)]
		for userID := range int64(w.Users - 1) { // the last has none in Funding
			if r.IntN(2) == 0 {
				continue
			}
			if err = w.setStatus(ctx, side, userID+1, asset.ID, status); err == nil {
				times++
				defer func() { _ = w.setStatus(context.WithoutCancel(ctx), side, userID+1, asset.ID, "ACTIVE") }()
			}
		}
		retry.Pause(ctx, randomDuration(r, time.Second, 5*time.Second))
		if times > 0 {
			err = nil
		}
		return times, err
	}
}

// setStatus tries until the ledger answers: it can be down.
func (w *World) setStatus(ctx context.Context, side transfer.AccountType, userID int64, assetID int32, status string) error {
	_, err := try(ctx, func() error {
		once, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		return w.Stack.SetStatus(once, side, userID, assetID, status)
	})
	return err
}

// Supervisor restarts the trading core whenever its process has ended.
type Supervisor struct {
	core *stack.Core

	mu      sync.Mutex
	tearing chan int64 // receives the length of the next torn end; nil: no tear requested
	keep    int64      // of the bytes not covered by an fsync
	starts  int
	failed  error
}

// Restarts returns how often it has restarted the core.
func (k *Supervisor) Restarts() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.starts
}

// Failed returns why the last restart failed after all its tries, or nil.
func (k *Supervisor) Failed() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failed
}

// Run keeps the core running until ctx ends.
func (k *Supervisor) Run(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil && k.Failed() == nil {
		select {
		case <-k.core.Process().Done():
		case <-ctx.Done():
			return
		}
		retry.Pause(ctx, randomDuration(r, 100*time.Millisecond, 1500*time.Millisecond)) // a real supervisor needs time to notice
		k.Revive(context.WithoutCancel(ctx))
	}
}

// maxStarts is how often a start is tried: one can time out on a busy machine.
const maxStarts = 3

// Revive starts a core that has ended. It first tears the end of the log if a fault asked for
// it.
func (k *Supervisor) Revive(ctx context.Context) {
	err := k.revive(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.failed = err
		return
	}
	k.starts++
}

func (k *Supervisor) revive(ctx context.Context) error {
	if err := k.core.Kill(); err != nil { // so that the proxy knows
		return err
	}
	if err := k.tear(); err != nil {
		return fmt.Errorf("tear the log: %w", err)
	}
	const within = 30 * time.Second
	for tries := 1; ; tries++ {
		once, cancel := context.WithTimeout(ctx, within)
		err := k.core.Start(once)
		cancel()
		if err == nil || tries == maxStarts {
			return err
		}
	}
}

// tearNext tears the log after the next end of the core, and leaves keep of the bytes without
// an fsync. The channel receives the number of bytes torn, and is closed.
func (k *Supervisor) tearNext(keep int64) <-chan int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tearing, k.keep = make(chan int64, 1), keep
	return k.tearing
}

// tear cuts only bytes that were never answered: the core answers after the fsync, and the mark
// beside the log has the durable length.
func (k *Supervisor) tear() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.tearing == nil {
		return nil
	}
	undurable, err := k.core.Tear(k.keep)
	k.tearing <- max(undurable-k.keep, 0)
	close(k.tearing)
	k.tearing = nil
	return err
}

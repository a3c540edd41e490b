package faults

import (
	"context"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/transfer"
)

// killCore kills the core's process, which the supervisor starts again. It can be down already.
func killCore(ctx context.Context, w *World, _ *rand.Rand) int {
	return struckOnce(try(ctx, func() error { return w.Stack.Core.Process().Signal(syscall.SIGKILL) }))
}

func stopCore(ctx context.Context, w *World, r *rand.Rand) int {
	return w.suspend(ctx, r, w.Stack.Core.Process())
}

// tearLog kills the core between the write of a record and its fsync. It leaves a part of the
// record or nothing.
func tearLog(ctx context.Context, w *World, r *rand.Rand) int {
	keep := r.Int64N(60)
	return untilStruck(ctx, func() int { return w.tearOnce(ctx, keep) })
}

// tearOnce cuts only bytes that were never answered: the core answers after the fsync, and the mark
// beside the log has the durable length. The supervisor does not start the core meanwhile.
func (w *World) tearOnce(ctx context.Context, keep int64) (times int) {
	w.Supervisor.starting.Lock()
	defer w.Supervisor.starting.Unlock()
	point, err := w.Crashes.arm("ubscore.appended", 1, crash.Kill)
	ended := until(ctx, targetTimeout, func() bool { return w.Stack.Core.Process().Err() != nil }) // by this fault or by another one
	if err == nil {
		w.Crashes.await(ctx, point, 0)
	}
	switch {
	case !ended && ctx.Err() != nil: // the run ends
		return 0
	case !ended:
		steps.Stopf("the core did not end: %v", err)
	}
	undurable := steps.Value(w.Stack.Core.Tear(keep))
	return int(min(max(undurable-keep, 0), 1))
}

// wire injects a fault into some calls to the core, of every operation or of one, and counts
// the calls hit.
func wire(kind ubsproxy.Kind) inject {
	ops := []transfer.Op{"", "", transfer.Withdraw, transfer.Deposit, transfer.Refund}
	return func(ctx context.Context, w *World, r *rand.Rand) int {
		return w.strikeCalls(ctx, ubsproxy.Fault{Kind: kind, Op: ops[r.IntN(len(ops))], Times: 1 + r.IntN(8)})
	}
}

func (w *World) strikeCalls(ctx context.Context, f ubsproxy.Fault) (times int) {
	p := w.Stack.Core.Proxy
	target := p.Struck(f.Kind) + f.Times
	defer p.Arm(f)()
	return w.strikes.await(ctx, f.Kind, target, func() int { return p.Struck(f.Kind) })
}

// deliverLate holds calls until their callers have repeated them, and then delivers them, the
// last first.
func deliverLate(ctx context.Context, w *World, r *rand.Rand) int {
	times := w.strikeCalls(ctx, ubsproxy.Fault{Kind: ubsproxy.Late, Times: 1 + r.IntN(4)})
	retry.Pause(ctx, randomDuration(r, time.Second, 8*time.Second))
	w.Stack.Core.Proxy.Deliver(context.WithoutCancel(ctx), 0)
	return times
}

// callAgain repeats recorded calls of any age, as a network with delayed copies does. It waits
// for a core that is down.
func callAgain(ctx context.Context, w *World, r *rand.Rand) (times int) {
	core := w.Stack.Core
	until(ctx, targetTimeout, func() bool { return len(core.Proxy.Calls(nil)) > 0 })
	calls := core.Proxy.Calls(nil)
	again := 5 + r.IntN(20)
	var err error
	until(ctx, targetTimeout, func() bool {
		once, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if _, _, err = core.Proxy.Replay(once, pick(r, calls), core.Secret); err == nil {
			times++
		}
		return times == again
	})
	if times == 0 {
		steps.OK(err)
	}
	return times
}

// withStatus gives some users' accounts the status, and later makes them ACTIVE again: these users
// cannot move money for a while, with transfers in progress. The deployment itself has no fault then.
func withStatus(status string) inject {
	return func(ctx context.Context, w *World, r *rand.Rand) (times int) {
		var err error
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
		if times == 0 {
			steps.OK(err)
		}
		return times
	}
}

// setStatus tries until the ledger answers: it can be down.
func (w *World) setStatus(ctx context.Context, side transfer.AccountType, userID int64, assetID int32, status string) error {
	return try(ctx, func() error {
		once, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		return w.Stack.SetStatus(once, side, userID, assetID, status)
	})
}

// Supervisor restarts the trading core whenever its process has ended.
type Supervisor struct {
	core *stack.Core

	starting sync.Mutex // held while the core starts, or must not
	starts   int
	failed   error
}

// Restarts returns how often it has restarted the core, and why the last restart failed after all its tries, or nil.
func (k *Supervisor) Restarts() (times int, failed error) {
	k.starting.Lock()
	defer k.starting.Unlock()
	return k.starts, k.failed
}

// Run keeps the core running until ctx ends.
func (k *Supervisor) Run(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		select {
		case <-k.core.Process().Done():
		case <-ctx.Done():
			return
		}
		retry.Pause(ctx, randomDuration(r, 100*time.Millisecond, 1500*time.Millisecond)) // a real supervisor needs time to notice
		if k.Revive(context.WithoutCancel(ctx)) != nil {
			return
		}
	}
}

// Revive starts a core that has ended.
func (k *Supervisor) Revive(ctx context.Context) error {
	k.starting.Lock()
	defer k.starting.Unlock()
	err := k.core.Kill() // so that the proxy knows
	if err == nil {
		for range 3 { // a start can time out on a busy machine
			once, cancel := context.WithTimeout(ctx, 30*time.Second)
			err = k.core.Start(once)
			if cancel(); err == nil {
				break
			}
		}
	}
	if k.failed = err; err == nil {
		k.starts++
	}
	return err
}

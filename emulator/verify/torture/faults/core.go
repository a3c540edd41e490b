package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/transfer"
)

// coreFaults end or stop the trading core's process. The supervisor starts it again.
func coreFaults() []Fault {
	return []Fault{
		{"trading core: SIGKILL", 2, killCore},
		{"trading core: SIGSTOP beyond the deadline", 1, stopCore},
		{"trading core: end of its log torn", 2, tearLog},
	}
}

func killCore(ctx context.Context, w *World, _ *rand.Rand) (times int, err error) {
	until(ctx, targetTimeout, func() bool { // it can be down already
		err = w.Stack.Core.Process().Signal(syscall.SIGKILL)
		return err == nil
	})
	if err == nil {
		times = 1
	}
	return times, err
}

// stopCore stops the core for longer than the time limit of a call to it.
func stopCore(ctx context.Context, w *World, r *rand.Rand) (int, error) {
	p := w.Stack.Core.Process()
	w.stopped.Store(p, true)
	defer w.stopped.Delete(p)
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return 0, err
	}
	retry.Pause(ctx, stopDuration(r))
	return 1, p.Signal(syscall.SIGCONT)
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

// wireFaults disturb the connection from the functions to the core.
func wireFaults() []Fault {
	return []Fault{
		{"call to the core: refused", 1, wire(ubsproxy.Refuse)},
		{"call to the core: hangs", 1, wire(ubsproxy.Hang)},
		{"call to the core: answered 503", 1, wire(ubsproxy.Unavailable)},
		{"call to the core: answer lost", 2, wire(ubsproxy.LoseAnswer)},
		{"call to the core: answer cut in the middle", 2, wire(ubsproxy.CutAnswer)},
		{"call to the core: answered after the deadline", 2, wire(ubsproxy.HoldAnswer)},
		{"call to the core: made three times at once", 2, wire(ubsproxy.Duplicate)},
		{"call to the core: delivered late", 2, deliverLate},
		{"call to the core: made again, much later", 2, callAgain},
	}
}

// wire injects a fault into some calls to the core, of every operation or of one, and counts
// the calls hit.
func wire(kind ubsproxy.Kind) inject {
	ops := []transfer.Op{"", "", transfer.Withdraw, transfer.Deposit, transfer.Refund}
	return func(ctx context.Context, w *World, r *rand.Rand) (int, error) {
		p := w.Stack.Core.Proxy
		f, before := ubsproxy.Fault{Kind: kind, Op: ops[r.IntN(len(ops))], Times: 1 + r.IntN(8)}, p.Struck(kind)
		disarm := p.Arm(f)
		defer disarm()
		until(ctx, targetTimeout, func() bool { return p.Struck(kind) >= before+f.Times })
		return w.wires.claim(kind, p.Struck(kind)), nil
	}
}

// deliverLate holds calls until their callers have repeated them, and then delivers them, the
// last first.
func deliverLate(ctx context.Context, w *World, r *rand.Rand) (int, error) {
	p := w.Stack.Core.Proxy
	f, before := ubsproxy.Fault{Kind: ubsproxy.Late, Times: 1 + r.IntN(4)}, p.Struck(ubsproxy.Late)
	disarm := p.Arm(f)
	until(ctx, targetTimeout, func() bool { return p.Struck(ubsproxy.Late) >= before+f.Times })
	disarm()
	retry.Pause(ctx, randomDuration(r, time.Second, 8*time.Second))
	p.Deliver(context.WithoutCancel(ctx), 0)
	return w.wires.claim(ubsproxy.Late, p.Struck(ubsproxy.Late)), nil
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

package faults

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fencepost/fencepost/emulator/proxy/pgproxy"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
)

func restart(immediate bool) inject {
	return func(ctx context.Context, w *World, _ *rand.Rand) int {
		w.restarting.Lock()
		defer w.restarting.Unlock()
		ctx = context.WithoutCancel(ctx) // an interrupted restart would end the cluster
		return struckOnce(w.Cluster.Restart(ctx, immediate))
	}
}

// statements are parts of the statements that matter most.
var statements = []string{
	"insert into managed_tx", "insert into submitter_lease", "fencepost.held", "with want as", "set owner_node = ''",
}

// transferStatements are the ones beside them when money is moved.
var transferStatements = []string{"insert into transfers_tb", "case when late", "as m (req_id", "funding_apply", "transfer_resolution"}

// cut breaks one to three transactions around their commit: of one statement, or of any.
func cut(kind pgproxy.Kind) inject {
	return func(ctx context.Context, w *World, r *rand.Rand) int {
		f := pgproxy.Fault{Kind: kind, Times: 1 + r.IntN(3), For: randomDuration(r, time.Second, 4*time.Second)}
		statements := statements
		if w.Users > 0 {
			statements = slices.Concat(statements, transferStatements)
		}
		if n := r.IntN(len(statements) + 1); n < len(statements) {
			f.Match = pgproxy.Containing(statements[n])
		}
		hits := func() int { return w.Stack.Proxy.Counts().Hits[kind] }
		target := hits() + f.Times
		w.Stack.Proxy.Arm(f)
		return w.strikes.await(ctx, kind, target, hits)
	}
}

func cutAll(ctx context.Context, w *World, _ *rand.Rand) int {
	return untilStruck(ctx, func() int { return min(w.Stack.Proxy.CutAll(), 1) })
}

// refuseNewConnections refuses new connections and cuts the present ones.
func refuseNewConnections(w *World, _ *rand.Rand) (end func()) {
	w.Stack.Proxy.Refuse(true)
	w.Stack.Proxy.CutAll()
	return func() { w.Stack.Proxy.Refuse(false) }
}

// moveClock moves the clock by one to ten seconds, which is longer than a lease, and resets it
// after a while. The reset is a move in the other direction. The cluster was started with a movable
// clock.
func moveClock(sign time.Duration) inject {
	return func(ctx context.Context, w *World, r *rand.Rand) int {
		w.clock.Lock()
		defer w.clock.Unlock()
		steps.OK(w.setClock(sign * randomDuration(r, time.Second, 10*time.Second)))
		retry.Pause(ctx, randomDuration(r, 2*time.Second, 8*time.Second))
		return struckOnce(w.setClock(0))
	}
}

// setClock moves no clock during a restart. pg_ctl takes a server for its own only if it started later than pg_ctl itself.
// If the clock went back between the two, pg_ctl would wait for a minute in vain.
func (w *World) setClock(offset time.Duration) error {
	w.restarting.RLock()
	defer w.restarting.RUnlock()
	return w.Cluster.SetClock(offset)
}

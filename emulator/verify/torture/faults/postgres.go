package faults

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fencepost/fencepost/emulator/proxy/pgproxy"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
)

func postgresFaults() []Fault {
	return []Fault{
		{"Postgres restarted", 1, restart(false)},
		{"Postgres restarted as after a crash", 1, restart(true)},
		{"connection cut before COMMIT", 2, cut(pgproxy.CutBeforeCommit)},
		{"connection cut after COMMIT", 2, cut(pgproxy.CutAfterCommit)},
		{"connection cut in mid reply", 2, cut(pgproxy.CutMidReply)},
		{"connection frozen at COMMIT", 2, cut(pgproxy.Freeze)},
		{"every connection cut", 1, cutAll},
		{"connections refused", 1, refuseNewConnections},
	}
}

func restart(immediate bool) inject {
	return func(ctx context.Context, w *World, _ *rand.Rand) (int, error) {
		w.restarting.Lock()
		defer w.restarting.Unlock()
		ctx = context.WithoutCancel(ctx) // an interrupted restart would end the cluster
		if err := w.Cluster.Restart(ctx, immediate); err != nil {
			return 0, err
		}
		return 1, nil
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
	return func(ctx context.Context, w *World, r *rand.Rand) (int, error) {
		f := pgproxy.Fault{Kind: kind, Times: 1 + r.IntN(3), For: randomDuration(r, time.Second, 4*time.Second)}
		statements := statements
		if w.Users > 0 {
			statements = slices.Concat(statements, transferStatements)
		}
		if n := r.IntN(len(statements) + 1); n < len(statements) {
			f.Match = pgproxy.Containing(statements[n])
		}
		before := w.hits(kind)
		w.Stack.Proxy.Arm(f)
		until(ctx, targetTimeout, func() bool { return w.hits(kind) >= before+f.Times })
		return w.cuts.claim(kind, w.hits(kind)), nil
	}
}

func (w *World) hits(kind pgproxy.Kind) int { return w.Stack.Proxy.Counts().Hits[kind] }

func cutAll(ctx context.Context, w *World, _ *rand.Rand) (times int, err error) {
	until(ctx, targetTimeout, func() bool {
		times = min(w.Stack.Proxy.CutAll(), 1)
		return times > 0
	})
	return times, nil
}

// refuseNewConnections refuses new connections and cuts the present ones.
func refuseNewConnections(ctx context.Context, w *World, r *rand.Rand) (int, error) {
	w.Stack.Proxy.Refuse(true)
	defer w.Stack.Proxy.Refuse(false)
	w.Stack.Proxy.CutAll()
	retry.Pause(ctx, randomDuration(r, 500*time.Millisecond, 3*time.Second))
	return 1, nil
}

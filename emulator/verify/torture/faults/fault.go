// Package faults injects faults into a running deployment: into its processes, database, task
// queues, nodes and keys, and into the trading core and the connection to it. Each fault undoes
// itself. The deployment must recover from its effects.
package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/cloudtasks"
	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/emulator/proxy/pgproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/torture/plan"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
)

// Fault is one kind of fault.
type Fault struct {
	Name   string
	Weight int // frequency relative to the others; 0 counts as 1

	Inject inject
}

// inject injects a fault and undoes it before it returns, at once when ctx ends. It returns how
// often it struck; the error is the reason if it did not.
type inject = func(ctx context.Context, w *World, r *rand.Rand) (times int, err error)

// All returns every fault. Faults of transfers, and of the database's clock, are in it only
// where the deployment has them.
func All(transfers, movableClock bool) []Fault {
	all := slices.Concat(processFaults(), crashFaults(), postgresFaults(), taskFaults(), sweepFaults(), chainFaults(), nodeFaults(), keyFaults())
	if movableClock {
		all = append(all, clockFaults()...)
	}
	if transfers {
		all = slices.Concat(all, coreFaults(), wireFaults(), accountFaults())
	}
	return all
}

// Kinds returns the faults as kinds of a schedule.
func Kinds(all []Fault) []plan.Kind {
	kinds := make([]plan.Kind, len(all))
	for i, f := range all {
		kinds[i] = plan.Kind{Name: f.Name, Weight: f.Weight}
	}
	return kinds
}

// Options describe the deployment that faults are injected into.
type Options struct {
	Stack         *stack.Stack // with its proxies to Postgres and to each node
	Cluster       *pgcluster.Cluster
	Points        string             // the folder of armed crash points
	Keys          []devchain.Account // also known to a foreign signer
	MaxReorgDepth uint64             // maximum of blocks that a reorg replaces
	Users         int                // with ids from 1 on; 0: no transfers
	Events        bool               // events are published
	Source        *rand.Rand
}

// World is the deployment as the faults see it, with their shared state.
type World struct {
	Options
	Crashes    *Crashes
	Foreign    *Foreign
	Sweeper    *Sweeper
	Supervisor *Supervisor // of the trading core; nil: there is none

	mining     *activeFaults[bool] // true: stopped
	restarting sync.Mutex
	stopping   sync.Mutex // one process at a crash point at a time
	tearing    sync.Mutex
	clock      sync.Mutex // one move of the database's clock at a time
	stopped    sync.Map   // processes that a fault has stopped and will resume
	tasks      *activeFaults[cloudtasks.Faults]
	nodes      []*activeFaults[rpcproxy.Faults]
	cuts       strikeCounter[pgproxy.Kind]
	wires      strikeCounter[ubsproxy.Kind]
	strikes    strikeCounter[string]
}

// NewWorld returns the deployment before the first fault.
func NewWorld(o Options) *World {
	w := &World{
		Options: o,
		Crashes: newCrashes(o.Points, reachedPoints(o.Users > 0, o.Events), o.Source),
		Foreign: newForeign(),
		Sweeper: &Sweeper{run: o.Stack.RunSweep},
		tasks:   newActiveFaults(o.Stack.Tasks.SetFaults),
	}
	w.mining = newActiveFaults(func(stopped bool) {
		if stopped {
			o.Stack.Chain.StopMining()
		} else {
			o.Stack.Chain.StartMining()
		}
	})
	for _, n := range o.Stack.Nodes {
		w.nodes = append(w.nodes, newActiveFaults(n.SetFaults))
	}
	if o.Users > 0 {
		w.Supervisor = &Supervisor{core: o.Stack.Core}
	}
	return w
}

// Disarm ends every fault that is still armed. It is called after all have returned.
func (w *World) Disarm() {
	w.Crashes.disarm()
	w.resumeProcesses(true)
	w.Stack.Proxy.Disarm()
	w.Stack.Proxy.Thaw()
	w.Stack.Proxy.Refuse(false)
	if w.Supervisor != nil {
		w.Stack.Core.Proxy.Deliver(context.Background(), 0)
	}
}

// targetTimeout is how long a fault waits for something to strike.
const targetTimeout = 20 * time.Second

// until polls the condition. It returns false if ctx or the limit ended first.
func until(ctx context.Context, limit time.Duration, met func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return retry.Await(ctx, 50*time.Millisecond, met)
}

// randomDuration draws a duration between the two, inclusive.
func randomDuration(r *rand.Rand, shortest, limit time.Duration) time.Duration {
	return shortest + time.Duration(r.Int64N(int64(limit-shortest)+1))
}

func pick[T any](r *rand.Rand, list []T) (one T, err error) {
	if len(list) == 0 {
		return one, errors.New("nothing to choose from")
	}
	return list[r.IntN(len(list))], nil
}

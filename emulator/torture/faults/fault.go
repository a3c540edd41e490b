// Package faults does harm to a running house: to its processes, its database,
// its task queues, its node and its keys, to the trading core beside it and to the way
// there. Each fault undoes itself; what it left behind is the house's to mend.
package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/cloudtasks"
	"github.com/fencepost/fencepost/emulator/pgproxy"
	"github.com/fencepost/fencepost/emulator/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/torture/plan"
	"github.com/fencepost/fencepost/emulator/torture/retry"
	"github.com/fencepost/fencepost/emulator/ubsproxy"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/nonce"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
)

// Fault is one kind of harm.
type Fault struct {
	Name   string
	Weight int // how often it is drawn against the others; 0: 1

	// Inject does the harm and undoes it before it returns, at once when ctx
	// ends. It says how often it struck; the error says why it could not.
	Inject func(ctx context.Context, w *World, r *rand.Rand) (times int, err error)
}

// All lists every fault; those of transfers only where there are some, those of the
// database's clock only where it can be moved.
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

// Kinds are the faults as a schedule draws them.
func Kinds(all []Fault) []plan.Kind {
	kinds := make([]plan.Kind, len(all))
	for i, f := range all {
		kinds[i] = plan.Kind{Name: f.Name, Weight: f.Weight}
	}
	return kinds
}

// Options say what a world is made of.
type Options struct {
	Stack         *stack.Stack // with its proxies to Postgres and to each node
	Cluster       *pgcluster.Cluster
	Points        string             // the folder of armed crash points
	Keys          []devchain.Account // whose keys somebody else has too
	MaxReorgDepth uint64             // how many blocks a reorg replaces at most
	Users         int                // who move money, from 1 on; 0: nobody
	Events        bool               // somebody is told of events
	Source        *rand.Rand
}

// World is the house, as faults see it.
type World struct {
	Options
	Crashes    *Crashes
	Foreign    *Foreign
	Sweeper    *Sweeper
	Supervisor *Supervisor // of the trading core; nil: there is none

	mining     sharedHold
	restarting sync.Mutex
	stopping   sync.Mutex // of a process at a crash point: one at a time
	tearing    sync.Mutex
	clock      sync.Mutex // the database's: one move at a time
	stopped    sync.Map   // of processes that a fault has stopped and will wake
	tasks      *activeFaults[cloudtasks.Faults]
	nodes      []*activeFaults[rpcproxy.Faults]
	cuts       strikeCounter[pgproxy.Kind]
	wires      strikeCounter[ubsproxy.Kind]
	strikes    strikeCounter[string]
}

// NewWorld is the house before the first fault.
func NewWorld(o Options) *World {
	w := &World{
		Options: o,
		Crashes: newCrashes(o.Points, reachedPoints(o.Users > 0, o.Events), o.Source),
		Foreign: newForeign(),
		Sweeper: &Sweeper{run: o.Stack.RunSweep},
		mining:  sharedHold{first: o.Stack.Chain.StopMining, last: o.Stack.Chain.StartMining},
		tasks:   newActiveFaults(o.Stack.Tasks.SetFaults),
	}
	for _, n := range o.Stack.Nodes {
		w.nodes = append(w.nodes, newActiveFaults(n.SetFaults))
	}
	if o.Users > 0 {
		w.Supervisor = &Supervisor{core: o.Stack.Core}
	}
	return w
}

// Accounts are the submitters whose keys somebody else has too.
func (w *World) Accounts() []nonce.Submitter {
	names := make([]nonce.Submitter, len(w.Keys))
	for i, k := range w.Keys {
		names[i] = nonce.NewSubmitter(w.Stack.Chain.ChainID(), k.Address)
	}
	return names
}

// Disarm ends what faults may have left armed. It is called once they have all
// returned.
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

// targetTimeout is how long a fault that waits for its prey lasts at most.
const targetTimeout = 20 * time.Second

// until polls the condition; it is false if ctx or the time ended first.
func until(ctx context.Context, limit time.Duration, met func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !met() {
		retry.Pause(ctx, 50*time.Millisecond)
		if ctx.Err() != nil {
			return met()
		}
	}
	return true
}

// randomDuration draws a duration.
func randomDuration(r *rand.Rand, shortest, limit time.Duration) time.Duration {
	return shortest + time.Duration(r.Int64N(int64(limit-shortest)+1))
}

// pick draws one of the list.
func pick[T any](r *rand.Rand, list []T) (one T, err error) {
	if len(list) == 0 {
		return one, errors.New("nothing to choose from")
	}
	return list[r.IntN(len(list))], nil
}

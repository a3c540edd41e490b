// Package faults injects faults into a running deployment: into its processes, database, task
// queues, nodes and keys, and into the trading core and the connection to it. Each fault undoes
// itself. The deployment must recover from its effects.
package faults

import (
	"context"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/cloudtasks"
	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/emulator/proxy/pgproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Fault is one kind of fault.
type Fault struct {
	Name   string
	Weight int // frequency relative to the others; 0 counts as 1

	inject inject
}

// inject injects a fault and undoes it before it returns, at once when ctx ends. It returns how
// often it struck. It is [steps]: an error ends it.
type inject = func(ctx context.Context, w *World, r *rand.Rand) (times int)

// Inject injects the fault and undoes it before it returns, at once when ctx ends. It returns how
// often it struck; the error is the reason if it did not.
func (f Fault) Inject(ctx context.Context, w *World, r *rand.Rand) (times int, err error) {
	defer steps.Return(&err)
	return f.inject(ctx, w, r), nil
}

// All returns every fault. Faults of transfers, and of the database's clock, are in it only
// where the deployment has them.
func All(transfers, movableClock bool) []Fault {
	all := []Fault{
		{"SIGKILL", 3, signal(syscall.SIGKILL)},
		{"SIGTERM", 1, signal(syscall.SIGTERM)},
		{"SIGSTOP beyond the lease", 2, stop},
		{"SIGKILL at a crash point", 12, killAtPoint},
		{"SIGSTOP at a crash point", 5, stopAtPoint},

		{"Postgres restarted", 1, restart(false)},
		{"Postgres restarted as after a crash", 1, restart(true)},
		{"connection cut before COMMIT", 2, cut(pgproxy.CutBeforeCommit)},
		{"connection cut after COMMIT", 2, cut(pgproxy.CutAfterCommit)},
		{"connection cut in mid reply", 2, cut(pgproxy.CutMidReply)},
		{"connection frozen at COMMIT", 2, cut(pgproxy.Freeze)},
		{"every connection cut", 1, cutAll},
		{"connections refused", 1, lasting(500*time.Millisecond, 3*time.Second, refuseNewConnections)},

		{"tasks delivered up to 5 times at once", 2, tasks(func(f *cloudtasks.Faults, r *rand.Rand) { f.Copies = 2 + r.IntN(4) })},
		{"tasks delayed and reordered", 2, tasks(func(f *cloudtasks.Faults, r *rand.Rand) {
			f.Delay = randomDuration(r, 500*time.Millisecond, 4*time.Second)
		})},
		{"tasks lost", 2, tasks(func(f *cloudtasks.Faults, r *rand.Rand) { f.Drop = above(0.2, r) })},
		{"answers to tasks not heard", 1, tasks(func(f *cloudtasks.Faults, r *rand.Rand) { f.DropAck = above(0.2, r) })},
		{"answers of Cloud Tasks lost", 1, tasks(func(f *cloudtasks.Faults, r *rand.Rand) { f.DropResponse = above(0.2, r) })},
		{"Cloud Tasks unavailable", 1, tasks(func(f *cloudtasks.Faults, _ *rand.Rand) { f.Unavailable = true })},
		{"queues emptied", 1, emptyQueues},
		{"two sweeps at once", 1, sweepTwice},
		{"no sweep for a while", 1, lasting(5*time.Second, 15*time.Second, pauseSweeper)},

		{"reorg, transactions return", 2, reorg(returnToPool)},
		{"reorg, transactions in other blocks", 2, reorg(moveToOtherBlocks)},
		{"reorg, transactions vanish", 2, reorg(vanish)},
		{"mempool lost", 2, dropPool},
		{"mining stopped", 2, lasting(2*time.Second, 8*time.Second, func(w *World, _ *rand.Rand) func() { return w.stopMining() })},

		{"answer dropped after a send", 2, node(rpcproxy.DropSendAnswer, func(f *rpcproxy.Faults, r *rand.Rand) { f.DropSendAnswer = above(0.3, r) })},
		{"answers of the node dropped", 1, node(rpcproxy.Drop, func(f *rpcproxy.Faults, r *rand.Rand) { f.Drop = above(0.3, r) })},
		{"node hangs", 1, node(rpcproxy.Hang, func(f *rpcproxy.Faults, r *rand.Rand) { f.Hang = above(0.3, r) })},
		{"node answers 503", 1, node(rpcproxy.Unavailable, func(f *rpcproxy.Faults, r *rand.Rand) { f.Unavailable = above(0.3, r) })},
		{"node lags behind", 2, node(rpcproxy.Lag, func(f *rpcproxy.Faults, r *rand.Rand) { f.LagShare, f.Lag = above(0.3, r), 1+r.Uint64N(12) })},
		{"node's index not ready", 1, node(rpcproxy.NotIndexed, func(f *rpcproxy.Faults, r *rand.Rand) { f.NotIndexed = above(0.3, r) })},
		{"sends lost by the node", 2, node(rpcproxy.LoseSend, func(f *rpcproxy.Faults, r *rand.Rand) { f.LoseSend = above(0.3, r) })},
		{"receipts forgotten by the node", 2, node(rpcproxy.ForgetReceipt, func(f *rpcproxy.Faults, r *rand.Rand) { f.ForgetReceipt = above(0.3, r) })},

		{"foreign use of the key, nothing in flight", 1, useKey(false)},
		{"foreign use of the key, nonce in flight", 1, useKey(true)},
	}
	if movableClock {
		all = append(all, []Fault{
			{"the database's clock is put forward", 1, moveClock(1)},
			{"the database's clock is set back", 1, moveClock(-1)},
		}...)
	}
	if transfers {
		all = append(all, []Fault{
			{"trading core: SIGKILL", 2, killCore},
			{"trading core: SIGSTOP beyond the deadline", 1, stopCore},
			{"trading core: end of its log torn", 2, tearLog},

			{"call to the core: refused", 1, wire(ubsproxy.Refuse)},
			{"call to the core: hangs", 1, wire(ubsproxy.Hang)},
			{"call to the core: answered 503", 1, wire(ubsproxy.Unavailable)},
			{"call to the core: answer lost", 2, wire(ubsproxy.LoseAnswer)},
			{"call to the core: answer cut in the middle", 2, wire(ubsproxy.CutAnswer)},
			{"call to the core: answered after the deadline", 2, wire(ubsproxy.HoldAnswer)},
			{"call to the core: made three times at once", 2, wire(ubsproxy.Duplicate)},
			{"call to the core: delivered late", 2, deliverLate},
			{"call to the core: made again, much later", 2, callAgain},

			{"account frozen for a while", 2, withStatus("FROZEN")},
			{"account disabled for a while", 2, withStatus("DISABLED")},
		}...)
	}
	return all
}

// above draws a share between the lowest one and 1.
func above(lowest float64, r *rand.Rand) float64 { return lowest + (1-lowest)*r.Float64() }

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
	restarting sync.RWMutex        // a restart of Postgres has it alone
	stopping   sync.Mutex          // one process at a crash point at a time
	clock      sync.Mutex          // one move of the database's clock at a time
	stopped    sync.Map            // processes that a fault has stopped and will resume
	tasks      *activeFaults[cloudtasks.Faults]
	nodes      []*activeFaults[rpcproxy.Faults]
	strikes    strikeCounter
}

// NewWorld returns the deployment before the first fault.
func NewWorld(o Options) *World {
	w := &World{
		Options: o,
		Crashes: newCrashes(o.Points, reachedPoints(o.Users > 0, o.Events), o.Source),
		Foreign: &Foreign{uses: make(map[txmanager.Submitter][]Use)},
		Sweeper: &Sweeper{run: o.Stack.RunSweep},
		tasks:   newActiveFaults(o.Stack.Tasks.SetFaults),
		strikes: strikeCounter{claimed: make(map[any]int)},
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

// untilStruck repeats act, within the time that a fault waits for a target, until it has struck. It returns how often.
func untilStruck(ctx context.Context, act func() int) (times int) {
	until(ctx, targetTimeout, func() bool {
		times = act()
		return times > 0
	})
	return times
}

// try repeats act until it succeeds. The error is that of the last attempt.
func try(ctx context.Context, act func() error) (err error) {
	until(ctx, targetTimeout, func() bool {
		err = act()
		return err == nil
	})
	return err
}

// struckOnce is the result of a fault that strikes once, unless it fails.
func struckOnce(err error) (times int) {
	steps.OK(err)
	return 1
}

// lasting injects what begin starts, for a time between the two.
func lasting(shortest, limit time.Duration, begin func(*World, *rand.Rand) (end func())) inject {
	return func(ctx context.Context, w *World, r *rand.Rand) int {
		defer begin(w, r)()
		retry.Pause(ctx, randomDuration(r, shortest, limit))
		return 1
	}
}

// randomDuration draws a duration between the two, inclusive.
func randomDuration(r *rand.Rand, shortest, limit time.Duration) time.Duration {
	return shortest + time.Duration(r.Int64N(int64(limit-shortest)+1))
}

func pick[T any](r *rand.Rand, list []T) T {
	if len(list) == 0 {
		steps.Stopf("nothing to choose from")
	}
	return list[r.IntN(len(list))]
}

// activeFaults combines the settings of several faults that act on one part at the same time.
// Each fault changes some fields until it ends.
type activeFaults[F any] struct {
	set func(F)

	mu     sync.Mutex
	next   int
	active map[int]func(*F)
}

func newActiveFaults[F any](set func(F)) *activeFaults[F] {
	return &activeFaults[F]{set: set, active: make(map[int]func(*F))}
}

// begin adds a change; the returned function removes it.
func (w *activeFaults[F]) begin(change func(*F)) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := w.next
	w.next++
	w.active[id] = change
	w.apply()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.active, id)
		w.apply()
	}
}

func (w *activeFaults[F]) apply() {
	var f F
	for _, change := range w.active {
		change(&f)
	}
	w.set(f)
}

// strikeCounter divides the growing counts of proxies among faults: each strike is claimed once.
type strikeCounter struct {
	mu      sync.Mutex
	claimed map[any]int // by the kind of fault, as its proxy names it
}

// claim returns the strikes of the kind since the last claim, given their total so far.
func (t *strikeCounter) claim(kind any, sofar int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh := sofar - t.claimed[kind]
	t.claimed[kind] = sofar
	return fresh
}

// await waits until count has reached the target, and claims the strikes.
func (t *strikeCounter) await(ctx context.Context, kind any, target int, count func() int) int {
	until(ctx, targetTimeout, func() bool { return count() >= target })
	return t.claim(kind, count())
}

package txmanager

import (
	"context"
	"math/big"
	"time"
)

// Watcher is told of what was done, once it is, for metrics and traces. It changes
// nothing, and nothing waits for what it does.
type Watcher interface {
	// Committed is told of the steps that a write made, which was begun at that time. A
	// write whose answer was lost is not told.
	Committed(ctx context.Context, began time.Time, steps []Step)

	// Broadcast is told what a node said to the bytes of t, which were handed to it at that
	// time. again says that they, or bytes before them, were claimed to be sent before.
	Broadcast(ctx context.Context, began time.Time, t Tx, res SendResult, again bool)

	// TaskContext is the context for making the tasks of the next look: at what is
	// unsettled, and at the queue.
	TaskContext(ctx context.Context, unsettled, queue []Tx) context.Context

	// IntentUnproved is told each time that an intent was checked, and is not proved to be what
	// was accepted.
	IntentUnproved(ctx context.Context, p Proof)
}

// Step is what one write made of one transaction.
type Step struct {
	From, To Tx
	NewFork  bool      // its list of confirming blocks was replaced, or its receipt removed
	Decided  *Decision // by code; nil: nothing was
	ExtraWei *big.Int  // of a version that a gas bump made: what it may cost beyond the one before; nil: none was
}

// loadedByID is the work in hand by txId.
func (t *leaseSession) loadedByID() map[string]Tx {
	all := make(map[string]Tx, len(t.state.Open)+len(t.state.Queue))
	for _, list := range [][]Tx{t.state.Open, t.state.Queue, t.state.Expired} {
		for _, x := range list {
			all[x.ID] = x
		}
	}
	return all
}

// watchCommit tells the watcher what w made of what was loaded before. Of moves out
// of the queue none is told where one was lost: which one it was is not known.
func (t *leaseSession) watchCommit(ctx context.Context, began time.Time, w Commit, done CommitResult, before map[string]Tx) {
	if t.Watcher == nil {
		return
	}
	steps := make([]Step, 0, len(w.Allocations)+len(w.Versions)+len(w.Transitions))
	for _, a := range w.Allocations[:done.Allocated] {
		steps = append(steps, Step{From: before[a.Tx.ID], To: a.Tx})
	}
	for _, v := range w.Versions {
		steps = append(steps, Step{From: before[v.Tx.ID], To: v.Tx, ExtraWei: v.ExtraWei})
	}
	for _, m := range w.Transitions {
		if m.From == Queued && done.Transitioned < len(w.Transitions) {
			continue
		}
		from := before[m.To.ID]
		steps = append(steps, Step{From: from, To: m.To, NewFork: isNewFork(from, m.To), Decided: m.Decision})
	}
	if len(steps) > 0 {
		t.Watcher.Committed(ctx, began, steps)
	}
}

// isNewFork says that the list of confirming blocks was replaced, or the receipt
// removed: by a reorg, unless an operator accepted that.
func isNewFork(from, to Tx) bool {
	if from.Receipt == nil || to.Receipt == nil {
		return from.Receipt != nil && !to.State.Terminal()
	}
	return !isPrefix(from.Confirmations, to.Confirmations)
}

// watchBroadcast tells the watcher what a node said to the bytes of x.
func (t *leaseSession) watchBroadcast(ctx context.Context, began time.Time, x Tx, res SendResult, again bool) {
	if t.Watcher != nil {
		t.Watcher.Broadcast(ctx, began, x, res, again)
	}
}

// taskContext is the context for making the tasks of the next look.
func (t *leaseSession) taskContext(ctx context.Context) context.Context {
	if t.Watcher == nil {
		return ctx
	}
	return t.Watcher.TaskContext(ctx, t.state.Open, t.state.Queue)
}

package txmanager

import (
	"context"
	"math/big"
	"time"
)

// Watcher receives completed steps, for metrics and traces. It changes no state, and no
// transaction waits for it.
type Watcher interface {
	// Committed receives the steps of a commit, which began at began. A commit whose answer was
	// lost is not reported.
	Committed(ctx context.Context, began time.Time, steps []Step)

	// Broadcast receives a node's answer to the bytes of t, which were sent at began. again is
	// true if an earlier broadcast of t was claimed.
	Broadcast(ctx context.Context, began time.Time, t Tx, res SendResult, again bool)

	// TaskContext is the context for enqueuing the next tasks, for the open and the queued
	// transactions.
	TaskContext(ctx context.Context, unsettled, queue []Tx) context.Context

	// IntentUnproved receives each result of a check that did not prove an intent authentic.
	IntentUnproved(ctx context.Context, p Proof)
}

// Step is the change of one transaction in one commit.
type Step struct {
	From, To Tx
	NewFork  bool      // its list of confirming blocks was replaced, or its receipt removed
	Decided  *Decision // by code; nil: no decision
	ExtraWei *big.Int  // the worst-case extra cost of a gas bump beyond the version before; nil: no gas bump
}

// loadedByID are the loaded transactions by txId.
func (t *leaseSession) loadedByID() map[string]Tx {
	all := make(map[string]Tx, len(t.state.Open)+len(t.state.Queue))
	for _, list := range [][]Tx{t.state.Open, t.state.Queue, t.state.Expired} {
		for _, x := range list {
			all[x.ID] = x
		}
	}
	return all
}

// watchCommit reports the changes of w to the watcher. If the store skipped a transition, those
// out of QUEUED are not reported: it is unknown which one was skipped.
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

// isNewFork reports whether the list of confirming blocks was replaced, or a receipt was removed
// by a reorg. A removal that an operator accepted does not count.
func isNewFork(from, to Tx) bool {
	if from.Receipt == nil || to.Receipt == nil {
		return from.Receipt != nil && !to.State.Terminal()
	}
	return !isPrefix(from.Confirmations, to.Confirmations)
}

// watchBroadcast reports a node's answer to the bytes of x to the watcher.
func (t *leaseSession) watchBroadcast(ctx context.Context, began time.Time, x Tx, res SendResult, again bool) {
	if t.Watcher != nil {
		t.Watcher.Broadcast(ctx, began, x, res, again)
	}
}

// taskContext is the context for enqueuing the next tasks.
func (t *leaseSession) taskContext(ctx context.Context) context.Context {
	if t.Watcher == nil {
		return ctx
	}
	return t.Watcher.TaskContext(ctx, t.state.Open, t.state.Queue)
}

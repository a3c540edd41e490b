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

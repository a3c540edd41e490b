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

	// Broadcast receives a node's answer to the bytes of a transaction, which were sent at began.
	Broadcast(ctx context.Context, began time.Time, b Broadcast)

	// TaskContext is the context for enqueuing the next tasks, for the open and the queued
	// transactions.
	TaskContext(ctx context.Context, unsettled, queue []Tx) context.Context

	// IntentUnproved receives each result of a check that did not prove an intent authentic.
	IntentUnproved(ctx context.Context, p Proof)
}

// Broadcast is a node's answer to the bytes of a transaction.
type Broadcast struct {
	Tx     Tx
	Result SendResult
	Again  bool          // an earlier broadcast of Tx was claimed
	Age    time.Duration // since the intent was accepted, by the database's clock; 0: unknown
}

// Step is the change of one transaction in one commit.
type Step struct {
	From, To Tx
	Age      time.Duration // since the intent was accepted, by the database's clock; 0: unknown
	NewFork  bool          // its list of confirming blocks was replaced, or its receipt removed
	Decided  *Decision     // by code; nil: no decision
	ExtraWei *big.Int      // the worst-case extra cost of a gas bump beyond the version before; nil: no gas bump
}

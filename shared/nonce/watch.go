package nonce

import (
	"context"
	"math/big"
	"time"
)

// Watcher is told of what was done, once it is, for metrics and traces. It changes
// nothing, and nothing waits for what it does.
type Watcher interface {
	// Wrote is told of the steps that a write made, which was begun at that time. A
	// write whose answer was lost is not told.
	Wrote(ctx context.Context, began time.Time, steps []Step)

	// Sent is told what a node said to the bytes of t, which were handed to it at that
	// time. again says that they, or bytes before them, were claimed to be sent before.
	Sent(ctx context.Context, began time.Time, t Tx, res SendResult, again bool)

	// Onward is the context for making the tasks of the next look: at what is
	// unsettled, and at the queue.
	Onward(ctx context.Context, unsettled, queue []Tx) context.Context

	// Unproved is told each time that an intent was checked, and is not proved to be what
	// was accepted.
	Unproved(ctx context.Context, p Proof)
}

// Step is what one write made of one transaction.
type Step struct {
	From, To Tx
	NewFork  bool      // its list of confirming blocks was replaced, or its receipt removed
	Decided  *Decision // by code; nil: nothing was
	ExtraWei *big.Int  // of a version that a gas bump made: what it may cost beyond the one before; nil: none was
}

// loaded is the work in hand by txId.
func (t *tenure) loaded() map[string]Tx {
	all := make(map[string]Tx, len(t.work.Unsettled)+len(t.work.Queue))
	for _, list := range [][]Tx{t.work.Unsettled, t.work.Queue, t.work.Expired} {
		for _, x := range list {
			all[x.ID] = x
		}
	}
	return all
}

// watchWrite tells the watcher what w made of what was loaded before. Of moves out
// of the queue none is told where one was lost: which one it was is not known.
func (t *tenure) watchWrite(ctx context.Context, began time.Time, w Write, done Written, before map[string]Tx) {
	if t.Watch == nil {
		return
	}
	steps := make([]Step, 0, len(w.Allocate)+len(w.Store)+len(w.Moves))
	for _, a := range w.Allocate[:done.Allocated] {
		steps = append(steps, Step{From: before[a.Tx.ID], To: a.Tx})
	}
	for _, v := range w.Store {
		steps = append(steps, Step{From: before[v.Tx.ID], To: v.Tx, ExtraWei: v.ExtraWei})
	}
	for _, m := range w.Moves {
		if m.From == Queued && done.Moved < len(w.Moves) {
			continue
		}
		from := before[m.To.ID]
		steps = append(steps, Step{From: from, To: m.To, NewFork: newFork(from, m.To), Decided: m.Decided})
	}
	if len(steps) > 0 {
		t.Watch.Wrote(ctx, began, steps)
	}
}

// newFork says that the list of confirming blocks was replaced, or the receipt
// removed: by a reorg, unless an operator accepted that.
func newFork(from, to Tx) bool {
	if from.Receipt == nil || to.Receipt == nil {
		return from.Receipt != nil && !to.State.Final()
	}
	return !isPrefix(from.Confirmations, to.Confirmations)
}

// watchSent tells the watcher what a node said to the bytes of x.
func (t *tenure) watchSent(ctx context.Context, began time.Time, x Tx, res SendResult, again bool) {
	if t.Watch != nil {
		t.Watch.Sent(ctx, began, x, res, again)
	}
}

// onward is the context for making the tasks of the next look.
func (t *tenure) onward(ctx context.Context) context.Context {
	if t.Watch == nil {
		return ctx
	}
	return t.Watch.Onward(ctx, t.work.Unsettled, t.work.Queue)
}

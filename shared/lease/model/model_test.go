// Package model checks the protocol of lease, fencing token, rerun mark and task names. It searches
// every interleaving of a few creates and invocations, with crashes, pauses beyond the lease,
// duplicate deliveries and renewals.
//
// It checks one promise: an accepted intent is completed without the sweep, and no write of a
// superseded holder is accepted. The sweep and the content of transactions are not modelled, and a
// create does not crash between its commit and its task. Package batches has several submitters.
//
// A step is an atomic action of the real system: one statement or transaction on Postgres, one
// enqueued task, one delivery. A delivery and the acquire-or-mark after it are one step, because an
// invocation that has not queried the lease yet equals a task that was not delivered. The last act
// of an invocation and its answer are one step too, which a crash can divide. The rows of a
// transaction become visible at its commit, so begin, insert and commit are one step.
//
// Time has no number. A live holder is arbitrarily fast. A lease expires when its holder is dead,
// or pauses as counted in [Budget]. A delayed task is due once its expires_at can have passed.
package model

import (
	"cmp"
	"fmt"

	"github.com/fencepost/fencepost/shared/modelcheck"
)

// Verdict is the result of a search.
type Verdict string

const (
	// Holds: no state violates the promise.
	Holds Verdict = "holds"
	// Late: without any fault, accepted work can continue only when the delayed task of an
	// invocation that found the lease held is due.
	Late Verdict = "LATE"
	// Lost: accepted work is unfinished, and only the sweep is left to continue it.
	Lost Verdict = "LOST"
	// Unsafe: a write with a superseded token was accepted.
	Unsafe Verdict = "UNSAFE"
	// Unbounded: the run used more tokens than the model has.
	Unbounded Verdict = "UNBOUNDED"
)

// Run is the input of a search.
type Run struct {
	Rules  Rules
	Shape  Shape
	Budget Budget
	// Accept is a verdict that does not end the search, so that a worse one after it can be found.
	Accept Verdict
	// Limit ends the search after that many states; 0 means 50 million.
	Limit int

	// distinct searches without merging states that differ only in the order of creates and
	// invocations, or in the first token.
	distinct bool
}

// Report is the verdict and the run that leads to it.
type Report struct {
	Verdict Verdict
	modelcheck.Report
}

// Check searches every interleaving within r.Budget. It reports the first state that violates the
// promise, or [Holds].
func Check(r Run) (Report, error) {
	b := r.Budget
	if b.Creates > maxCreates || b.Invocations > maxInvocations || b.Renewals > maxRenewals {
		return Report{}, fmt.Errorf("budget %+v: at most %d creates, %d invocations and %d renewals", b, maxCreates, maxInvocations, maxRenewals)
	}
	limit := r.Limit
	if limit == 0 {
		limit = 50_000_000
	}
	p := &protocol{Run: r}
	found := modelcheck.Search(p.machine(p.next), limit)
	return Report{cmp.Or(Verdict(found.Violation), Holds), found}, nil
}

// machine is the input of [modelcheck.Search]; next is [protocol.next] or wraps it.
func (p *protocol) machine(next func(state, emit)) modelcheck.Machine[state, state, step] {
	return modelcheck.Machine[state, state, step]{
		Start: p.start(), Key: p.key, Next: next, Describe: state.describe,
		Violation: func(s state, enabled []step) string {
			if v := p.evaluate(s, enabled); v != Holds {
				return string(v)
			}
			return ""
		},
	}
}

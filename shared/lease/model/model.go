// Package model checks the protocol of lease, fencing token, wake mark and task
// names by walking every interleaving of a few creates and invocations, with
// crashes, pauses beyond the lease, duplicate deliveries and renewals.
//
// It is about one promise: an intent that was accepted is carried to its end
// without the sweep, and no write of a holder that was superseded is accepted.
// The sweep, the content of transactions and more than one submitter are left
// out, and a create does not die between its commit and its task.
//
// A step is what is atomic outside: one statement or one transaction on
// Postgres, one task made, one delivery. A delivery and the acquire-or-mark that
// follows it are one step, since an invocation that has not yet looked at the
// lease is no different from a task that has not been delivered; so are the
// last act of an invocation and its answer, which a crash can still part. What
// a transaction inserts is seen at its commit, so begin, insert and commit are
// one step too.
//
// Time has no number. A live holder is as fast as it likes; a lease runs out
// when its holder is dead, or stands still and is counted in [Budget]. A delayed
// task is due once its expires_at can have passed.
package model

import (
	"cmp"
	"fmt"

	"github.com/fencepost/fencepost/shared/modelcheck"
)

// Verdict is what a walk says of the protocol.
type Verdict string

const (
	// Holds: no state that was met is wrong.
	Holds Verdict = "holds"
	// Late: nothing had gone wrong, yet accepted work can go on only when the
	// delayed task of an invocation that found the lease held comes due.
	Late Verdict = "LATE"
	// Lost: accepted work is unfinished and no step but the sweep is left.
	Lost Verdict = "LOST"
	// Unsafe: a write by a superseded token was accepted.
	Unsafe Verdict = "UNSAFE"
	// Unbounded: more tokens were handed out than the model can name.
	Unbounded Verdict = "UNBOUNDED"
)

// Run is one question to the model.
type Run struct {
	Rules  Rules
	Shape  Shape
	Budget Budget
	// Accept is a verdict that does not end the walk, so that a worse one behind
	// it can be found.
	Accept Verdict
	// Limit ends the walk when that many states were met; 0 means 50 million.
	Limit int

	// distinct walks without taking states as the same that differ only in the
	// order of creates and invocations or in what their tokens count from.
	distinct bool
}

// Report is the model's answer: the verdict, and the run that leads to it.
type Report struct {
	Verdict Verdict
	modelcheck.Report
}

// Check walks every interleaving within r.Budget and reports the first state
// that is wrong, or that none is.
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
	found := modelcheck.Search(p.machine(p.next), limit).Report(state.plight)
	return Report{cmp.Or(Verdict(found.Violation), Holds), found}, nil
}

// machine is what [modelcheck.Search] explores; next is [protocol.next], or wraps it.
func (p *protocol) machine(next func(state, emit)) modelcheck.Machine[state, state, step] {
	return modelcheck.Machine[state, state, step]{
		Start: p.start(), Key: p.key, Next: next,
		Violation: func(s state, enabled []step) string {
			if v := p.judge(s, enabled); v != Holds {
				return string(v)
			}
			return ""
		},
	}
}

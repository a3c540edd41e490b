// Package batches checks leases whose statements share round trips. It searches every interleaving
// of up to three submitters and two processes. Package model above it checks the lease of one
// submitter in more detail.
//
// A process carries out the acquires, loads and commits of several submitters in one transaction
// each.
//
// It checks that a member of a shared transaction neither loses nor delays the work of another. No
// nonce is bound twice or skipped, and no two processes wait for each other. Start reading at
// [Check].
//
// The row checks and constraints of Postgres are not modelled: the fence alone must refuse a write. An
// intent is done when its nonce is bound. A create enqueues no task if it reads the lease as held.
//
// A shared transaction locks its rows in one step each, then commits in one step. Its answer is
// another step, which also reads the queues. A call that goes alone is one step, and waits for the
// row lock.
//
// Time has no number. A lease expires when its holder is dead, or when its process freezes.
package batches

import (
	"cmp"
	"slices"

	"github.com/fencepost/fencepost/shared/modelcheck"
)

// Rules are the rules of a shared transaction. A false field replaces its rule by the behaviour of
// a plausible defective build. [All] is the protocol.
type Rules struct {
	// FencePerMember: each member's own fence is checked. Otherwise only the first member's is.
	FencePerMember bool
	// FencedDropsOut: the commits of the others count as done. Otherwise they count as failed, and
	// are repeated.
	FencedDropsOut bool
	// FencedFailsAlone: a fenced member fails no other. Otherwise the transaction is rolled back, and
	// all count as fenced.
	FencedFailsAlone bool
	// OneOrder: every transaction locks the rows in one order of the submitters. Otherwise it can be
	// the reverse.
	OneOrder bool
	// SkipLocked: a row that is locked is skipped. Otherwise the transaction waits for it.
	SkipLocked bool
	// SkippedGoesAlone: the call of a skipped row is repeated alone. Otherwise a skipped acquire
	// counts as a lease that is held, and a skipped commit as fenced.
	SkippedGoesAlone bool
	// OthersGoOn: a call that waits alone holds up no other call of its process.
	OthersGoOn bool
	// MarkUnderLock: the row is locked when the lease is found held, until the mark is committed.
	// Otherwise it is read, and marked at the end of the transaction (H25).
	MarkUnderLock bool
	// RecheckAfterCommit: a queue is read again after the release has committed. Otherwise the
	// locking statement reads it.
	RecheckAfterCommit bool
	// RepeatedAlone: if the transaction is refused, each member is repeated alone. Otherwise each
	// fails.
	RepeatedAlone bool
	// UnknownReadsBack: a member that got no answer acquires and loads again. Otherwise it repeats
	// its write.
	UnknownReadsBack bool
	// LeaverIsRetried: the task of a caller that left before the answer is delivered again.
	// Otherwise it is answered with 2xx.
	LeaverIsRetried bool
	// LeaverIsReleased: the process releases what it has acquired for a caller that left, and
	// enqueues an advance. The retried task may have ended before. Otherwise a create can rely on a
	// lease whose owner never existed.
	LeaverIsReleased bool
	// DeadEndFirst: a transaction of a dead process ends before its tasks are delivered again. This
	// is assumed of Postgres, which waits for no row, and of the task queue. Otherwise only the
	// sweep continues what a create left to the lease that such a transaction takes.
	DeadEndFirst bool
}

// All returns all rules switched on.
func All() Rules {
	return Rules{true, true, true, true, true, true, true, true, true, true, true, true, true, true}
}

// Budget bounds a run.
type Budget struct {
	// Creates is the number of intents of each submitter, at most 2. A submitter without intents
	// takes no part.
	Creates [maxSubmitters]uint8
	// Crashes is how many times a process dies. A transaction under way is rolled back, or commits.
	Crashes uint8
	// Freezes is how many times a process freezes until its leases have expired. It may have sent
	// half of a transaction.
	Freezes uint8
	// Losses is how many shared commits get no answer.
	Losses uint8
	// Leavers is how many callers leave a round trip at their deadline.
	Leavers uint8
	// Refusals is how many shared transactions are refused, because of one member or of none.
	Refusals uint8
	// Duplicates is how many deliveries happen twice.
	Duplicates uint8
}

// Verdict is the result of a search.
type Verdict string

const (
	// Loss: a nonce was bound twice or skipped.
	Loss Verdict = "LOSS"
	// Unsafe: a write with a superseded token was accepted.
	Unsafe Verdict = "UNSAFE"
	// Deadlock: two processes wait for each other's row locks.
	Deadlock Verdict = "DEADLOCK"
	// Harmed: a call failed because of another member.
	Harmed Verdict = "HARMED"
	// Lost: accepted work is unfinished, and only the sweep is left to continue it.
	Lost Verdict = "LOST"
	// Late: work that no fault has met can continue only when a lease has expired, a delayed task
	// is due, or a frozen process continues.
	Late Verdict = "LATE"
	// Unbounded: the run used more tokens than the model has.
	Unbounded Verdict = "UNBOUNDED"
)

// Run is the input of a search.
type Run struct {
	Rules  Rules
	Budget Budget
	// WritesTwice releases the lease in a second commit. Otherwise one commit binds and releases.
	WritesTwice bool
	// EveryCreate enqueues a task for every create. Otherwise a create enqueues none if it reads the
	// lease as held.
	EveryCreate bool
	// Accept are verdicts that do not end the search, so that a worse one can be found.
	Accept []Verdict

	distinct bool // search without merging states
}

// maxStates is how many states a search visits before it stops.
const maxStates = 20_000_000

// Check visits every interleaving within r.Budget and reports the first violation.
func Check(r Run) modelcheck.Report {
	p := &protocol{r}
	return modelcheck.Search(p.machine(p.next), maxStates)
}

// machine is the input of [modelcheck.Search]; next is [protocol.next] or wraps it.
func (p *protocol) machine(next func(state, emit)) modelcheck.Machine[state, state, step] {
	return modelcheck.Machine[state, state, step]{
		Start: p.start(), Key: p.key, Next: next, Describe: state.describe,
		Violation: func(s state, possible []step) string { return string(p.verdict(&s, possible)) },
	}
}

// verdict is the worst verdict on s that r does not accept, or "".
func (p *protocol) verdict(s *state, possible []step) Verdict {
	when := func(is bool, v Verdict) Verdict {
		if is && !slices.Contains(p.Accept, v) {
			return v
		}
		return ""
	}
	return cmp.Or(
		when(s.loss, Loss), when(s.unsafe, Unsafe), when(p.deadlocked(s), Deadlock), when(s.harmed, Harmed), when(s.unbounded(), Unbounded),
		when(s.unfinished(false) && !slices.ContainsFunc(possible, step.isProgress), Lost),
		when(s.unfinished(true) && !slices.ContainsFunc(possible, step.isPrompt), Late),
	)
}

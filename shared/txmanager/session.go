package txmanager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
)

// leaseSession is the time from acquiring the lease to releasing it, by one invocation. It has one
// or more iterations, each with its own token and load.
type leaseSession struct {
	*Worker
	chain            ChainConnector
	kind             Kind
	began            time.Time
	state            SubmitterState  // as the database has it: every commit is applied to it
	queueQueried     bool            // the queue's head was due when the chain was queried, so that its estimates were included
	unknownConsumers map[uint64]bool // consumed nonces whose consuming transaction the node cannot give
	blocksRead       int             // blocks read so far for foreign transactions
	scan             ForeignScan     // how far those blocks were read
	queried          bool            // the chain was queried at least once
	decided          []string        // ids that the StuckResolution decided in this iteration: the next one carries it out
	queuedSince      int             // intents that joined the queue since the load, as read after the release
	outdated         bool            // another writer changed a row, or the rerun flag was overridden: load again

	forOperator bool // an operator waits for the answer: see requireQuorum
}

// pollClockMargin is how far Cloud Tasks' clock may be ahead of the database's. Without it, a poll
// could use up its task name while its work remains; the sweep would then do it.
const pollClockMargin = 100 * time.Millisecond

// releaseTimeout bounds the last write of a lease session that failed or was cancelled.
const releaseTimeout = 2 * time.Second

// run iterates until the lease is released, then enqueues the next task.
func (t *leaseSession) run(ctx context.Context) error {
	if err := t.readForeign(ctx); err != nil {
		if !errors.Is(err, lease.ErrFenced) {
			t.releaseAfterFailure(ctx)
		}
		return err
	}
	for {
		released, err := t.iterate(ctx)
		if err == nil && released {
			t.reached("released")
			return t.enqueueNext(ctx)
		}
		if err == nil {
			err = t.beginIteration(ctx)
		}
		if err != nil && !errors.Is(err, lease.ErrFenced) {
			t.releaseAfterFailure(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// beginIteration takes the next token and loads the state again.
func (t *leaseSession) beginIteration(ctx context.Context) error {
	bound, cancel := t.Rules.Lease.WriteContext(ctx, t.state.Lease)
	defer cancel()
	next, err := t.Store.BeginIteration(bound, t.state.Lease, t.kind.MaySign() && !t.Rules.Strict)
	if err != nil {
		return fmt.Errorf("begin an iteration for %s: %w", t.state.submitterOf(), err)
	}
	same := next.Incident == t.state.Incident
	next.ForeignUnread, next.ForeignReadable = t.state.ForeignUnread && same, t.state.ForeignReadable && same
	t.state, t.outdated = t.Rules.bindWindow(next).withoutChecks(), false
	return nil
}

// isPastDeadline reports whether no further iteration may begin.
func (t *leaseSession) isPastDeadline() bool {
	return time.Since(t.began) > t.Rules.IterationsEndAfter || t.Stopping != nil && t.Stopping()
}

// releaseAfterFailure releases the lease after a failure. The token rises, so that the retried
// task of this invocation, or any other, gets an unused name.
func (t *leaseSession) releaseAfterFailure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	_, err := t.Store.Commit(ctx, Commit{Lease: t.state.Lease, LeaseEnd: ReleaseAnyway})
	if errors.Is(err, lease.ErrFenced) { // perhaps our own BeginIteration raised the token and its answer was lost
		var taken Acquired
		if taken, err = t.Store.Acquire(ctx, t.state.submitterOf(), t.state.Lease.Owner, false); err == nil && taken.Held {
			_, err = t.Store.Commit(ctx, Commit{Lease: taken.State.Lease, LeaseEnd: ReleaseAnyway})
		}
	}
	if err != nil {
		t.Log.WarnContext(ctx, "lease not given back: it will run out", append(t.logAttrs(), "error", err.Error())...)
	}
}

// iterate queries the chain once and does the due work. It reports whether the lease was released;
// if not, another iteration follows.
func (t *leaseSession) iterate(ctx context.Context) (released bool, err error) {
	t.queueQueried = t.kind.MaySign() && t.state.isQueueHeadDue(t.state.now().Add(t.Rules.pollSlack()))
	q, ok := t.Rules.nextQuery(t.state, t.kind, t.chain)
	if !ok && (t.kind != KindConfirm || t.queried || len(q.HashesAt) == 0) {
		return t.commit(ctx, Commit{}, true)
	}
	t.queried = true
	v, err := t.queryAgreed(ctx, q)
	if err != nil {
		return t.planRetry(ctx, q, err)
	}
	j := t.Rules.evaluate(t.state, q, v)
	if !j.needsHeaders {
		return t.commitAndSend(ctx, v, j)
	}
	q = t.Rules.withFinalityHeaders(q, v)
	further, err := t.queryAgreed(ctx, q)
	switch {
	case errors.Is(err, lease.ErrFenced):
		return false, err
	case err != nil: // the first evaluation remains valid
		t.Log.WarnContext(ctx, "no headers to prove finality by", append(t.logAttrs(), "error", err.Error())...)
		return t.commitAndSend(ctx, v, j)
	}
	j = t.Rules.evaluate(t.state, q, further)
	if j.needsHeaders {
		t.Log.WarnContext(ctx, "the node's headers do not link: nothing can be final by them", append(t.logAttrs(), "node", further.Node)...)
	}
	return t.commitAndSend(ctx, further, j)
}

// commitAndSend writes the evaluation and the plan for the queue, then sends the claimed
// broadcasts.
func (t *leaseSession) commitAndSend(ctx context.Context, v ChainObservation, j evaluation) (released bool, err error) {
	t.reached("looked")
	t.decided = nil
	t.resolveStuck(ctx, &j)
	before := t.state
	t.state.Open = j.open()
	t.state.FinalHead = max(t.state.FinalHead, j.finalHead)
	p := t.planUnsigned(ctx, v)
	before.Lease = t.state.Lease // signing may have renewed the lease
	t.state = before

	w := Commit{Transitions: append(j.transitions, p.transitions...), Allocations: p.allocations, Cursor: evaluateViolation(t.state, v)}
	if err := t.identifyConsumingTx(ctx, w.Cursor.OpenIncident); err != nil {
		return false, err
	}
	if w.Cursor.FinalHead = j.finalHead; len(j.finals) > 0 {
		w.Cursor.FinalBlocks = t.Rules.rememberFinalBlocks(t.state.FinalBlocks, j.finals)
	}
	if p.heldBackChanged {
		w.Cursor.HeldBackSince = p.heldBack
	}
	healing := t.state.Protected && !t.state.ForeignDatabase && finalBlockStatusIn(t.state, v) == finalBlockReorged
	sending := len(j.rebroadcasts)+len(p.allocations) > 0 || t.hasSignaturesDue(j.after)
	released, err = t.commit(ctx, w, !sending && !healing)
	switch {
	case err == nil && healing:
		if err = t.resendReorgedFinals(ctx, v); err != nil {
			return false, err
		}
		return t.commit(ctx, Commit{}, true)
	case err != nil || !sending || t.outdated:
		return released, err
	}
	if len(p.allocations) > 0 {
		t.reached("stored")
	}
	if len(j.rebroadcasts) > 0 {
		t.reached("claimed")
	}
	signed, err := t.signDueVersions(ctx, v)
	if err != nil || t.outdated {
		return false, err
	}
	ids := slices.Concat(j.claimedIDs(), w.signedIDs(), signed)
	if len(ids) == 0 {
		return t.commit(ctx, Commit{}, true)
	}
	return t.broadcast(ctx, ids, j.claimedIDs(), v.Head)
}

// hasSignaturesDue reports whether a version may be due: for a nonce without one, for a requested
// action, or for a gas bump.
func (t *leaseSession) hasSignaturesDue(txs []Tx) bool {
	return t.kind.MaySign() && !t.state.Protected &&
		slices.ContainsFunc(txs, func(x Tx) bool {
			return x.State == InFlight || x.hasOpenAction() || t.Rules.isBumpDue(x, t.state.now())
		})
}

// query queries the chain once, within the lease.
func (t *leaseSession) query(ctx context.Context, q ChainQuery) (v ChainObservation, err error) {
	err = t.callOutside(ctx, func(ctx context.Context) error {
		v, err = t.chain.Query(ctx, q)
		return err
	})
	return v, err
}

// callOutside makes one outside call, which must end before the lease does.
func (t *leaseSession) callOutside(ctx context.Context, f func(context.Context) error) error {
	return t.callOutsideWithin(ctx, t.Rules.CallTimeout, f)
}

func (t *leaseSession) callOutsideWithin(ctx context.Context, most time.Duration, f func(context.Context) error) error {
	if t.Rules.Lease.Short(t.state.Lease) {
		if err := t.renewLease(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := t.state.Lease.CallContext(ctx, most)
	defer cancel()
	return f(ctx)
}

func (t *leaseSession) renewLease(ctx context.Context) error {
	bound, cancel := t.Rules.Lease.WriteContext(ctx, t.state.Lease)
	defer cancel()
	renewed, err := t.Store.Renew(bound, t.state.Lease)
	if err != nil {
		return fmt.Errorf("renew lease of %s: %w", t.state.submitterOf(), err)
	}
	t.state.Lease = renewed
	return nil
}

// planRetry plans the next chain query after one that failed.
func (t *leaseSession) planRetry(ctx context.Context, q ChainQuery, cause error) (released bool, err error) {
	if errors.Is(cause, lease.ErrFenced) {
		return false, cause
	}
	t.Log.WarnContext(ctx, "chain not reached", append(t.logAttrs(), "error", cause.Error())...)
	var w Commit
	again := t.state.now().Add(t.Rules.BlockTime)
	about := q.coversTx()
	for _, x := range t.state.Open {
		if len(x.Versions) > 0 && !about(x) {
			continue
		}
		if x.NextResubmitAt != nil && x.NextResubmitAt.Before(again) {
			x.NextResubmitAt = &again
		}
		w.Transitions = append(w.Transitions, Transition{From: x.State, To: t.Rules.withNextCheck(x, again)})
	}
	if t.kind.MaySign() && t.state.isQueueHeadDue(again) {
		w.Transitions = append(w.Transitions, t.state.waitAtHead("the node is out of reach", again)...)
	}
	return t.commit(ctx, w, true)
}

// commit writes w and applies it to t.state. With last, the same transaction releases the lease,
// unless leaseEndAfter finds more to do now.
func (t *leaseSession) commit(ctx context.Context, w Commit, last bool) (released bool, err error) {
	w.Lease = t.state.Lease
	w.Transitions = append(w.Transitions, t.state.expireQueued(w.Cursor)...)
	after := t.state.afterCommit(w)
	if last {
		w.LeaseEnd = t.leaseEndAfter(after)
	}
	if w.Empty() {
		return false, nil
	}
	w.Fees = t.state.feeUses(w)
	began := time.Now()
	bound, cancel := t.Rules.Lease.WriteContext(ctx, w.Lease)
	defer cancel()
	written, err := t.Store.Commit(bound, w)
	if err != nil {
		return false, fmt.Errorf("write for %s: %w", t.state.submitterOf(), err)
	}
	t.noteCommit(ctx, began, w, written)
	t.state = t.state.afterCommit(w.onlyBound(written))
	t.outdated = written.Transitioned < len(w.Transitions) || w.LeaseEnd == ReleaseAnyway
	if written.Released {
		t.state.Lease.Token = written.Token
		t.queuedSince = written.Queued
		t.outdated = t.outdated || (w.LeaseEnd == ReleaseUnlessRerun && written.Suspended != t.state.Suspended)
	}
	return written.Released, nil
}

// leaseEndAfter decides how the lease ends with the last write of an iteration. It keeps the lease
// where this invocation can continue at once.
func (t *leaseSession) leaseEndAfter(after SubmitterState) LeaseEnd {
	if t.isPastDeadline() {
		return ReleaseAnyway
	}
	if advance := t.Rules.planNextWork(after).advanceNow; advance && t.kind.MaySign() || !advance && isBlockDue(after) {
		return KeepLease
	}
	return ReleaseUnlessRerun
}

// isBlockDue reports whether a pending transaction is due for a check at a new block. A separate
// poll would come up to a second later. Each check plans the next one ahead, so that this ends.
func isBlockDue(w SubmitterState) bool {
	return !w.Protected && slices.ContainsFunc(w.Open, func(x Tx) bool {
		return x.Sub == Pending && x.NextCheckAt != nil && !x.NextCheckAt.After(w.now())
	})
}

// pacedAt delays the next advance of a submitter that was just served, so that intents which
// arrive together share one chain query. Work that is due earlier is not delayed.
func (r Rules) pacedAt(d nextWork, now time.Time) time.Time {
	at := now.Add(min(r.BlockTime/2, 500*time.Millisecond))
	if !d.at.IsZero() && d.at.Before(at) {
		return d.at
	}
	return at
}

// enqueueNext enqueues the next task after the lease was released, under the token then in force.
// An advance does everything that is due, so a function that may sign needs no poll beside it. A
// function that may not sign also enqueues the poll, so that polling does not depend on the one
// function that may sign.
func (t *leaseSession) enqueueNext(ctx context.Context) error {
	ctx = t.taskContext(ctx)
	s, d := t.state.submitterOf(), t.Rules.planNextWork(t.state)
	with := t.state
	with.QueueMore = with.QueueMore || t.queuedSince > 0
	soon := t.Rules.planNextWork(with).advanceNow
	var err error
	switch {
	case d.advanceNow, t.outdated, soon && t.queuedSince >= AdvanceNowQueue:
		err = t.Tasks.EnqueueAdvance(ctx, s, t.state.Lease.Token)
	case soon:
		err = t.Tasks.EnqueueAdvanceAt(ctx, s, t.state.Lease.Token, t.Rules.pacedAt(d, t.state.now()))
	}
	if err != nil {
		return fmt.Errorf("enqueue advance for %s: %w", s, err)
	}
	if d.at.IsZero() || t.kind.MaySign() && (d.advanceNow || t.outdated || soon) {
		return nil
	}
	// A poll that ran in this second may have used up its name. One named for the next second may
	// run slightly early by the database's clock.
	at := d.at
	if next := t.state.now().Add(pollClockMargin).Truncate(time.Second).Add(time.Second); at.Before(next) {
		at = next
	}
	if err := t.Tasks.EnqueuePoll(ctx, s, d.kind, at); err != nil {
		return fmt.Errorf("enqueue %s for %s: %w", d.kind, s, err)
	}
	return nil
}

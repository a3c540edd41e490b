package txmanager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
)

// pollClockMargin is how far Cloud Tasks' clock may be ahead of the database's. Without it, a poll
// could use up its task name while its work remains; the sweep would then do it.
const pollClockMargin = 100 * time.Millisecond

// invocation is one serving of a submitter, within one lease session. It has one or more
// iterations, each with its own token and load.
type invocation struct {
	*leaseSession
	worker *Worker

	queueQueried bool     // the queue's head was due when the chain was queried, so that its estimates were included
	queried      bool     // the chain was queried at least once
	decided      []string // ids that the StuckResolution decided in this iteration: the next one carries it out
	queuedSince  int      // intents that joined the queue since the load, as read after the release
	outdated     bool     // another writer changed a row, or the rerun flag was overridden: load again
}

// run iterates until the lease is released, then enqueues the next task.
func (t *invocation) run(ctx context.Context) error {
	if err := readForeignTransactions(ctx, t.leaseSession); err != nil {
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
func (t *invocation) beginIteration(ctx context.Context) error {
	bound, cancel := t.Timing.Lease.WriteContext(ctx, t.state.Lease)
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

// iterate queries the chain once and does the due work. It reports whether the lease was released;
// if not, another iteration follows.
func (t *invocation) iterate(ctx context.Context) (released bool, err error) {
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
func (t *invocation) commitAndSend(ctx context.Context, v ChainObservation, j evaluation) (released bool, err error) {
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
func (t *invocation) hasSignaturesDue(txs []Tx) bool {
	return t.kind.MaySign() && !t.state.Protected &&
		slices.ContainsFunc(txs, func(x Tx) bool {
			return x.State == InFlight || x.hasOpenAction() || t.Rules.isBumpDue(x, t.state.now())
		})
}

// planRetry plans the next chain query after one that failed.
func (t *invocation) planRetry(ctx context.Context, q ChainQuery, cause error) (released bool, err error) {
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
func (t *invocation) commit(ctx context.Context, w Commit, last bool) (released bool, err error) {
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
	bound, cancel := t.Timing.Lease.WriteContext(ctx, w.Lease)
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
func (t *invocation) leaseEndAfter(after SubmitterState) LeaseEnd {
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
func (t *invocation) enqueueNext(ctx context.Context) error {
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

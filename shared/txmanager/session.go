package txmanager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
)

// leaseSession is one invocation's time with the lease: one or more rounds, each with
// a token and a load of its own.
type leaseSession struct {
	*Worker
	chain            ChainConnector
	kind             Kind
	began            time.Time
	state            SubmitterState  // as the database has it: every write is carried over
	queueQueried     bool            // the queue could be worked on when the chain was asked: only then its estimates were
	unknownConsumers map[uint64]bool // nonces that a foreign transaction consumed and of which the node does not tell
	blocksRead       int             // how many were read for foreign transactions
	scan             ForeignScan     // how far they were read
	queried          bool            // the chain was asked at least once
	decided          []string        // transactions about which code decided in this round: the next carries it out
	queuedSince      int             // how many have joined the queue since it was loaded, as seen behind the release
	outdated         bool            // a row was moved by somebody else, or a mark was passed over: look again

	forOperator bool // an operator waits for the answer: see requireQuorum
}

// pollClockMargin is how far Cloud Tasks' clock may be ahead of the database's before
// a poll's name can be burnt while its work remains; then the sweep helps.
const pollClockMargin = 100 * time.Millisecond

// releaseTimeout bounds the last write of a tenure that failed or was cancelled.
const releaseTimeout = 2 * time.Second

// run goes round until the lease is given back, then asks for what is due next.
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

// beginIteration begins the next round, with a token and a load of its own.
func (t *leaseSession) beginIteration(ctx context.Context) error {
	bound, cancel := t.Rules.Lease.WriteContext(ctx, t.state.Lease)
	defer cancel()
	next, err := t.Store.BeginIteration(bound, t.state.Lease, t.kind.MaySign() && !t.Rules.Strict)
	if err != nil {
		return fmt.Errorf("go round again for %s: %w", t.state.submitterOf(), err)
	}
	same := next.Incident == t.state.Incident
	next.ForeignUnread, next.ForeignReadable = t.state.ForeignUnread && same, t.state.ForeignReadable && same
	t.state, t.outdated = t.Rules.bindWindow(next).withoutChecks(), false
	return nil
}

// isPastDeadline says that no further round may begin.
func (t *leaseSession) isPastDeadline() bool {
	return time.Since(t.began) > t.Rules.IterationsEndAfter || t.Stopping != nil && t.Stopping()
}

// releaseAfterFailure returns the lease after a failure. The token goes up, so that the
// retried task of this invocation, or any other, finds a fresh name.
func (t *leaseSession) releaseAfterFailure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	_, err := t.Store.Commit(ctx, Commit{Lease: t.state.Lease, LeaseEnd: ReleaseAnyway})
	if errors.Is(err, lease.ErrFenced) { // perhaps by our own round whose answer was lost
		var taken Acquired
		if taken, err = t.Store.Acquire(ctx, t.state.submitterOf(), t.state.Lease.Owner, false); err == nil && taken.Held {
			_, err = t.Store.Commit(ctx, Commit{Lease: taken.State.Lease, LeaseEnd: ReleaseAnyway})
		}
	}
	if err != nil {
		t.Log.WarnContext(ctx, "lease not given back: it will run out", append(t.logAttrs(), "error", err.Error())...)
	}
}

// iterate looks once and does what is due. It reports whether the lease was given
// back; if not, another round follows.
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
	case err != nil: // what the first look found stands
		t.Log.WarnContext(ctx, "no headers to prove finality by", append(t.logAttrs(), "error", err.Error())...)
		return t.commitAndSend(ctx, v, j)
	}
	j = t.Rules.evaluate(t.state, q, further)
	if j.needsHeaders {
		t.Log.WarnContext(ctx, "the node's headers do not link: nothing can be final by them", append(t.logAttrs(), "node", further.Node)...)
	}
	return t.commitAndSend(ctx, further, j)
}

// commitAndSend writes what the judgement found and what the queue makes of it, then
// sends what was claimed.
func (t *leaseSession) commitAndSend(ctx context.Context, v ChainObservation, j evaluation) (released bool, err error) {
	t.reached("looked")
	t.decided = nil
	t.resolveStuck(ctx, &j)
	before := t.state
	t.state.Open = j.open()
	t.state.FinalHead = max(t.state.FinalHead, j.finalHead)
	p := t.planUnsigned(ctx, v)
	before.Lease = t.state.Lease // signing may have renewed it
	t.state = before

	w := Commit{Transitions: append(j.transitions, p.transitions...), Allocations: p.allocations, Cursor: evaluateViolation(t.state, v)}
	if err := t.identifyConsumingTx(ctx, w.Cursor.OpenIncident); err != nil {
		return false, err
	}
	if w.Cursor.FinalHead = j.finalHead; len(j.finals) > 0 {
		w.Cursor.FinalBlocks = t.Rules.rememberFinalBlocks(t.state.FinalBlocks, j.finals)
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

// hasSignaturesDue says whether a version may be due: of a nonce that has none yet, or
// by an order.
func (t *leaseSession) hasSignaturesDue(txs []Tx) bool {
	return t.kind.MaySign() && !t.state.Protected &&
		slices.ContainsFunc(txs, func(x Tx) bool {
			return x.State == InFlight || x.hasOpenAction() || t.Rules.isBumpDue(x, t.state.now())
		})
}

// query asks the chain once, within the lease.
func (t *leaseSession) query(ctx context.Context, q ChainQuery) (v ChainObservation, err error) {
	err = t.callOutside(ctx, func(ctx context.Context) error {
		v, err = t.chain.Query(ctx, q)
		return err
	})
	return v, err
}

// callOutside makes one call to the outside, which must end before the lease does.
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

// planRetry plans the next look after one that brought nothing.
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

// commit makes w true and carries it over to the work in hand. With last, the
// lease is given back in the same transaction, unless there is more to do now.
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

// leaseEndAfter decides how the lease ends with the last write of a round: not at all
// where this invocation can go on at once.
func (t *leaseSession) leaseEndAfter(after SubmitterState) LeaseEnd {
	if t.isPastDeadline() {
		return ReleaseAnyway
	}
	if advance := t.Rules.planNextWork(after).advanceNow; advance && t.kind.MaySign() || !advance && isBlockDue(after) {
		return KeepLease
	}
	return ReleaseUnlessRerun
}

// isBlockDue says that a block has come which nobody has looked at, for something
// that was sent: a poll would come a second later than need be. A look
// leaves the next one planned ahead, so that this ends.
func isBlockDue(w SubmitterState) bool {
	return !w.Protected && slices.ContainsFunc(w.Open, func(x Tx) bool {
		return x.Sub == Pending && x.NextCheckAt != nil && !x.NextCheckAt.After(w.now())
	})
}

// pacedAt is how much later a submitter is served again that was just served, for what
// came meanwhile: so that many intents share a look instead of having one each. What
// is due before then does not wait.
func (r Rules) pacedAt(d nextWork, now time.Time) time.Time {
	at := now.Add(min(r.BlockTime/2, 500*time.Millisecond))
	if !d.at.IsZero() && d.at.Before(at) {
		return d.at
	}
	return at
}

// enqueueNext asks for the next look, after the lease was given back, under the
// token then in force. An advance looks at everything, so that no poll is needed
// beside it; but for whoever may not sign, so that the watch does not hang on the
// one function that may.
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
	// A poll that ran in this second may have used up its name, and one of the
	// next second may run a little early by the database's clock.
	at := d.at
	if next := t.state.now().Add(pollClockMargin).Truncate(time.Second).Add(time.Second); at.Before(next) {
		at = next
	}
	if err := t.Tasks.EnqueuePoll(ctx, s, d.kind, at); err != nil {
		return fmt.Errorf("enqueue %s for %s: %w", d.kind, s, err)
	}
	return nil
}

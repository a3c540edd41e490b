package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
	"github.com/fencepost/fencepost/shared/txmanager/protect"
	"github.com/fencepost/fencepost/shared/txmanager/quorum"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
)

// pollClockMargin is how far Cloud Tasks' clock may be ahead of the database's. Without it, a poll
// could use up its task name while its work remains; the sweep would then do it.
const pollClockMargin = 100 * time.Millisecond

// invocation is one serving of a submitter, within one lease session. It has one or more
// iterations, each with its own token and load.
type invocation struct {
	*session.Session
	worker *Worker

	queueQueried bool     // the queue's head was due when the chain was queried, so that its estimates were included
	queried      bool     // the chain was queried at least once
	decided      []string // ids that the StuckResolution decided in this iteration: the next one carries it out
	queuedSince  int      // intents that joined the queue since the load, as read after the release
	outdated     bool     // another writer changed a row, or the rerun flag was overridden: load again
}

// run iterates until the lease is released, then enqueues the next task.
func (t *invocation) run(ctx context.Context) error {
	if err := protect.ReadForeign(ctx, t.Session); err != nil {
		if !errors.Is(err, lease.ErrFenced) {
			t.ReleaseAfterFailure(ctx)
		}
		return err
	}
	for {
		released, err := t.iterate(ctx)
		if err == nil && released {
			t.CrashPoint("released")
			return t.enqueueNext(ctx)
		}
		if err == nil {
			err = t.beginIteration(ctx)
		}
		if err != nil && !errors.Is(err, lease.ErrFenced) {
			t.ReleaseAfterFailure(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// beginIteration takes the next token and loads the state again.
func (t *invocation) beginIteration(ctx context.Context) error {
	bound, cancel := t.Timing.Lease.WriteContext(ctx, t.State.Lease)
	defer cancel()
	next, err := t.Store.BeginIteration(bound, t.State.Lease, t.Kind.MaySign() && !t.Rules.Strict)
	if err != nil {
		return fmt.Errorf("begin an iteration for %s: %w", t.State.Submitter(), err)
	}
	same := next.Incident == t.State.Incident
	next.ForeignUnread, next.ForeignReadable = t.State.ForeignUnread && same, t.State.ForeignReadable && same
	t.State, t.outdated = rules.WithoutChecks(t.Rules.BindWindow(next)), false
	return nil
}

// iterate queries the chain once and does the due work. It reports whether the lease was released;
// if not, another iteration follows.
func (t *invocation) iterate(ctx context.Context) (released bool, err error) {
	t.queueQueried = t.Kind.MaySign() && rules.IsQueueHeadDue(t.State, t.State.DatabaseTime().Add(t.Rules.PollSlack()))
	q, ok := t.Rules.NextQuery(t.State, t.Kind, t.Chain)
	if !ok && (t.Kind != txmanager.KindConfirm || t.queried || len(q.HashesAt) == 0) {
		return t.commit(ctx, txmanager.Commit{}, true)
	}
	t.queried = true
	v, err := quorum.Query(ctx, t.Session, q)
	if err != nil {
		return t.planRetry(ctx, q, err)
	}
	j := t.Rules.Evaluate(t.State, q, v)
	if !j.NeedsHeaders {
		return t.commitAndSend(ctx, v, j)
	}
	q = t.Rules.WithFinalityHeaders(q, v)
	further, err := quorum.Query(ctx, t.Session, q)
	switch {
	case errors.Is(err, lease.ErrFenced):
		return false, err
	case err != nil: // the first evaluation remains valid
		t.Log.WarnContext(ctx, "no headers to prove finality by", append(t.LogAttrs(), "error", err.Error())...)
		return t.commitAndSend(ctx, v, j)
	}
	j = t.Rules.Evaluate(t.State, q, further)
	if j.NeedsHeaders {
		t.Log.WarnContext(ctx, "the node's headers do not link: nothing can be final by them", append(t.LogAttrs(), "node", further.Node)...)
	}
	return t.commitAndSend(ctx, further, j)
}

// commitAndSend writes the evaluation and the plan for the queue, then sends the claimed
// broadcasts.
func (t *invocation) commitAndSend(ctx context.Context, v txmanager.ChainObservation, j rules.Evaluation) (released bool, err error) {
	t.CrashPoint("looked")
	t.decided = nil
	t.resolveStuck(ctx, &j)
	before := t.State
	t.State.Open = j.Open()
	t.State.FinalHead = max(t.State.FinalHead, j.FinalHead)
	p := t.planUnsigned(ctx, v)
	before.Lease = t.State.Lease // signing may have renewed the lease
	t.State = before

	w := txmanager.Commit{Transitions: append(j.Transitions, p.Transitions...), Allocations: p.Allocations, Cursor: rules.EvaluateViolation(t.State, v)}
	if err := protect.IdentifyConsumingTx(ctx, t.Session, w.Cursor.OpenIncident); err != nil {
		return false, err
	}
	if w.Cursor.FinalHead = j.FinalHead; len(j.Finals) > 0 {
		w.Cursor.FinalBlocks = t.Rules.RememberFinalBlocks(t.State.FinalBlocks, j.Finals)
	}
	if p.HeldBackChanged {
		w.Cursor.HeldBackSince = p.HeldBack
	}
	healing := t.State.Protected && !t.State.ForeignDatabase && rules.FinalBlockStatusIn(t.State, v) == rules.FinalBlockReorged
	sending := len(j.Rebroadcasts)+len(p.Allocations) > 0 || t.hasSignaturesDue(j.After)
	released, err = t.commit(ctx, w, !sending && !healing)
	switch {
	case err == nil && healing:
		if err = protect.ResendReorgedFinals(ctx, t.Session, v); err != nil {
			return false, err
		}
		return t.commit(ctx, txmanager.Commit{}, true)
	case err != nil || !sending || t.outdated:
		return released, err
	}
	if len(p.Allocations) > 0 {
		t.CrashPoint("stored")
	}
	if len(j.Rebroadcasts) > 0 {
		t.CrashPoint("claimed")
	}
	signed, err := t.signDueVersions(ctx, v)
	if err != nil || t.outdated {
		return false, err
	}
	ids := slices.Concat(j.ClaimedIDs(), w.SignedIDs(), signed)
	if len(ids) == 0 {
		return t.commit(ctx, txmanager.Commit{}, true)
	}
	return t.broadcast(ctx, ids, j.ClaimedIDs(), v.Head)
}

// hasSignaturesDue reports whether a version may be due: for a nonce without one, for a requested
// action, or for a gas bump.
func (t *invocation) hasSignaturesDue(txs []txmanager.Tx) bool {
	return t.Kind.MaySign() && !t.State.Protected &&
		slices.ContainsFunc(txs, func(x txmanager.Tx) bool {
			return x.Phase().NeedsSigner() || t.Rules.IsBumpDue(x, t.State.DatabaseTime())
		})
}

// planRetry plans the next chain query after one that failed.
func (t *invocation) planRetry(ctx context.Context, q txmanager.ChainQuery, cause error) (released bool, err error) {
	if errors.Is(cause, lease.ErrFenced) {
		return false, cause
	}
	t.Log.WarnContext(ctx, "chain not reached", append(t.LogAttrs(), "error", cause.Error())...)
	var w txmanager.Commit
	again := t.State.DatabaseTime().Add(t.Rules.BlockTime)
	about := rules.CoversTx(q)
	for _, x := range t.State.Open {
		if len(x.Versions) > 0 && !about(x) {
			continue
		}
		if x.NextResubmitAt != nil && x.NextResubmitAt.Before(again) {
			x.NextResubmitAt = &again
		}
		w.Transitions = append(w.Transitions, txmanager.Transition{From: x.State, To: t.Rules.WithNextCheck(x, again)})
	}
	if t.Kind.MaySign() && rules.IsQueueHeadDue(t.State, again) {
		w.Transitions = append(w.Transitions, rules.WaitAtHead(t.State, "the node is out of reach", again)...)
	}
	return t.commit(ctx, w, true)
}

// commit writes w and applies it to t.state. With last, the same transaction releases the lease,
// unless leaseEndAfter finds more to do now.
func (t *invocation) commit(ctx context.Context, w txmanager.Commit, last bool) (released bool, err error) {
	w.Lease = t.State.Lease
	w.Transitions = append(w.Transitions, rules.ExpireQueued(t.State, w.Cursor)...)
	after := rules.AfterCommit(t.State, w)
	if last {
		w.LeaseEnd = t.leaseEndAfter(after)
	}
	if w.Empty() {
		return false, nil
	}
	w.Fees = gas.FeeUses(t.State, w)
	began := time.Now()
	bound, cancel := t.Timing.Lease.WriteContext(ctx, w.Lease)
	defer cancel()
	written, err := t.Store.Commit(bound, w)
	if err != nil {
		return false, fmt.Errorf("write for %s: %w", t.State.Submitter(), err)
	}
	t.NoteCommit(ctx, began, w, written)
	t.State = rules.AfterCommit(t.State, rules.OnlyBound(w, written))
	t.outdated = written.Transitioned < len(w.Transitions) || w.LeaseEnd == txmanager.ReleaseAnyway
	if written.Released {
		t.State.Lease.Token = written.Token
		t.queuedSince = written.Queued
		t.outdated = t.outdated || (w.LeaseEnd == txmanager.ReleaseUnlessRerun && written.Suspended != t.State.Suspended)
	}
	return written.Released, nil
}

// leaseEndAfter decides how the lease ends with the last write of an iteration. It keeps the lease
// where this invocation can continue at once.
func (t *invocation) leaseEndAfter(after txmanager.SubmitterState) txmanager.LeaseEnd {
	if t.IsPastDeadline() {
		return txmanager.ReleaseAnyway
	}
	if advance := t.Rules.PlanNextWork(after).AdvanceNow; advance && t.Kind.MaySign() || !advance && rules.IsBlockDue(after) {
		return txmanager.KeepLease
	}
	return txmanager.ReleaseUnlessRerun
}

// enqueueNext enqueues the next task after the lease was released, under the token then in force.
// An advance does everything that is due, so a function that may sign needs no poll beside it. A
// function that may not sign also enqueues the poll, so that polling does not depend on the one
// function that may sign.
func (t *invocation) enqueueNext(ctx context.Context) error {
	ctx = t.TaskContext(ctx)
	s, d := t.State.Submitter(), t.Rules.PlanNextWork(t.State)
	with := t.State
	with.QueueMore = with.QueueMore || t.queuedSince > 0
	soon := t.Rules.PlanNextWork(with).AdvanceNow
	var err error
	switch {
	case d.AdvanceNow, t.outdated, soon && t.queuedSince >= txmanager.AdvanceNowQueue:
		err = t.Tasks.EnqueueAdvance(ctx, s, t.State.Lease.Token)
	case soon:
		err = t.Tasks.EnqueueAdvanceAt(ctx, s, t.State.Lease.Token, t.Rules.PacedAt(d, t.State.DatabaseTime()))
	}
	if err != nil {
		return fmt.Errorf("enqueue advance for %s: %w", s, err)
	}
	if d.At.IsZero() || t.Kind.MaySign() && (d.AdvanceNow || t.outdated || soon) {
		return nil
	}
	// A poll that ran in this second may have used up its name. One named for the next second may
	// run slightly early by the database's clock.
	at := d.At
	if next := t.State.DatabaseTime().Add(pollClockMargin).Truncate(time.Second).Add(time.Second); at.Before(next) {
		at = next
	}
	if err := t.Tasks.EnqueuePoll(ctx, s, d.Kind, at); err != nil {
		return fmt.Errorf("enqueue %s for %s: %w", d.Kind, s, err)
	}
	return nil
}

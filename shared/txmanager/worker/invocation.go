package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/protect"
	"github.com/fencepost/fencepost/shared/txmanager/quorum"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
)

// pollClockMargin is how far Cloud Tasks' clock may be ahead of the database's. Without it, a poll
// could use up its task name while its work remains; the sweep would then do it.
const pollClockMargin = 100 * time.Millisecond

// invocation is one serving of a submitter, within one lease session. It has one or more
// iterations, each with its own token and load. Only the session's state lasts from one iteration
// to the next.
type invocation struct {
	*session.Session
	worker       *Worker
	keptForBlock bool // the lease was just kept for a due check at a new block
}

// outcome is the result of an iteration, or of a commit in it.
type outcome struct {
	released bool // the lease was released: no iteration follows
	outdated bool // another writer changed a row, or the rerun flag was overridden: load again
	queued   int  // where released: intents that joined the queue since the load
	queried  bool // the chain was queried
	unsent   *unsent
}

// unsent is a transaction whose bytes were stored by the commit that released the lease. They are
// sent after it.
type unsent struct {
	tx   txmanager.Tx
	head txmanager.Header // of the query before the commit
}

// run iterates until the lease is released, then enqueues the next task.
func (t *invocation) run(ctx context.Context) error {
	return t.runFrom(ctx, func(ctx context.Context, queried bool) (outcome, error) {
		if err := protect.ReadForeign(ctx, t.Session); err != nil {
			return outcome{}, err
		}
		return t.iterate(ctx, queried)
	})
}

// runFrom is run with another first iteration. After an error it releases the lease, unless it is lost.
func (t *invocation) runFrom(ctx context.Context, iterate func(ctx context.Context, queried bool) (outcome, error)) (err error) {
	for queried := false; err == nil; iterate = t.iterate {
		var out outcome
		if out, err = iterate(ctx, queried); err == nil && out.released {
			t.CrashPoint("released")
			if out.unsent != nil {
				return t.sendReleased(ctx, out)
			}
			return t.enqueueNext(ctx, out)
		}
		if queried = queried || out.queried; err == nil {
			err = t.beginIteration(ctx)
		}
	}
	if !errors.Is(err, lease.ErrFenced) {
		t.ReleaseAfterFailure(ctx)
	}
	return err
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
	t.State = rules.WithoutChecks(t.Rules.BindWindow(next))
	return nil
}

// iterate queries the chain once and does the due work. If the lease was not released, another
// iteration follows. queried reports that an iteration before this one queried the chain.
func (t *invocation) iterate(ctx context.Context, queried bool) (out outcome, err error) {
	queue := t.Kind.MaySign() && rules.IsQueueHeadDue(t.State, t.State.DatabaseTime().Add(t.Rules.PollSlack()))
	q, ok := t.Rules.NextQuery(t.State, t.Kind, t.Chain)
	if !ok && (t.Kind != txmanager.KindConfirm || queried || len(q.HashesAt) == 0) {
		return t.commit(ctx, txmanager.Commit{}, true)
	}
	v, j, err := t.observe(ctx, q)
	if err != nil {
		out, err = t.planRetry(ctx, q, err)
	} else {
		out, err = t.commitAndSend(ctx, v, j, queue)
	}
	out.queried = true
	return out, err
}

// observe queries the chain and evaluates the answer. Where headers could prove finality now, a
// second query includes them.
func (t *invocation) observe(ctx context.Context, q txmanager.ChainQuery) (txmanager.ChainObservation, rules.Evaluation, error) {
	v, err := quorum.Query(ctx, t.Session, q)
	if err != nil {
		return v, rules.Evaluation{}, err
	}
	j := t.Rules.Evaluate(t.State, q, v)
	if !j.NeedsHeaders {
		return v, j, nil
	}
	q = t.Rules.WithFinalityHeaders(q, v)
	further, err := quorum.Query(ctx, t.Session, q)
	switch {
	case errors.Is(err, lease.ErrFenced):
		return v, j, err
	case err != nil: // the first evaluation remains valid
		t.Log.WarnContext(ctx, "no headers to prove finality by", append(t.LogAttrs(), "error", err.Error())...)
		return v, j, nil
	}
	j = t.Rules.Evaluate(t.State, q, further)
	if j.NeedsHeaders {
		t.Log.WarnContext(ctx, "the node's headers do not link: they cannot prove finality", append(t.LogAttrs(), "node", further.Node)...)
	}
	return further, j, nil
}

// commitAndSend writes the evaluation and the plan for the queue, then signs the due versions. It sends
// them and the claimed broadcasts. queue reports that v includes the estimates for the queue.
func (t *invocation) commitAndSend(ctx context.Context, v txmanager.ChainObservation, j rules.Evaluation, queue bool) (outcome, error) {
	t.CrashPoint("looked")
	decided := t.resolveStuck(ctx, &j)
	p := t.planEvaluated(ctx, v, j, queue)
	w, err := t.commitOf(ctx, v, j, p)
	if err != nil {
		return outcome{}, err
	}
	switch {
	case t.State.Protected && !t.State.ForeignDatabase && rules.FinalBlockStatusIn(t.State, v) == rules.FinalBlockReorged:
		return t.commitAndResendFinals(ctx, v, w)
	case len(j.Rebroadcasts)+len(p.Allocations) == 0 && !t.hasSignaturesDue(j.After):
		return t.commit(ctx, w, true)
	}
	stored, err := t.commit(ctx, w, t.isFirstBroadcastAlone(j, p))
	if err != nil || stored.outdated && !stored.released {
		return stored, err
	}
	if len(p.Allocations) > 0 {
		t.CrashPoint("stored")
	}
	if stored.released {
		return t.withUnsent(stored, w.SignedIDs(), v.Head), nil
	}
	return t.signAndSend(ctx, v, j, w, decided)
}

// signAndSend signs the due versions, and sends their bytes and those that commit w has claimed.
func (t *invocation) signAndSend(ctx context.Context, v txmanager.ChainObservation, j rules.Evaluation, w txmanager.Commit, decided []string) (outcome, error) {
	if len(j.Rebroadcasts) > 0 {
		t.CrashPoint("claimed")
	}
	signed, out, err := t.signDueVersions(ctx, v, decided)
	if err != nil || out.outdated || out.released {
		return out, err
	}
	ids := slices.Concat(j.Rebroadcasts, w.SignedIDs(), signed)
	if len(ids) == 0 {
		return t.commit(ctx, txmanager.Commit{}, true)
	}
	return t.broadcast(ctx, ids, j.Rebroadcasts, v.Head)
}

// isFirstBroadcastAlone reports whether the window has room for one transaction, and the bytes of
// plan p are all that can be sent. No work is left until a node has them, so the commit that stores
// them also releases the lease.
func (t *invocation) isFirstBroadcastAlone(j rules.Evaluation, p rules.AllocationPlan) bool {
	return t.State.Window == 1 && len(j.Open()) == 0 && len(p.Allocations) == 1 && p.Allocations[0].Signed != nil
}

// withUnsent is out with the transaction whose bytes its commit stored. The stored row stays due, so
// that every chain query looks for the outcome. The poll for it is planned for the next block.
func (t *invocation) withUnsent(out outcome, ids []string, head txmanager.Header) outcome {
	if txs := openByID(t.State, ids); len(txs) == 1 { // none where the intent was not bound
		out.unsent = &unsent{txs[0], head}
		t.State.Open = []txmanager.Tx{t.Rules.PollForOutcome(txs[0], head, t.State.DatabaseTime())}
	}
	return out
}

// planEvaluated plans the nonces without bytes and the queue, with the state after evaluation j.
func (t *invocation) planEvaluated(ctx context.Context, v txmanager.ChainObservation, j rules.Evaluation, queue bool) rules.AllocationPlan {
	before := t.State
	t.State.Open, t.State.FinalHead = j.Open(), max(t.State.FinalHead, j.FinalHead)
	p := t.planUnsigned(ctx, v, queue)
	before.Lease = t.State.Lease // signing may have renewed the lease
	t.State = before
	return p
}

// commitOf is the commit of evaluation j and plan p.
func (t *invocation) commitOf(ctx context.Context, v txmanager.ChainObservation, j rules.Evaluation, p rules.AllocationPlan) (txmanager.Commit, error) {
	w := txmanager.Commit{Transitions: append(j.Transitions, p.Transitions...), Allocations: p.Allocations, Cursor: rules.EvaluateViolation(t.State, v)}
	for i := range w.Transitions {
		w.Transitions[i].Node = v.Node
	}
	if w.Cursor.FinalHead = j.FinalHead; len(j.Finals) > 0 {
		w.Cursor.FinalBlocks = t.Rules.RememberFinalBlocks(t.State.FinalBlocks, j.Finals)
	}
	if p.HeldBackChanged {
		w.Cursor.HeldBackSince = p.HeldBack
	}
	return w, protect.IdentifyConsumingTx(ctx, t.Session, w.Cursor.OpenIncident)
}

// commitAndResendFinals writes w, then sends the final transactions again that a reorg removed.
func (t *invocation) commitAndResendFinals(ctx context.Context, v txmanager.ChainObservation, w txmanager.Commit) (outcome, error) {
	if _, err := t.commit(ctx, w, false); err != nil {
		return outcome{}, err
	}
	if err := protect.ResendReorgedFinals(ctx, t.Session, v); err != nil {
		return outcome{}, err
	}
	return t.commit(ctx, txmanager.Commit{}, true)
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
func (t *invocation) planRetry(ctx context.Context, q txmanager.ChainQuery, cause error) (outcome, error) {
	if errors.Is(cause, lease.ErrFenced) {
		return outcome{}, cause
	}
	t.Log.WarnContext(ctx, "chain not reached", append(t.LogAttrs(), "error", cause.Error())...)
	var w txmanager.Commit
	again := t.State.DatabaseTime().Add(t.Rules.BlockTime)
	about := rules.CoversTx(q)
	for _, x := range t.State.Open {
		if len(x.Versions) > 0 && !about(x) {
			continue
		}
		w.Transitions = append(w.Transitions, txmanager.Transition{From: x.State, To: t.Rules.AfterNoAnswer(x, again)})
	}
	if t.Kind.MaySign() && rules.IsQueueHeadDue(t.State, again) {
		w.Transitions = append(w.Transitions, rules.WaitAtHead(t.State, txmanager.Wait{Cause: txmanager.WaitNodes, Reason: "the node is unavailable"}, again)...)
	}
	return t.commit(ctx, w, true)
}

// commit writes w, and ends expired intents with it. With last, the same transaction releases the
// lease, unless leaseEndAfter finds more to do now.
func (t *invocation) commit(ctx context.Context, w txmanager.Commit, last bool) (outcome, error) {
	w.Transitions = append(w.Transitions, rules.ExpireQueued(t.State, w.Cursor)...)
	if last {
		w.LeaseEnd = t.leaseEndAfter(rules.AfterCommit(t.State, w))
	}
	if w.Empty() {
		return outcome{}, nil
	}
	written, err := t.Commit(ctx, w)
	if err != nil {
		return outcome{}, err
	}
	out := outcome{released: written.Released, outdated: written.Transitioned < len(w.Transitions) || w.LeaseEnd == txmanager.ReleaseAnyway}
	if written.Released {
		out.queued = written.Queued
		out.outdated = out.outdated || w.LeaseEnd == txmanager.ReleaseUnlessRerun && written.Suspended != t.State.Suspended
	}
	return out, nil
}

// leaseEndAfter decides how the lease ends with the last write of an iteration. It keeps the lease
// where this invocation can continue at once. For a due check at a new block it does so once in a
// row: where a query takes longer than a block, such a check is always due.
func (t *invocation) leaseEndAfter(after txmanager.SubmitterState) txmanager.LeaseEnd {
	if t.IsPastDeadline() {
		return txmanager.ReleaseAnyway
	}
	advance := t.Rules.PlanNextWork(after).AdvanceNow
	switch {
	case advance && t.Kind.MaySign():
		t.keptForBlock = false
		return txmanager.KeepLease
	case !advance && !t.keptForBlock && rules.IsBlockDue(after):
		t.keptForBlock = true
		return txmanager.KeepLease
	}
	return txmanager.ReleaseUnlessRerun
}

// enqueueNext enqueues the next task after the lease was released, under the token then in force.
// An advance does everything that is due, so a function that may sign needs no poll beside it. A
// function that may not sign also enqueues the poll, so that polling does not depend on the one
// function that may sign.
func (t *invocation) enqueueNext(ctx context.Context, out outcome) error {
	ctx = t.TaskContext(ctx)
	s, d := t.State.Submitter(), t.Rules.PlanNextWork(t.State)
	with := t.State
	with.QueueMore = with.QueueMore || out.queued > 0
	soon := t.Rules.PlanNextWork(with).AdvanceNow
	var err error
	switch {
	case d.AdvanceNow, out.outdated, soon && out.queued >= txmanager.AdvanceNowQueue:
		err = t.Tasks.EnqueueAdvance(ctx, s, t.State.Lease.Token)
	case soon:
		err = t.Tasks.EnqueueAdvanceAt(ctx, s, t.State.Lease.Token, t.Rules.PacedAt(d, t.State.DatabaseTime()))
	}
	if err != nil {
		return fmt.Errorf("enqueue advance for %s: %w", s, err)
	}
	if d.At.IsZero() || t.Kind.MaySign() && (d.AdvanceNow || out.outdated || soon) {
		return nil
	}
	// A poll that ran in this second may have used up its name. One named for the next second may
	// run slightly early by the database's clock. The polls of other submitters are due with the slack.
	at := d.At
	if next := t.State.DatabaseTime().Add(pollClockMargin).Truncate(time.Second).Add(time.Second); at.Before(next) {
		at = next.Add(t.Rules.BlockSlack())
	}
	if err := t.Tasks.EnqueuePoll(ctx, s, d.Kind, at); err != nil {
		return fmt.Errorf("enqueue %s for %s: %w", d.Kind, s, err)
	}
	return nil
}

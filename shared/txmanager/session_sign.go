package txmanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
)

// planUnsigned plans the allocated nonces without bytes, then the queue.
func (t *invocation) planUnsigned(ctx context.Context, v ChainObservation) allocationPlan {
	held := t.Rules.postponeBlocked(t.state)
	p := t.planQueue(ctx, v)
	p.transitions = append(held, p.transitions...)
	return p
}

// planQueue plans allocations for the head of the queue. An in-process signer signs for the
// expected nonces at once. Any other signer is asked only after the nonce is bound, because its
// signed bytes might be seen outside.
func (t *invocation) planQueue(ctx context.Context, v ChainObservation) allocationPlan {
	w := t.state
	if !t.queueQueried || len(w.Queue) == 0 || w.nextSlots().count == 0 {
		return allocationPlan{}
	}
	var p allocationPlan
	reason := allocationBlockedReason(w, w.Open, v)
	if seen := findViolation(w, v); reason == "" && seen != nil {
		reason = seen.Description
	}
	if reason != "" {
		p.transitions, p.waiting = w.waitAtHead(reason, t.Rules.afterBlocks(1, v.Head, w.now())), true
		return p
	}
	t.checkQueue(ctx)
	p = t.planServed(v)
	t.signAllocations(ctx, &p)
	return p
}

// signAllocations signs the allocations of p where the signer may sign before the nonce is bound.
// An intent that could not be signed, and all intents after it, stay in the queue.
func (t *invocation) signAllocations(ctx context.Context, p *allocationPlan) {
	signer, s := t.signer(), t.state.submitterOf()
	n := slices.IndexFunc(p.allocations, func(a Allocation) bool { return a.Tx.Handler != "" })
	switch {
	case !signer.InProcess(s):
		n = 0
	case n < 0:
		n = len(p.allocations)
	}
	signed, err := t.signInOrder(ctx, n, t.signParallelism(signer), func(ctx context.Context, i int) (Signed, error) { return signer.Sign(ctx, s, p.unsigned[i]) })
	for i := range signed {
		t.reached("signed")
		a := &p.allocations[i]
		a.Tx, a.Signed = withVersion(a.Tx, VersionOriginal, signed[i], t.state.now()), &signed[i]
	}
	if missing := len(signed); missing < n {
		if err != nil {
			x := t.state.queuedTx(p.allocations[missing].Tx)
			x.HeldBackSince, x.DeferredAt = nil, nil
			p.wait(x, t.logUnsigned(ctx, p.allocations[missing].Tx, err), t.state.now().Add(t.Rules.BlockTime))
		}
		p.allocations = p.allocations[:missing]
		return
	}
	for i := n; i < len(p.allocations); i++ {
		p.allocations[i].Tx.State, p.allocations[i].Tx.NextCheckAt = InFlight, nil
	}
}

// planServed plans the queue up to the first intent whose handler this process lacks. Its nonce
// would be bound and could not be used.
func (t *invocation) planServed(v ChainObservation) allocationPlan {
	w, estimates := t.state, estimatesByTx(t.state, t.chain, v.Estimates)
	first := slices.IndexFunc(w.Queue, func(x Tx) bool { return x.unprovedReason() == "" && t.worker.missingHandlerReason(x) != "" })
	if first < 0 {
		return t.Rules.planAllocations(w, t.chain, v, estimates)
	}
	unserved := w.Queue[first]
	w.Queue = w.Queue[:first]
	p := t.Rules.planAllocations(w, t.chain, v, estimates)
	if p.exhausted && !p.passedCallers[unserved.PresentCaller] {
		p.wait(unserved, t.worker.missingHandlerReason(unserved), w.now().Add(t.Rules.BlockTime))
	}
	return p
}

// signer is the signer that holds the submitter's key.
func (t *invocation) signer() Signer {
	if t.worker.SignerNamed == nil {
		return t.worker.Signer
	}
	return t.worker.SignerNamed(t.state.Signer)
}

// isSigningTimeOver reports whether the versions signed since began must be stored and sent before
// more are signed. The limit is signer.timeout, because a slow signer could use up the invocation
// and store nothing. It is also one block time, so that the bytes can enter the next block. The
// next iteration signs the rest.
func (t *invocation) isSigningTimeOver(began time.Time) bool {
	return time.Since(began) >= min(t.signTimeout(), t.Rules.BlockTime)
}

// signTimeout bounds one signature.
func (t *invocation) signTimeout() time.Duration {
	return cmp.Or(t.worker.Limits.SignTimeout, t.Timing.CallTimeout)
}

func (t *invocation) sign(ctx context.Context, tx Unsigned) (s Signed, err error) {
	err = t.callOutsideWithin(ctx, t.signTimeout(), func(ctx context.Context) error {
		s, err = t.signer().Sign(ctx, t.state.submitterOf(), tx)
		return err
	})
	return s, err
}

// logUnsigned logs why a signer gave no answer, and returns the text that a caller may read.
func (t *invocation) logUnsigned(ctx context.Context, x Tx, err error) string {
	t.Log.ErrorContext(ctx, "not signed", append(t.logAttrs(), "txId", x.ID, "error", err.Error())...)
	return "not signed: the signer gave no answer"
}

// signDueVersions signs the versions that are due, in nonce order, and stores them before they are
// used. A transaction that cannot be signed waits, and so do those above it.
func (t *invocation) signDueVersions(ctx context.Context, v ChainObservation) (ids []string, err error) {
	if !t.kind.MaySign() {
		return nil, nil
	}
	var w Commit
	t.checkOpen(ctx)
	answers, ok, err := t.callHandlers(ctx, v)
	if err != nil || !ok {
		return nil, err
	}
	jobs, moves := t.Rules.planSignatures(t.state.openBelow(t.decided), t.chain, v, answers)
	w.Transitions = moves
	for id, answer := range answers {
		if answer.stored && answer.failed == "" {
			ids = append(ids, id)
		}
	}
	signer := t.signer()
	signed, err := t.signInOrder(ctx, len(jobs), t.signParallelism(signer), func(ctx context.Context, i int) (Signed, error) {
		if jobs[i].signed != nil {
			return *jobs[i].signed, nil
		}
		return signer.Sign(ctx, t.state.submitterOf(), jobs[i].unsigned)
	})
	if errors.Is(err, lease.ErrFenced) {
		return nil, err
	}
	for i, s := range signed {
		job := jobs[i]
		w.Versions = append(w.Versions, Version{
			Tx: t.Rules.withBumpedVersion(withVersion(job.tx, job.kind, s, t.state.now()), job), From: job.tx.State, Kind: job.kind, CompletedAction: job.tx.RequestedAction, Signed: s,
			ExtraWei: job.extraWei,
		})
		ids = append(ids, job.tx.ID)
	}
	if err != nil {
		w.Transitions = append(w.Transitions, t.waitUnsigned(ctx, jobs[len(signed)], err))
	}
	if w.Empty() {
		return ids, nil
	}
	t.reached("version_signed")
	_, err = t.commit(ctx, w, false)
	t.reached("version_stored")
	return ids, err
}

// waitUnsigned plans a retry for the transaction of job, since the signer gave no answer.
func (t *invocation) waitUnsigned(ctx context.Context, job signingJob, err error) Transition {
	from := job.tx.State
	if job.tx.LastError = t.logUnsigned(ctx, job.tx, err); job.tx.needsHandlerCall() {
		job.tx.SubmitAttempts = 0 // the handler answered
	}
	if job.extraWei != nil { // meanwhile the present version is sent
		job.tx = t.Rules.bumpLater(job.tx, t.state.now())
	}
	return Transition{From: from, To: t.Rules.withNextCheck(job.tx, t.state.now().Add(t.Rules.BlockTime))}
}

// broadcast sends the stored bytes of the transactions ids, in nonce order, and records each
// answer of the node. The broadcasts of those in again were claimed as repeats.
func (t *invocation) broadcast(ctx context.Context, ids, again []string, head Header) (released bool, err error) {
	txs := t.state.openByID(ids)
	raws := make([][]byte, len(txs))
	for i, x := range txs {
		if raws[i] = x.Raw; len(x.Raw) == 0 { // the store omits bytes only where nothing is sent
			return false, fmt.Errorf("transaction %s is to be sent, and its bytes were not loaded", x.ID)
		}
	}
	t.reached("sending")
	began := time.Now()
	var results []SendResult
	err = t.callOutside(ctx, func(ctx context.Context) error {
		results = t.chain.Send(ctx, raws)
		return nil
	})
	if err != nil {
		return false, err
	}
	t.reached("sent")
	t.resolveNonceTooLow(ctx, txs, results)
	var w Commit
	now, before := t.state.now(), idSet(again)
	for i, x := range txs {
		res := results[i]
		t.logBroadcast(ctx, x, res)
		t.watchBroadcast(ctx, began, x, res, before[x.ID])
		w.Transitions = append(w.Transitions, Transition{From: x.State, To: t.Rules.afterBroadcast(x, res, head, now)})
	}
	return t.commit(ctx, w, true)
}

// resolveNonceTooLow queries the chain about transactions that were answered "nonce too low". Such
// an answer is a success only where the chain knows one of our versions. Our own record proves
// nothing: versions are stored before every send.
func (t *invocation) resolveNonceTooLow(ctx context.Context, txs []Tx, results []SendResult) {
	q := ChainQuery{Submitter: t.state.submitterOf()}
	for i, x := range txs {
		if results[i].Class == SendNonceTooLow {
			q.Receipts, q.Known = append(q.Receipts, x.Versions...), append(q.Known, x.Versions...)
		}
	}
	if len(q.Known) == 0 {
		return
	}
	v, err := t.query(ctx, q)
	for i, x := range txs {
		if err == nil && results[i].Class == SendNonceTooLow && isKnownToChain(x, v) {
			results[i].Class = SendAlreadyKnown
		}
	}
}

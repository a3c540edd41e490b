package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
)

// signInOrder requests n signatures in nonce order, at most atOnce at a time. It returns the
// results before the first missing one. The error says why that one is missing. It is nil if none
// is missing, or if the time for signing was over: the signed versions must be stored and sent
// first.
//
// The function sign is called by several goroutines. This goroutine renews the lease for all of
// them.
func (t *invocation) signInOrder(ctx context.Context, n, atOnce int, sign func(ctx context.Context, i int) (txmanager.Signed, error)) ([]txmanager.Signed, error) {
	all, errs := make([]txmanager.Signed, n), make([]error, n)
	var signing sync.WaitGroup
	var failed atomic.Bool
	slots := make(chan struct{}, max(atOnce, 1))
	began, asked := time.Now(), 0
	for ; asked < n; asked++ {
		slots <- struct{}{}
		if failed.Load() || asked > 0 && t.isSigningTimeOver(began) {
			break
		}
		if t.Timing.Lease.Short(t.State.Lease) {
			if errs[asked] = t.RenewLease(ctx); errs[asked] != nil {
				break
			}
		}
		call, cancel := t.State.Lease.CallContext(ctx, t.signTimeout())
		i := asked
		signing.Go(func() {
			defer func() { cancel(); <-slots }()
			if all[i], errs[i] = sign(call, i); errs[i] != nil {
				failed.Store(true)
			}
		})
	}
	signing.Wait()
	for i, err := range errs {
		if err != nil {
			return all[:i], err
		}
	}
	return all[:asked], nil
}

// signParallelism is how many signatures of s may be requested at once. A signer outside this
// process gets one request at a time.
func (t *invocation) signParallelism(s txmanager.Signer) int {
	if !s.InProcess(t.State.Submitter()) {
		return 1
	}
	return t.worker.Limits.SignParallel
}

// planUnsigned plans the allocated nonces without bytes. With queue, it then plans the queue.
func (t *invocation) planUnsigned(ctx context.Context, v txmanager.ChainObservation, queue bool) (p rules.AllocationPlan) {
	postponed := t.Rules.PostponeBlocked(t.State)
	if queue && len(t.State.Queue) > 0 && rules.NextSlots(t.State).Count > 0 {
		p = t.planQueue(ctx, v)
	}
	p.Transitions = append(postponed, p.Transitions...)
	return p
}

// planQueue plans allocations for the head of the queue. An in-process signer signs for the
// expected nonces at once. Any other signer is asked only after the nonce is bound, because its
// signed bytes might be seen outside.
func (t *invocation) planQueue(ctx context.Context, v txmanager.ChainObservation) rules.AllocationPlan {
	w := t.State
	var p rules.AllocationPlan
	if why := rules.AllocationBlocked(w, v); why.Reason != "" {
		p.Transitions = rules.WaitAtHead(w, why, t.Rules.AfterBlocks(1, v.Head, w.DatabaseTime()))
		return p
	}
	t.checkQueue(ctx)
	p = t.planServed(v)
	t.signAllocations(ctx, &p)
	return p
}

// signAllocations signs the allocations of p where the signer may sign before the nonce is bound.
// An intent that could not be signed, and all intents after it, stay in the queue.
func (t *invocation) signAllocations(ctx context.Context, p *rules.AllocationPlan) {
	signer, s := t.signer(), t.State.Submitter()
	n := slices.IndexFunc(p.Allocations, func(a txmanager.Allocation) bool { return a.Tx.Handler != "" })
	switch {
	case !signer.InProcess(s):
		n = 0
	case n < 0:
		n = len(p.Allocations)
	}
	signed, err := t.signInOrder(ctx, n, t.signParallelism(signer), func(ctx context.Context, i int) (txmanager.Signed, error) { return signer.Sign(ctx, s, p.Unsigned[i]) })
	for i := range signed {
		t.CrashPoint("signed")
		a := &p.Allocations[i]
		a.Tx, a.Signed = rules.WithVersion(a.Tx, txmanager.VersionOriginal, signed[i], t.State.DatabaseTime()), &signed[i]
	}
	if missing := len(signed); missing < n {
		if err != nil {
			asLoaded := func(x txmanager.Tx) bool { return x.ID == p.Allocations[missing].Tx.ID }
			x := t.State.Queue[slices.IndexFunc(t.State.Queue, asLoaded)]
			x.HeldBackSince, x.DeferredAt = nil, nil
			why := txmanager.Wait{Cause: txmanager.WaitSigner, Reason: t.logUnsigned(ctx, p.Allocations[missing].Tx, err)}
			p.Wait(x, why, t.State.DatabaseTime().Add(t.Rules.BlockTime))
		}
		p.Allocations = p.Allocations[:missing]
		return
	}
	for i := n; i < len(p.Allocations); i++ {
		p.Allocations[i].Tx.State, p.Allocations[i].Tx.NextCheckAt = txmanager.InFlight, nil
	}
}

// planServed plans the queue up to the first intent whose handler this process lacks. Its nonce
// would be bound and could not be used.
func (t *invocation) planServed(v txmanager.ChainObservation) rules.AllocationPlan {
	w, estimates := t.State, rules.EstimatesByTx(t.State, t.Chain, v.Estimates)
	first := slices.IndexFunc(w.Queue, func(x txmanager.Tx) bool { return x.UnprovedReason() == "" && t.worker.missingHandlerReason(x) != "" })
	if first < 0 {
		return t.Rules.PlanAllocations(w, t.Chain, v, estimates)
	}
	unserved := w.Queue[first]
	w.Queue = w.Queue[:first]
	p := t.Rules.PlanAllocations(w, t.Chain, v, estimates)
	if p.Exhausted && !p.PassedCallers[unserved.PresentCaller] {
		p.Wait(unserved, txmanager.Wait{Cause: txmanager.WaitHandler, Reason: t.worker.missingHandlerReason(unserved)}, w.DatabaseTime().Add(t.Rules.BlockTime))
	}
	return p
}

// signer is the signer that holds the submitter's key.
func (t *invocation) signer() txmanager.Signer {
	return t.worker.SignerNamed(t.State.Signer)
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

func (t *invocation) sign(ctx context.Context, tx txmanager.Unsigned) (s txmanager.Signed, err error) {
	err = t.CallOutsideWithin(ctx, t.signTimeout(), func(ctx context.Context) error {
		s, err = t.signer().Sign(ctx, t.State.Submitter(), tx)
		return err
	})
	return s, err
}

// logUnsigned logs why a signer gave no answer, and returns the text that a caller may read.
func (t *invocation) logUnsigned(ctx context.Context, x txmanager.Tx, err error) string {
	t.Log.ErrorContext(ctx, "not signed", append(t.LogAttrs(), "txId", x.ID, "error", err.Error())...)
	return "not signed: the signer gave no answer"
}

// signDueVersions signs the versions that are due, in nonce order, and stores them before they are
// used. A transaction that cannot be signed waits, and so do those above it.
//
// decided are the ids about which the StuckResolution decided now. The next iteration carries that
// out. The result is that of the last commit. It releases the lease where the window has room for one
// transaction, and its new version is all that can be sent.
func (t *invocation) signDueVersions(ctx context.Context, v txmanager.ChainObservation, decided []string) (ids []string, out outcome, err error) {
	if !t.Kind.MaySign() {
		return nil, out, nil
	}
	var w txmanager.Commit
	t.checkOpen(ctx)
	answer, outdated, err := t.callDueHandler(ctx, v)
	if out.outdated = outdated; err != nil || outdated && answer.TxID == "" {
		return nil, out, err
	}
	jobs, moves := t.Rules.PlanSignatures(rules.OpenBelow(t.State, decided), t.Chain, v, answer)
	if w.Transitions = moves; answer.Stored && answer.Failed == "" {
		ids = append(ids, answer.TxID)
	}
	signer := t.signer()
	signed, err := t.signInOrder(ctx, len(jobs), t.signParallelism(signer), func(ctx context.Context, i int) (txmanager.Signed, error) {
		if jobs[i].Signed != nil {
			return *jobs[i].Signed, nil
		}
		return signer.Sign(ctx, t.State.Submitter(), jobs[i].Unsigned)
	})
	if errors.Is(err, lease.ErrFenced) {
		return nil, out, err
	}
	for i, s := range signed {
		w.Versions = append(w.Versions, t.versionOf(jobs[i], s))
		ids = append(ids, jobs[i].Tx.ID)
	}
	if err != nil {
		w.Transitions = append(w.Transitions, t.waitUnsigned(ctx, jobs[len(signed)], err))
	}
	if w.Empty() {
		return ids, out, nil
	}
	t.CrashPoint("version_signed")
	out, err = t.commit(ctx, w, t.State.Window == 1 && len(t.State.Open) == 1 && len(w.Versions) == 1)
	t.CrashPoint("version_stored")
	if out.released {
		out = t.withUnsent(out, ids, v.Head)
	}
	return ids, out, err
}

// versionOf is the signed version of a job, to be stored.
func (t *invocation) versionOf(job rules.SigningJob, s txmanager.Signed) txmanager.Version {
	to := t.Rules.WithBumpedVersion(rules.WithVersion(job.Tx, job.Kind, s, t.State.DatabaseTime()), job)
	return txmanager.Version{Tx: to, From: job.Tx.State, Kind: job.Kind, CompletedAction: job.Tx.RequestedAction, Signed: s, ExtraWei: job.ExtraWei}
}

// waitUnsigned plans a retry for the transaction of job, since the signer gave no answer.
func (t *invocation) waitUnsigned(ctx context.Context, job rules.SigningJob, err error) txmanager.Transition {
	from := job.Tx.State
	if job.Tx.Explain(txmanager.WaitSigner, t.logUnsigned(ctx, job.Tx, err)); job.Tx.Phase() == txmanager.AwaitingHandler {
		job.Tx.SubmitAttempts = 0 // the handler answered
	}
	if job.ExtraWei != nil { // meanwhile the present version is sent
		job.Tx = t.Rules.BumpLater(job.Tx, t.State.DatabaseTime())
	}
	return txmanager.Transition{From: from, To: t.Rules.WithNextCheck(job.Tx, t.State.DatabaseTime().Add(t.Rules.BlockTime))}
}

// broadcast sends the stored bytes of the transactions ids, in nonce order, and records each
// answer of the node. The broadcasts of those in again were claimed as repeats.
func (t *invocation) broadcast(ctx context.Context, ids, again []string, head txmanager.Header) (out outcome, err error) {
	txs := openByID(t.State, ids)
	results, err := t.send(ctx, txs, again)
	if err != nil {
		return out, err
	}
	var w txmanager.Commit
	now := t.State.DatabaseTime()
	for i, x := range txs {
		w.Transitions = append(w.Transitions, t.outcomeOf(x, results[i], head, now))
	}
	return t.commit(ctx, w, true)
}

// outcomeOf records a broadcast of x.
func (t *invocation) outcomeOf(x txmanager.Tx, res txmanager.SendResult, head txmanager.Header, now time.Time) txmanager.Transition {
	return txmanager.Transition{From: x.State, To: t.Rules.AfterBroadcast(x, res, head, now), Answers: res.Answers}
}

// send sends the stored bytes of txs and reports each answer of the node to the log and the watcher.
func (t *invocation) send(ctx context.Context, txs []txmanager.Tx, again []string) (results []txmanager.SendResult, err error) {
	raws := make([][]byte, len(txs))
	for i, x := range txs {
		if raws[i] = x.Raw; len(x.Raw) == 0 { // the store omits bytes only where nothing is sent
			return nil, fmt.Errorf("transaction %s is to be sent, and its bytes were not loaded", x.ID)
		}
	}
	t.CrashPoint("sending")
	began := time.Now()
	results, err = session.Outside(ctx, t.Session, func(ctx context.Context) ([]txmanager.SendResult, error) { return t.Chain.Send(ctx, raws), nil })
	if err != nil {
		return nil, err
	}
	t.CrashPoint("sent")
	for i, res := range results { // before a class is resolved
		if res.Answers == nil {
			results[i].Answers = []txmanager.NodeAnswer{{Node: res.Node, Class: res.Class}}
		}
	}
	t.resolveNonceTooLow(ctx, txs, results)
	before := rules.SetOf(again)
	for i, x := range txs {
		t.LogBroadcast(ctx, x, results[i])
		t.WatchBroadcast(ctx, began, x, results[i], before[x.ID])
	}
	return results, nil
}

// resolveNonceTooLow queries the chain about transactions that were answered "nonce too low". Such
// an answer is a success only where the chain knows one of our versions. Our own record proves
// nothing: versions are stored before every send.
func (t *invocation) resolveNonceTooLow(ctx context.Context, txs []txmanager.Tx, results []txmanager.SendResult) {
	q := txmanager.ChainQuery{Submitter: t.State.Submitter()}
	for i, x := range txs {
		if results[i].Class == txmanager.SendNonceTooLow {
			q.Receipts, q.Known = append(q.Receipts, x.Versions...), append(q.Known, x.Versions...)
		}
	}
	if len(q.Known) == 0 {
		return
	}
	v, err := t.Query(ctx, q)
	for i, x := range txs {
		if err == nil && results[i].Class == txmanager.SendNonceTooLow && rules.IsKnownToChain(x, v) {
			results[i].Class = txmanager.SendAlreadyKnown
		}
	}
}

// openByID lists the open transactions with these ids, by nonce.
func openByID(w txmanager.SubmitterState, ids []string) []txmanager.Tx {
	picked := rules.SetOf(ids)
	return slices.DeleteFunc(slices.Clone(w.Open), func(t txmanager.Tx) bool { return !picked[t.ID] })
}

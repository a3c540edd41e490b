// Package protect reads the foreign transactions of a PROTECT incident and carries out an operator's
// release. Nothing ends an incident but a release whose statements the chain proves.
package protect

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
	"github.com/fencepost/fencepost/shared/txmanager/quorum"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
)

// Release ends the incident under the lease, and enqueues an advance. With [txmanager.Resync], an intent whose nonce was consumed ends FAILED/DISPLACED and is never sent at another nonce. Each
// nonce that the chain consumed beyond the cursor gets a DISPLACED row. Above them, placeholders
// may fill the nonces for which a lost database may have signed: see [txmanager.Filling].
func Release(ctx context.Context, w *session.Service, s txmanager.Submitter, l txmanager.ReleaseRequest) (out txmanager.ReleaseResult, err error) {
	held, err := w.OpenWaiting(ctx, s)
	if err != nil {
		return out, err
	}
	w.CrashPoint("release.taken")
	t := incident{Session: held}
	t.ForOperator = true
	defer func() {
		if err != nil {
			t.ReleaseAfterFailure(ctx)
			err = errors.Join(err, t.Tasks.EnqueueAdvance(context.WithoutCancel(ctx), s, t.State.Lease.Token+1)) // the release may have overridden the rerun flag
		}
	}()
	switch {
	case t.State.ForeignDatabase:
		return out, txmanager.ErrDatabaseNotAccepted
	case t.State.Incident != l.Incident || l.Incident == 0:
		return out, txmanager.ErrIncidentClosed
	}
	wr := txmanager.Commit{Transitions: resumeProtected(t.State), LeaseEnd: txmanager.ReleaseAnyway}
	wr.Cursor = txmanager.CursorChange{ClearSuspected: true, CloseIncident: &l}
	if wr.Cursor.FinalBlocks, l.ReorgedFinals, err = t.recheckFinalBlocks(ctx); err != nil {
		return out, err
	}
	lost, err := t.Store.LostNonces(ctx, s)
	if err != nil {
		return out, err
	}
	l.Change = lost.Change
	if l.Mode == txmanager.Resync {
		wr.Transitions, out, err = t.planResync(ctx, &l, lost)
	} else {
		out.NextNonce, err = t.State.NextNonce, t.checkResume(ctx, l, lost)
	}
	if out.ReorgedFinals = l.ReorgedFinals; err != nil {
		return out, err
	}
	if l.Mode == txmanager.Resync && l.DryRun {
		t.ReleaseAfterFailure(ctx)
		return out, w.Tasks.EnqueueAdvance(ctx, s, t.State.Lease.Token+1)
	}
	done, err := t.Commit(ctx, wr)
	if err != nil {
		return out, fmt.Errorf("release: %w", err)
	}
	w.CrashPoint("release.written")
	return out, w.Tasks.EnqueueAdvance(ctx, s, done.Token)
}

// resumeProtected takes transactions out of state PROTECT. They are polled as before and sent
// again at once, since the state of their bytes is unknown.
func resumeProtected(w txmanager.SubmitterState) []txmanager.Transition {
	var moves []txmanager.Transition
	for _, t := range w.Open {
		if t.State == txmanager.Protect {
			t.Explain("", "")
			t.State, t.Sub, t.NextCheckAt, t.NextResubmitAt = txmanager.Tracking, txmanager.Pending, &w.Now, &w.Now
			moves = append(moves, txmanager.Transition{From: txmanager.Protect, To: t})
		}
	}
	return moves
}

// planResync proves the loss that the operator accepts. One node's count at its finalized block
// must be the accepted one, and a quorum must agree. A nonce below it is lost if no version of its
// open transaction has a receipt.
func (t *incident) planResync(ctx context.Context, l *txmanager.ReleaseRequest, bytes txmanager.LostNonces) ([]txmanager.Transition, txmanager.ReleaseResult, error) {
	q := txmanager.ChainQuery{Submitter: t.State.Submitter(), Account: true, FinalCount: true}
	for _, x := range t.State.Open {
		q.Receipts = append(q.Receipts, x.Versions...)
	}
	v, err := t.Query(ctx, q)
	if err != nil {
		return nil, txmanager.ReleaseResult{}, fmt.Errorf("query the final count: %w", err)
	}
	if v.FinalCount == nil || *v.FinalCount != l.Count || l.Count < t.State.LowestOpenNonce() {
		return nil, txmanager.ReleaseResult{}, txmanager.FinalCountError{Accepted: l.Count, Next: t.State.NextNonce, Final: v.FinalCount}
	}
	what := fmt.Sprintf("the account's final count is %d, and none of its versions has a receipt", l.Count)
	if err := quorum.Require(ctx, t.Session, q, v, what, agreesOnLoss(t.State, v, l.Count)); err != nil {
		return nil, txmanager.ReleaseResult{}, err
	}
	moves, lost := displaceLost(t.State, v, l.Count)
	for n := t.State.NextNonce; n < l.Count; n++ {
		lost = append(lost, n)
	}
	moves, named, err := t.nameLostNonces(ctx, l, v, moves, evidence{lost: lost, payer: bytes.Payer})
	if err != nil {
		return nil, txmanager.ReleaseResult{}, err
	}
	out := txmanager.ReleaseResult{Displaced: lost, NextNonce: max(t.State.NextNonce, l.Count), Named: named}
	if err := t.planFill(l, v, bytes); err != nil {
		return nil, txmanager.ReleaseResult{}, err
	}
	if out.Filling = l.Filling; out.Filling != nil {
		out.NextNonce = max(out.NextNonce, out.Filling.Below)
	}
	return moves, out, nil
}

// checkUntouched proves, if the release requires it, that the account sent no transaction unknown
// here. A quorum of nodes must report the next nonce here as both of its counts, mined and
// pending.
func (t *incident) checkUntouched(ctx context.Context, l txmanager.ReleaseRequest) error {
	if !l.Untouched {
		return nil
	}
	next := t.State.NextNonce
	q := txmanager.ChainQuery{Submitter: t.State.Submitter(), Account: true}
	v, err := t.Query(ctx, q)
	if err != nil {
		return fmt.Errorf("query the counts: %w", err)
	}
	at := func(o txmanager.ChainObservation) bool {
		return o.Account.LatestCount == next && o.Account.PendingCount == next
	}
	if !at(v) {
		return txmanager.AccountUsedError{Latest: v.Account.LatestCount, Pending: v.Account.PendingCount, Next: next}
	}
	return quorum.Require(ctx, t.Session, q, v, fmt.Sprintf("the account's counts are %d", next), func(o txmanager.ChainObservation) quorum.Vote {
		if at(o) {
			return quorum.Agrees
		}
		return quorum.Disagrees
	})
}

// agreesOnLoss votes on whether the final count is the same, and no version of a lost transaction
// has a receipt. A node with a lower final count abstains.
func agreesOnLoss(w txmanager.SubmitterState, v txmanager.ChainObservation, count uint64) func(txmanager.ChainObservation) quorum.Vote {
	return func(o txmanager.ChainObservation) quorum.Vote {
		for _, t := range w.Open {
			if _, answer := rules.FindReceipt(t, o); *t.Nonce < count && rules.HasNoReceipt(t, v) && answer != txmanager.AnswerNotFound {
				if answer == txmanager.AnswerFound {
					return quorum.Disagrees
				}
				return quorum.Abstains
			}
		}
		switch {
		case o.FinalCount == nil || *o.FinalCount < count:
			return quorum.Abstains
		case *o.FinalCount == count:
			return quorum.Agrees
		}
		return quorum.Disagrees
	}
}

// displaceLost ends the transactions that lost their nonces below count, and resumes the others.
func displaceLost(w txmanager.SubmitterState, v txmanager.ChainObservation, count uint64) (moves []txmanager.Transition, lost []uint64) {
	for _, m := range resumeProtected(w) {
		if *m.To.Nonce >= count || !rules.HasNoReceipt(m.To, v) {
			moves = append(moves, m)
		}
	}
	for _, t := range w.Open {
		if *t.Nonce >= count || !rules.HasNoReceipt(t, v) {
			continue
		}
		from := t.State
		t.State, t.Sub, t.NextCheckAt, t.NextResubmitAt = txmanager.Failed, txmanager.Displaced, nil, nil
		t.Receipt, t.Confirmations = nil, nil // of a block that was reorged out
		t.Explain("", "a foreign transaction took its nonce, and an operator accepted the loss")
		moves = append(moves, txmanager.Transition{From: from, To: t})
		lost = append(lost, *t.Nonce)
	}
	return moves, lost
}

// checkResume returns why the incident must not end by resume.
func (t *incident) checkResume(ctx context.Context, l txmanager.ReleaseRequest, lost txmanager.LostNonces) error {
	if len(l.ReorgedFinals) > 0 {
		return txmanager.FinalsMissingError{Missing: l.ReorgedFinals}
	}
	var required error
	if lost.Payer && lost.Restored {
		required = txmanager.ErrFillRequired
	}
	return errors.Join(required, t.checkUntouched(ctx, l))
}

// planFill plans the placeholders of a resync, for each unbound nonce. The range ends at the final
// count plus the largest window that the submitter can have had. A payer needs them after each
// restore; for another submitter the operator requests them.
func (t *incident) planFill(l *txmanager.ReleaseRequest, v txmanager.ChainObservation, lost txmanager.LostNonces) error {
	if l.Fill == nil && !(lost.Payer && lost.Restored) {
		return nil
	}
	window := lost.Window
	if l.Fill != nil {
		window = *l.Fill
	}
	switch {
	case lost.Retired:
		return txmanager.FillError{Why: "is not possible: the submitter is retired and signs nothing, so a lost database has signed nothing for it either; leave it out"}
	case window < lost.Window:
		return txmanager.FillError{Why: fmt.Sprintf("is %d: want at least %d, the widest window that the account has had", window, lost.Window)}
	case v.Account.LatestCount > l.Count:
		return fmt.Errorf("%w: the chain's count is %d, and at its finalized block %d", txmanager.ErrNotYetFinal, v.Account.LatestCount, l.Count)
	}
	f := txmanager.Filling{From: max(t.State.NextNonce, l.Count), Below: max(l.Count+window, lost.StatedBelow)}
	held := slices.DeleteFunc(slices.Clone(t.State.Open), func(x txmanager.Tx) bool { return *x.Nonce < l.Count })
	balance := gas.BalanceOf(v, held)
	for n := f.From; n < f.Below; n++ {
		if short := balance.Reserve(gas.CompleteFees(txmanager.Call{}, gas.PlaceholderGas, v.Account)); short != nil {
			return txmanager.FillError{Why: fmt.Sprintf("has placeholders for %d nonces, from %d on, and the balance of the account pays for %d at today's price: fund it first", f.Below-f.From, f.From, n-f.From)}
		}
	}
	l.Filling = &f
	return nil
}

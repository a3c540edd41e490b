package rules

import (
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// Evaluation is the result of evaluating the open transactions against one observation.
type Evaluation struct {
	After        []txmanager.Tx         // every open transaction after the evaluation, terminal ones included
	Transitions  []txmanager.Transition // the transactions that change
	Rebroadcasts []string               // the ids of those whose rebroadcasts are claimed by their transitions
	FinalHead    uint64                 // the highest block of those that became final
	Finals       []txmanager.Header     // the blocks of those that became final
	EndedBy      []txmanager.Receipt    // the receipts that made them final
	Reorged      []txmanager.Header     // of each list of confirming blocks that is replaced or removed, the lowest block that is no longer canonical
	NeedsHeaders bool                   // a further query with headers could prove finality now
}

// Open lists the transactions that still hold an open nonce, by nonce.
func (j Evaluation) Open() []txmanager.Tx {
	return slices.DeleteFunc(slices.Clone(j.After), func(t txmanager.Tx) bool { return t.State.Terminal() })
}

// evaluator evaluates the open transactions, from the lowest nonce up.
type evaluator struct {
	Rules
	Evaluation
	w      txmanager.SubmitterState
	v      txmanager.ChainObservation
	covers func(txmanager.Tx) bool // the query asked about it
	now    time.Time

	opened  *txmanager.Violation // opens PROTECT now; nil: none does
	mayEnd  bool                 // every lower transaction has ended
	blocker *txmanager.Tx        // the lowest that no node holds and that is not sent now: none above it is sent
}

// Evaluate applies observation v to each open transaction of w. A transaction ends only after
// every lower nonce has ended, because finals are written in nonce order.
func (r Rules) Evaluate(w txmanager.SubmitterState, q txmanager.ChainQuery, v txmanager.ChainObservation) Evaluation {
	e := evaluator{Rules: r, w: w, v: v, covers: CoversTx(q), now: w.DatabaseTime()}
	e.opened = EvaluateViolation(w, v).OpenIncident
	e.mayEnd = FinalBlockStatusIn(w, v) == finalBlockCanonical
	for i, before := range w.Open {
		t := before
		if e.covers(t) {
			t = e.evaluateTx(t)
			t = r.Inspection.Inspect(t, w.LowestOpenNonce(), v, e.now)
		}
		t, sent, completed := e.decide(i, t)
		if sent {
			e.Rebroadcasts = append(e.Rebroadcasts, t.ID)
		}
		if e.blocker == nil && !sent && !t.IsAcknowledged() && !t.State.Terminal() {
			e.blocker = &t
		}
		e.mayEnd = e.mayEnd && t.State.Terminal()
		e.After = append(e.After, t)
		if !sameRow(before, t) {
			e.Transitions = append(e.Transitions, txmanager.Transition{From: before.State, To: t, CompletedAction: completed})
		}
	}
	return e.Evaluation
}

// decide moves t, the open transaction at i: into or out of PROTECT, or to STUCK. Or it claims the
// broadcast of t. sent reports a claimed broadcast. completed is the action that it carries out.
func (e *evaluator) decide(i int, t txmanager.Tx) (_ txmanager.Tx, sent bool, completed txmanager.Action) {
	switch phase := t.Phase(); {
	case i == 0 && e.isConsumed(t):
		t.Explain("", e.opened.Description)
		t.State, t.Sub = txmanager.Protect, ""
		return e.WithNextCheck(t, e.now.Add(e.BlockTime)), false, ""
	case phase == txmanager.AwaitingRelease && e.isFreed(t):
		t.Explain("", "")
		t.State, t.Sub = txmanager.Tracking, txmanager.Pending
		return t, false, ""
	case e.canRebroadcastOnRequest(t):
		return ClaimBroadcast(restartBroadcasts(t, e.now), e.now), true, txmanager.ActionRebroadcast
	case phase == txmanager.AwaitingDecision && len(t.Versions) == 0 && t.IsDueBy(e.now): // it has no version to query
		return e.WithNextCheck(t, e.now.Add(StuckPollBlocks*e.BlockTime)), false, ""
	case e.isPastStuckAfter(t, e.now):
		return e.markStuck(t, e.now, "no receipt since the first broadcast for stuck.after"), false, ""
	case e.isProtected() || !e.isSendDue(t):
		return t, false, ""
	}
	t, sent = e.rebroadcast(t)
	return t, sent, ""
}

// isProtected reports whether nothing may be sent: PROTECT is open, or opens now.
func (e *evaluator) isProtected() bool { return e.w.Protected || e.opened != nil }

// canRebroadcastOnRequest reports whether t's requested rebroadcast is claimed now.
func (e *evaluator) canRebroadcastOnRequest(t txmanager.Tx) bool {
	return t.Phase() == txmanager.AwaitingAction && t.RequestedAction == txmanager.ActionRebroadcast && len(t.Versions) > 0 && !e.isProtected() && e.blocker == nil
}

// isConsumed reports whether PROTECT opens now because a foreign transaction consumed t's nonce.
func (e *evaluator) isConsumed(t txmanager.Tx) bool {
	return e.opened != nil && e.opened.ExpectedNonce == *t.Nonce && len(t.Versions) > 0 && t.State.MayBecome(txmanager.Protect)
}

// isSendDue reports whether t's last version should be sent now. That includes a due gas bump that
// cannot be made, since a receipt may exist.
func (e *evaluator) isSendDue(t txmanager.Tx) bool {
	return e.IsRebroadcastDue(t, e.now) || e.IsBumpUnknown(t, e.v, e.now) && e.isResubmitDue(t, e.now)
}

// rebroadcast claims t's due rebroadcast, unless a lower nonce blocks it or it had too many.
func (e *evaluator) rebroadcast(t txmanager.Tx) (_ txmanager.Tx, sent bool) {
	switch {
	case e.blocker != nil:
		return e.blockedBy(t, *e.blocker, e.now), false
	case t.SubmitAttempts >= e.MaxResubmits:
		return e.markStuck(t, e.now, "resubmit.maxAttempts is used up without a receipt"), false
	}
	return ClaimBroadcast(t, e.now), true
}

// isFreed reports whether a reorg freed t's nonce after PROTECT opened. A head below the block that
// opened it may predate that.
func (e *evaluator) isFreed(t txmanager.Tx) bool {
	before := e.w.Evidence != nil && e.v.Head.Number < e.w.Evidence.Block
	return !before && e.v.Account.LatestCount <= *t.Nonce
}

// CoversTx returns a predicate that reports whether the query asks about a transaction.
func CoversTx(q txmanager.ChainQuery) func(txmanager.Tx) bool {
	asked := SetOf(q.Receipts)
	return func(t txmanager.Tx) bool { return len(t.Versions) > 0 && asked[t.Versions[0]] }
}

func (e *evaluator) evaluateTx(t txmanager.Tx) txmanager.Tx {
	before := t
	t.LastCheckAt = &e.now
	if t.Cause == txmanager.WaitNodes {
		t.Explain("", t.LastError)
	}
	found, answer := FindReceipt(t, e.v)
	switch answer {
	case txmanager.AnswerFound:
		return e.applyReceipt(t, found)
	case txmanager.AnswerNotFound:
		if t = e.applyNoReceipt(t); e.isAlreadyPlanned(before, t, e.now) {
			return before
		}
		return t
	}
	return e.WithNextCheck(t, e.now.Add(e.BlockTime))
}

// isAlreadyPlanned reports whether an early check changes nothing worth a write: its next check
// would be planned for about the time already planned.
func (r Rules) isAlreadyPlanned(before, t txmanager.Tx, now time.Time) bool {
	return t.Sub == before.Sub && t.Cause == before.Cause && before.NextCheckAt != nil && before.NextCheckAt.After(now) &&
		t.NextCheckAt.Sub(*before.NextCheckAt).Abs() <= min(r.PollSlack(), 250*time.Millisecond)
}

// FindReceipt finds the receipt of any version. AnswerNotFound means that the node has none for
// every version.
func FindReceipt(t txmanager.Tx, v txmanager.ChainObservation) (txmanager.Receipt, txmanager.Answer) {
	answer := txmanager.AnswerNotFound
	for _, h := range t.Versions {
		switch a := v.Receipts[h]; a.Answer {
		case txmanager.AnswerFound:
			return a.Receipt, txmanager.AnswerFound
		case txmanager.AnswerUnknown:
			answer = txmanager.AnswerUnknown
		}
	}
	return txmanager.Receipt{}, answer
}

// applyReceipt stores the receipt, counts the blocks on top of it, and ends the transaction where
// they make it final.
func (e *evaluator) applyReceipt(t txmanager.Tx, rec txmanager.Receipt) txmanager.Tx {
	mayEnd := e.mayEnd && t.State != txmanager.Protect
	list, whole, consistent := confirmingBlocks(rec, e.v, e.HeaderDepth())
	if !consistent {
		return e.WithNextCheck(t, e.now.Add(e.BlockTime/2))
	}
	kept := t.Confirmations
	if t.Receipt != nil && len(kept) == 0 {
		kept = []txmanager.Header{blockOf(*t.Receipt)}
	}
	switch {
	case t.Receipt == nil, IsPrefix(kept, list):
		t.Confirmations = list
	case IsPrefix(list, kept): // a lower head, or fewer headers: no change
	case e.v.Head.Number <= firstDifference(kept, list).Number, e.v.Disputes.Counts: // the node is not past the fork, or the other nodes disagree: no change
		return e.WithNextCheck(t, e.now.Add(e.BlockTime/2))
	default:
		e.Reorged = append(e.Reorged, firstDifference(kept, list))
		t.Confirmations = list // the new list replaces the old one as a whole
	}
	t.Explain("", "")
	t.State, t.Sub, t.Receipt = txmanager.Tracking, txmanager.Included, &rec
	switch {
	case !e.isFinal(rec, list, whole, e.v):
		e.NeedsHeaders = e.NeedsHeaders || (!whole && e.mayBeFinal(rec, e.v))
		return e.WithNextCheck(t, e.expectedFinalAt(rec, e.v, e.now))
	case !mayEnd || e.v.Disputes.KeepsOpen(rec.BlockNumber):
		return e.WithNextCheck(t, e.now.Add(e.BlockTime/2))
	}
	e.FinalHead = max(e.FinalHead, rec.BlockNumber)
	e.Finals, e.EndedBy = append(e.Finals, list[0]), append(e.EndedBy, rec)
	return endedByReceipt(t, rec)
}

// endedByReceipt is t, ended by the receipt of its mined version.
func endedByReceipt(t txmanager.Tx, rec txmanager.Receipt) txmanager.Tx {
	t.State, t.Sub, t.RequestedAction = txmanager.Confirmed, "", ""
	switch {
	case t.IsPlaceholder(rec.TxHash) && t.Recorded != nil:
		return EndRecorded(t, *t.Recorded)
	case t.IsPlaceholder(rec.TxHash):
		t.State, t.Sub = txmanager.Failed, txmanager.Placeholder
		t.Explain("", "a placeholder consumed the nonce")
	case !rec.Succeeded:
		t.State, t.Sub = txmanager.Failed, txmanager.Reverted
		t.Explain("", "the transaction was mined and reverted")
	}
	t.NextCheckAt, t.NextResubmitAt = nil, nil
	return t
}

// confirmingBlocks lists the receipt's block and up to depth blocks on top of it, from one
// observation. The result whole is true if the headers were part of the answer. The result
// consistent is true if they do not contradict the receipt.
func confirmingBlocks(rec txmanager.Receipt, v txmanager.ChainObservation, depth uint64) (list []txmanager.Header, whole, consistent bool) {
	at := slices.IndexFunc(v.Headers, func(h txmanager.Header) bool { return h.Number == rec.BlockNumber })
	if at < 0 {
		return []txmanager.Header{blockOf(rec)}, false, true
	}
	list = v.Headers[at:min(at+int(depth)+1, len(v.Headers))]
	return list, true, list[0].Hash == rec.BlockHash
}

// isFinal reports whether one observation proves the receipt final.
func (r Rules) isFinal(rec txmanager.Receipt, list []txmanager.Header, whole bool, v txmanager.ChainObservation) bool {
	if r.By == txmanager.ByConfirmations {
		return uint64(len(list)) > r.Confirmations
	}
	return whole && v.Tagged != nil && v.Tagged.Number >= rec.BlockNumber
}

// mayBeFinal reports whether a query with headers may prove finality now.
func (r Rules) mayBeFinal(rec txmanager.Receipt, v txmanager.ChainObservation) bool {
	if r.By == txmanager.ByConfirmations {
		return v.Head.Number >= rec.BlockNumber+r.Confirmations
	}
	return v.Tagged != nil && v.Tagged.Number >= rec.BlockNumber
}

// applyNoReceipt evaluates a transaction for which the node has no receipt. It changes nothing,
// unless the node shows another block at the receipt's height.
func (e *evaluator) applyNoReceipt(t txmanager.Tx) txmanager.Tx {
	if t.Receipt != nil && isBlockReplaced(*t.Receipt, e.v) {
		e.Reorged = append(e.Reorged, blockOf(*t.Receipt))
		t.State, t.Sub, t.Receipt, t.Confirmations = txmanager.Tracking, txmanager.Pending, nil, nil
		t.Explain("", "a reorg removed the block it was in")
		t.FirstSubmitAt, t.SubmitAttempts, t.NextResubmitAt, t.NextBumpAt = &e.now, 0, &e.now, nil // broadcasts and gas bumps start again
	}
	switch {
	case t.Phase() == txmanager.AwaitingDecision:
		return e.WithNextCheck(t, e.now.Add(StuckPollBlocks*e.BlockTime))
	case t.State == txmanager.Submitted && e.v.Known[t.Hash()] == txmanager.AnswerFound: // its broadcast has no recorded outcome
		return e.acknowledge(t, e.v.Head, e.now)
	}
	return e.WithNextCheck(t, e.AfterBlocks(1, e.v.Head, e.now))
}

// blockOf is the block of a receipt.
func blockOf(rec txmanager.Receipt) txmanager.Header {
	return txmanager.Header{Number: rec.BlockNumber, Hash: rec.BlockHash}
}

// isBlockReplaced reports whether the node's chain is past the receipt's height and has another
// block there.
func isBlockReplaced(rec txmanager.Receipt, v txmanager.ChainObservation) bool {
	return !v.Disputes.Counts && v.Head.Number > rec.BlockNumber && slices.ContainsFunc(v.Headers, func(h txmanager.Header) bool {
		return h.Number == rec.BlockNumber && h.Hash != rec.BlockHash
	})
}

func (r Rules) WithNextCheck(t txmanager.Tx, at time.Time) txmanager.Tx {
	t.NextCheckAt = &at
	return t
}

// IsRebroadcastDue reports whether the bytes of t should be sent now. Reasons are a claimed
// broadcast without a recorded outcome, a reorg, or an interval without a receipt. A due gas bump
// is sent instead, unless a bound blocks it.
func (r Rules) IsRebroadcastDue(t txmanager.Tx, now time.Time) bool {
	return r.isResubmitDue(t, now) && (!r.IsBumpDue(t, now) || r.IsBumpBlocked(t))
}

// isResubmitDue is IsRebroadcastDue without regard to gas bumps.
func (r Rules) isResubmitDue(t txmanager.Tx, now time.Time) bool {
	due := t.NextResubmitAt == nil || !now.Before(*t.NextResubmitAt)
	again := t.State == txmanager.Tracking && t.Sub == txmanager.Pending && (r.Resubmit || t.SubmitAttempts == 0 || t.IsBroadcastClaimed())
	return due && (t.State == txmanager.Submitted || again) && !t.IsExecutedElsewhere()
}

// blockedBy is t, with its next rebroadcast after that of lower.
func (r Rules) blockedBy(t, lower txmanager.Tx, now time.Time) txmanager.Tx {
	next := now.Add(r.ResubmitEvery)
	if at := lower.NextResubmitAt; at != nil && at.After(now) {
		next = *at
	}
	t.NextResubmitAt = &next
	if t.State == txmanager.Tracking && !r.Resubmit { // its broadcast may have been claimed and never made
		t.State, t.Sub = txmanager.Submitted, ""
	}
	return t
}

// ClaimBroadcast records a further broadcast before it is made. It stays due until its outcome is
// recorded.
func ClaimBroadcast(t txmanager.Tx, now time.Time) txmanager.Tx {
	t.SubmitAttempts++
	t.LastSubmitAt, t.NextResubmitAt = &now, &now
	return t
}

// restartBroadcasts is t with its count of broadcasts and its STUCK timer reset.
func restartBroadcasts(t txmanager.Tx, now time.Time) txmanager.Tx {
	t.Explain("", "")
	t.FirstSubmitAt, t.SubmitAttempts, t.NextBumpAt, t.RequestedAction = &now, 0, nil, ""
	if t.State == txmanager.Stuck {
		t.State = txmanager.Submitted
	}
	return t
}

// hasWaitedTooLong reports whether t has waited for [Rules.StuckAfter] since its first broadcast, or call of its
// handler.
func (r Rules) hasWaitedTooLong(t txmanager.Tx, now time.Time) bool {
	return t.FirstSubmitAt != nil && now.Sub(*t.FirstSubmitAt) >= r.StuckAfter
}

// isPastStuckAfter reports whether t has waited for a receipt for [Rules.StuckAfter].
func (r Rules) isPastStuckAfter(t txmanager.Tx, now time.Time) bool {
	waiting := t.State == txmanager.Submitted || (t.State == txmanager.Tracking && t.Sub == txmanager.Pending)
	return waiting && r.hasWaitedTooLong(t, now)
}

// markStuck stops broadcasts of t until an operator or code decides. It is still polled.
func (r Rules) markStuck(t txmanager.Tx, now time.Time, reason string) txmanager.Tx {
	t.Explain(txmanager.WaitForOperator, reason)
	t.State, t.Sub = txmanager.Stuck, ""
	return r.WithNextCheck(t, now.Add(StuckPollBlocks*r.BlockTime))
}

// StuckPollBlocks is the number of blocks between two checks of a STUCK transaction.
const StuckPollBlocks = 10

// firstDifference is the lowest block of kept that list lacks at its height. A list that
// begins with another block differs from kept's first block on.
func firstDifference(kept, list []txmanager.Header) txmanager.Header {
	for i, h := range kept {
		if i >= len(list) || list[i].Hash != h.Hash {
			return h
		}
	}
	return kept[len(kept)-1]
}

// IsPrefix reports whether list b begins with list a.
func IsPrefix(a, b []txmanager.Header) bool {
	return len(a) <= len(b) && slices.EqualFunc(a, b[:len(a)], func(x, y txmanager.Header) bool { return x.Hash == y.Hash })
}

// sameRow reports whether no stored column changed, so that no write is needed.
func sameRow(a, b txmanager.Tx) bool {
	return a.State == b.State && a.Sub == b.Sub && a.Cause == b.Cause && a.LastCheckAt == b.LastCheckAt &&
		a.NextCheckAt == b.NextCheckAt && a.NextResubmitAt == b.NextResubmitAt &&
		a.Diagnosis == b.Diagnosis
}

// EndRecorded is t, ended by the named foreign transaction.
func EndRecorded(t txmanager.Tx, r txmanager.Recorded) txmanager.Tx {
	t.Recorded, t.Receipt, t.Confirmations = &r, r.Receipt, nil
	t.State, t.Sub, t.RequestedAction, t.NextCheckAt, t.NextResubmitAt = txmanager.Confirmed, txmanager.RecordedOnChain, "", nil, nil
	if r.Receipt == nil {
		t.Explain("", txmanager.StatedAsExecuted)
		return t
	}
	t.Explain("", "a release recorded that a foreign transaction was this request")
	t.Confirmations = []txmanager.Header{blockOf(*r.Receipt)}
	if !r.Receipt.Succeeded {
		t.State, t.Sub = txmanager.Failed, txmanager.Reverted
		t.Explain("", "a release recorded that a foreign transaction was this request, and it reverted")
	}
	return t
}

package txmanager

import (
	"slices"
	"time"
)

// evaluation is the result of evaluating the open transactions against one observation.
type evaluation struct {
	after        []Tx         // every open transaction after the evaluation, terminal ones included
	transitions  []Transition // the transactions that change
	rebroadcasts []int        // indexes into after: their rebroadcasts are claimed by their transitions
	finalHead    uint64       // the highest block of those that became final
	finals       []Header     // the blocks of those that became final
	endedBy      []Receipt    // the receipts that made them final
	newForks     int          // confirmation lists replaced and receipts removed
	needsHeaders bool         // a further query with headers could prove finality now
}

// open lists the transactions that still hold an open nonce, by nonce.
func (j evaluation) open() []Tx {
	return slices.DeleteFunc(slices.Clone(j.after), func(t Tx) bool { return t.State.Terminal() })
}

// claimedIDs are the ids of the claimed rebroadcasts.
func (j evaluation) claimedIDs() []string {
	var ids []string
	for _, i := range j.rebroadcasts {
		ids = append(ids, j.after[i].ID)
	}
	return ids
}

// evaluate applies observation v to each open transaction of w. A transaction ends only after
// every lower nonce has ended, because finals are written in nonce order.
func (r Rules) evaluate(w SubmitterState, q ChainQuery, v ChainObservation) evaluation {
	var j evaluation
	now, lowerAreFinal := w.now(), finalBlockStatusIn(w, v) == finalBlockCanonical // otherwise no transaction ends
	opened := evaluateViolation(w, v).OpenIncident
	protected := w.Protected || opened != nil
	about := q.coversTx()
	var held *Tx // the lowest that no node holds and that is not sent now: no transaction above it is sent
	for i, before := range w.Open {
		t := before
		if about(t) {
			t = r.Inspector.Inspect(r.evaluateTx(&j, t, v, now, lowerAreFinal && t.State != Protect), w.lowestOpenNonce(), v, now)
		}
		served := Action("")
		switch {
		case i == 0 && opened != nil && opened.ExpectedNonce == *t.Nonce && len(t.Versions) > 0 && t.State.MayBecome(Protect):
			t.State, t.Sub, t.LastError = Protect, "", opened.Description
			t = r.withNextCheck(t, now.Add(r.BlockTime))
		case t.State == Protect && v.Account.LatestCount <= *t.Nonce && !isBeforeIncident(w, v): // a reorg freed the nonce
			t.State, t.Sub, t.LastError = Tracking, Pending, ""
		case !protected && held == nil && t.RequestedAction == ActionRebroadcast && t.hasOpenAction() && len(t.Versions) > 0:
			served = t.RequestedAction
			t = claimBroadcast(restartBroadcasts(t, now), now)
			j.rebroadcasts = append(j.rebroadcasts, i)
		case t.State == Stuck && len(t.Versions) == 0 && t.RequestedAction == "" && t.isDueBy(now): // it has no version to query
			t = r.withNextCheck(t, now.Add(stuckPollBlocks*r.BlockTime))
		case r.isPastStuckAfter(t, now):
			t = r.markStuck(t, now, "no receipt since the first broadcast for stuck.after")
		case protected || !r.isRebroadcastDue(t, now) && !(r.isBumpUnknown(t, v, now) && r.isResubmitDue(t, now)):
		case held != nil:
			t = r.blockedBy(t, *held, now)
		case t.SubmitAttempts >= r.MaxResubmits:
			t = r.markStuck(t, now, "resubmit.maxAttempts is used up without a receipt")
		default:
			t = claimBroadcast(t, now)
			j.rebroadcasts = append(j.rebroadcasts, i)
		}
		if goes := len(j.rebroadcasts) > 0 && j.rebroadcasts[len(j.rebroadcasts)-1] == i; held == nil && !goes && !t.isAcknowledged() && !t.State.Terminal() {
			held = &t
		}
		lowerAreFinal = lowerAreFinal && t.State.Terminal()
		j.after = append(j.after, t)
		if !sameRow(before, t) {
			j.transitions = append(j.transitions, Transition{From: before.State, To: t, CompletedAction: served})
		}
	}
	return j
}

// isBeforeIncident reports whether v's head is below the block that opened the incident. v may
// then predate what opened it.
func isBeforeIncident(w SubmitterState, v ChainObservation) bool {
	return w.Evidence != nil && v.Head.Number < w.Evidence.Block
}

// coversTx returns a predicate that reports whether the query asks about a transaction.
func (q ChainQuery) coversTx() func(Tx) bool {
	asked := make(map[Hash]bool, len(q.Receipts))
	for _, h := range q.Receipts {
		asked[h] = true
	}
	return func(t Tx) bool { return len(t.Versions) > 0 && asked[t.Versions[0]] }
}

func (r Rules) evaluateTx(j *evaluation, t Tx, v ChainObservation, now time.Time, mayEnd bool) Tx {
	before := t
	t.LastCheckAt = &now
	found, answer := findReceipt(t, v)
	switch answer {
	case AnswerFound:
		return r.applyReceipt(j, t, found, v, now, mayEnd)
	case AnswerNotFound:
		if t = r.applyNoReceipt(j, t, v, now); r.isAlreadyPlanned(before, t, now) {
			return before
		}
		return t
	}
	return r.withNextCheck(t, now.Add(r.BlockTime))
}

// isAlreadyPlanned reports whether an early check changes nothing worth a write: its next check
// would be planned for about the time already planned.
func (r Rules) isAlreadyPlanned(before, t Tx, now time.Time) bool {
	return t.Sub == before.Sub && before.NextCheckAt != nil && before.NextCheckAt.After(now) &&
		t.NextCheckAt.Sub(*before.NextCheckAt).Abs() <= min(r.pollSlack(), 250*time.Millisecond)
}

// findReceipt finds the receipt of any version. AnswerNotFound means that the node has none for
// every version.
func findReceipt(t Tx, v ChainObservation) (Receipt, Answer) {
	answer := AnswerNotFound
	for _, h := range t.Versions {
		switch a := v.Receipts[h]; a.Answer {
		case AnswerFound:
			return a.Receipt, AnswerFound
		case AnswerUnknown:
			answer = AnswerUnknown
		}
	}
	return Receipt{}, answer
}

// applyReceipt stores the receipt, counts the blocks on top of it, and ends the transaction where
// they make it final.
func (r Rules) applyReceipt(j *evaluation, t Tx, rec Receipt, v ChainObservation, now time.Time, mayEnd bool) Tx {
	list, whole, consistent := confirmingBlocks(rec, v, r.headerDepth())
	if !consistent {
		return r.withNextCheck(t, now.Add(r.BlockTime/2))
	}
	switch kept := t.Confirmations; {
	case t.Receipt == nil, isPrefix(kept, list):
		t.Confirmations = list
	case isPrefix(list, kept): // a lower head, or fewer headers: no change
	case v.Head.Number <= firstDifference(kept, list), v.Disputes.Counts: // the node is not past the fork, or the other nodes disagree: no change
		return r.withNextCheck(t, now.Add(r.BlockTime/2))
	default:
		j.newForks++
		t.Confirmations = list // the new list replaces the old one as a whole
	}
	t.State, t.Sub, t.LastError, t.Receipt = Tracking, Included, "", &rec
	switch {
	case !r.isFinal(rec, list, whole, v):
		j.needsHeaders = j.needsHeaders || (!whole && r.mayBeFinal(rec, v))
		return r.withNextCheck(t, r.expectedFinalAt(rec, v, now))
	case !mayEnd || v.Disputes.keepsOpen(rec.BlockNumber):
		return r.withNextCheck(t, now.Add(r.BlockTime/2))
	}
	j.finalHead = max(j.finalHead, rec.BlockNumber)
	j.finals, j.endedBy = append(j.finals, list[0]), append(j.endedBy, rec)
	return endedByReceipt(t, rec)
}

// endedByReceipt is t, ended by the receipt of its mined version.
func endedByReceipt(t Tx, rec Receipt) Tx {
	t.State, t.Sub, t.RequestedAction = Confirmed, "", ""
	switch {
	case t.isPlaceholder(rec.TxHash) && t.Recorded != nil:
		return endRecorded(t, *t.Recorded)
	case t.isPlaceholder(rec.TxHash):
		t.State, t.Sub = Failed, Placeholder
		t.LastError = "a placeholder consumed the nonce"
	case !rec.Succeeded:
		t.State, t.Sub = Failed, Reverted
		t.LastError = "the transaction was mined and reverted"
	}
	t.NextCheckAt, t.NextResubmitAt = nil, nil
	return t
}

// confirmingBlocks lists the receipt's block and up to depth blocks on top of it, from one
// observation. The result whole is true if the headers were part of the answer. The result
// consistent is true if they do not contradict the receipt.
func confirmingBlocks(rec Receipt, v ChainObservation, depth uint64) (list []Header, whole, consistent bool) {
	at := slices.IndexFunc(v.Headers, func(h Header) bool { return h.Number == rec.BlockNumber })
	if at < 0 {
		return []Header{{Number: rec.BlockNumber, Hash: rec.BlockHash}}, false, true
	}
	list = v.Headers[at:min(at+int(depth)+1, len(v.Headers))]
	return list, true, list[0].Hash == rec.BlockHash
}

// isFinal reports whether one observation proves the receipt final.
func (r Rules) isFinal(rec Receipt, list []Header, whole bool, v ChainObservation) bool {
	if r.Finality == ByConfirmations {
		return uint64(len(list)) > r.Confirmations
	}
	return whole && v.Tagged != nil && v.Tagged.Number >= rec.BlockNumber
}

// mayBeFinal reports whether a query with headers may prove finality now.
func (r Rules) mayBeFinal(rec Receipt, v ChainObservation) bool {
	if r.Finality == ByConfirmations {
		return v.Head.Number >= rec.BlockNumber+r.Confirmations
	}
	return v.Tagged != nil && v.Tagged.Number >= rec.BlockNumber
}

// expectedFinalAt estimates when the receipt becomes final, and is at most [Rules.WatchEvery] from
// now.
func (r Rules) expectedFinalAt(rec Receipt, v ChainObservation, now time.Time) time.Time {
	missing := uint64(1)
	if last := rec.BlockNumber + r.Confirmations; r.Finality == ByConfirmations && last > v.Head.Number {
		missing = last - v.Head.Number
	}
	at := r.afterBlocks(missing, v.Head, now)
	if latest := now.Add(r.WatchEvery); r.WatchEvery > 0 && at.After(latest) {
		return latest
	}
	return at
}

// applyNoReceipt evaluates a transaction for which the node has no receipt. It changes nothing,
// unless the node shows another block at the receipt's height.
func (r Rules) applyNoReceipt(j *evaluation, t Tx, v ChainObservation, now time.Time) Tx {
	if t.Receipt != nil && isBlockReplaced(*t.Receipt, v) {
		j.newForks++
		t.State, t.Sub, t.Receipt, t.Confirmations = Tracking, Pending, nil, nil
		t.LastError = "a reorg removed the block it was in"
		t.FirstSubmitAt, t.SubmitAttempts, t.NextResubmitAt, t.NextBumpAt = &now, 0, &now, nil // broadcasts and gas bumps start again
	}
	if t.State == Stuck && !t.hasOpenAction() {
		return r.withNextCheck(t, now.Add(stuckPollBlocks*r.BlockTime))
	}
	return r.withNextCheck(t, r.afterBlocks(1, v.Head, now))
}

// isBlockReplaced reports whether the node's chain is past the receipt's height and has another
// block there.
func isBlockReplaced(rec Receipt, v ChainObservation) bool {
	return !v.Disputes.Counts && v.Head.Number > rec.BlockNumber && slices.ContainsFunc(v.Headers, func(h Header) bool {
		return h.Number == rec.BlockNumber && h.Hash != rec.BlockHash
	})
}

func (r Rules) withNextCheck(t Tx, at time.Time) Tx {
	t.NextCheckAt = &at
	return t
}

// isRebroadcastDue reports whether the bytes of t should be sent now. Reasons are a claimed
// broadcast without a recorded outcome, a reorg, or an interval without a receipt. A due gas bump
// is sent instead, unless a bound blocks it.
func (r Rules) isRebroadcastDue(t Tx, now time.Time) bool {
	return r.isResubmitDue(t, now) && (!r.isBumpDue(t, now) || r.isBumpBlocked(t))
}

// isResubmitDue is isRebroadcastDue without regard to gas bumps.
func (r Rules) isResubmitDue(t Tx, now time.Time) bool {
	if t.isExecutedElsewhere() {
		return false
	}
	due := t.NextResubmitAt == nil || !now.Before(*t.NextResubmitAt)
	switch {
	case t.State == Submitted:
		return due
	case t.State == Tracking && t.Sub == Pending:
		return due && (r.Resubmit || t.SubmitAttempts == 0 || t.isBroadcastClaimed())
	}
	return false
}

// blockedBy is t, with its next rebroadcast after that of lower.
func (r Rules) blockedBy(t, lower Tx, now time.Time) Tx {
	next := now.Add(r.ResubmitEvery)
	if at := lower.NextResubmitAt; at != nil && at.After(now) {
		next = *at
	}
	t.NextResubmitAt = &next
	if t.State == Tracking && !r.Resubmit { // its broadcast may have been claimed and never made
		t.State, t.Sub = Submitted, ""
	}
	return t
}

// isBroadcastClaimed reports whether a broadcast was claimed and its outcome is not recorded.
func (t Tx) isBroadcastClaimed() bool {
	return t.LastSubmitAt != nil && t.NextResubmitAt != nil && t.NextResubmitAt.Equal(*t.LastSubmitAt)
}

// claimBroadcast records a further broadcast before it is made. It stays due until its outcome is
// recorded.
func claimBroadcast(t Tx, now time.Time) Tx {
	t.SubmitAttempts++
	t.LastSubmitAt, t.NextResubmitAt = &now, &now
	return t
}

// restartBroadcasts is t with its count of broadcasts and its STUCK timer reset.
func restartBroadcasts(t Tx, now time.Time) Tx {
	t.FirstSubmitAt, t.SubmitAttempts, t.NextBumpAt, t.RequestedAction, t.LastError = &now, 0, nil, "", ""
	if t.State == Stuck {
		t.State = Submitted
	}
	return t
}

// isBroadcasting reports whether a node holds t, or t is sent in this iteration.
func (t Tx) isBroadcasting() bool {
	return t.isAcknowledged() || (t.State == Submitted && t.isBroadcastClaimed())
}

// hasWaitedTooLong reports whether a handler's transaction has waited for [Rules.StuckAfter].
func (r Rules) hasWaitedTooLong(t Tx, now time.Time) bool {
	return t.FirstSubmitAt != nil && now.Sub(*t.FirstSubmitAt) >= r.StuckAfter
}

// isPastStuckAfter reports whether t has waited for a receipt for [Rules.StuckAfter].
func (r Rules) isPastStuckAfter(t Tx, now time.Time) bool {
	waiting := t.State == Submitted || (t.State == Tracking && t.Sub == Pending)
	return waiting && t.FirstSubmitAt != nil && now.Sub(*t.FirstSubmitAt) >= r.StuckAfter
}

// markStuck stops broadcasts of t until an operator or code decides. It is still polled.
func (r Rules) markStuck(t Tx, now time.Time, reason string) Tx {
	t.State, t.Sub, t.LastError = Stuck, "", reason
	return r.withNextCheck(t, now.Add(stuckPollBlocks*r.BlockTime))
}

// stuckPollBlocks is the number of blocks between two checks of a STUCK transaction.
const stuckPollBlocks = 10

// firstDifference is the lowest height at which list lacks the block that kept has. A list that
// begins with another block differs from kept's first block on.
func firstDifference(kept, list []Header) uint64 {
	for i, h := range kept {
		if i >= len(list) || list[i].Hash != h.Hash {
			return h.Number
		}
	}
	return kept[len(kept)-1].Number
}

// isPrefix reports whether list b begins with list a.
func isPrefix(a, b []Header) bool {
	return len(a) <= len(b) && slices.EqualFunc(a, b[:len(a)], func(x, y Header) bool { return x.Hash == y.Hash })
}

// sameRow reports whether no stored column changed, so that no write is needed.
func sameRow(a, b Tx) bool {
	return a.State == b.State && a.Sub == b.Sub && a.LastCheckAt == b.LastCheckAt &&
		a.NextCheckAt == b.NextCheckAt && a.NextResubmitAt == b.NextResubmitAt &&
		a.Diagnosis == b.Diagnosis
}

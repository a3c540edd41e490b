package txmanager

import (
	"slices"
	"time"
)

// evaluation is what one view of the chain makes of the unsettled transactions.
type evaluation struct {
	after        []Tx         // every unsettled transaction as it becomes, final ones included
	transitions  []Transition // those that change
	rebroadcasts []int        // indexes into after: to be sent again, claimed by their move
	finalHead    uint64       // highest block of what became final
	finals       []Header     // the blocks of what became final
	endedBy      []Receipt    // by which each of it did
	newForks     int          // lists of confirmations replaced, receipts removed
	needsHeaders bool         // receipts whose finality another look could prove now
}

// open is what still holds a nonce after the judgement, by nonce.
func (j evaluation) open() []Tx {
	return slices.DeleteFunc(slices.Clone(j.after), func(t Tx) bool { return t.State.Terminal() })
}

// claimedIDs names what is to be sent again.
func (j evaluation) claimedIDs() []string {
	var ids []string
	for _, i := range j.rebroadcasts {
		ids = append(ids, j.after[i].ID)
	}
	return ids
}

// evaluate decides what v says of each unsettled transaction of w. A transaction
// ends only after every lower nonce has: finals are written in nonce order.
func (r Rules) evaluate(w SubmitterState, q ChainQuery, v ChainObservation) evaluation {
	var j evaluation
	now, lowerAreFinal := w.now(), finalBlockStatusIn(w, v) == finalBlockCanonical // else nothing ends
	opened := evaluateViolation(w, v).OpenIncident
	protected := w.Protected || opened != nil
	about := q.coversTx()
	var held *Tx // the lowest that no node holds and that is not sent now: nothing above it goes ahead of it
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
		case t.State == Stuck && len(t.Versions) == 0 && t.RequestedAction == "" && t.isDueBy(now): // nothing to look for
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

// isBeforeIncident says that v is of a block below the one that opened the episode: what it
// does not show may not have been yet.
func isBeforeIncident(w SubmitterState, v ChainObservation) bool {
	return w.Evidence != nil && v.Head.Number < w.Evidence.Block
}

// coversTx says of a transaction whether the look was about it at all.
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

// isAlreadyPlanned says that a look which came early changes nothing worth a write: the
// next one is planned already for when it would be now.
func (r Rules) isAlreadyPlanned(before, t Tx, now time.Time) bool {
	return t.Sub == before.Sub && before.NextCheckAt != nil && before.NextCheckAt.After(now) &&
		t.NextCheckAt.Sub(*before.NextCheckAt).Abs() <= min(r.pollSlack(), 250*time.Millisecond)
}

// findReceipt looks for the receipt of any version. Not found is the answer only
// if the node said so of every one.
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

// applyReceipt takes a receipt up, counts the blocks on top of it, and ends the
// transaction where they make it final.
func (r Rules) applyReceipt(j *evaluation, t Tx, rec Receipt, v ChainObservation, now time.Time, mayEnd bool) Tx {
	list, whole, consistent := confirmingBlocks(rec, v, r.headerDepth())
	if !consistent {
		return r.withNextCheck(t, now.Add(r.BlockTime/2))
	}
	switch kept := t.Confirmations; {
	case t.Receipt == nil, isPrefix(kept, list):
		t.Confirmations = list
	case isPrefix(list, kept): // a lower head, or a shorter look: no news
	case v.Head.Number <= firstDifference(kept, list), v.Disputes.Counts: // not past it, or alone with it: no news either
		return r.withNextCheck(t, now.Add(r.BlockTime/2))
	default:
		j.newForks++
		t.Confirmations = list // replaced, never spliced
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

// endedByReceipt is t with its mined version as its end.
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

// confirmingBlocks lists the receipt's block and up to depth blocks on top of it, out
// of one node's one answer. whole says that the headers were part of the
// answer; consistent, that they do not contradict the receipt.
func confirmingBlocks(rec Receipt, v ChainObservation, depth uint64) (list []Header, whole, consistent bool) {
	at := slices.IndexFunc(v.Headers, func(h Header) bool { return h.Number == rec.BlockNumber })
	if at < 0 {
		return []Header{{Number: rec.BlockNumber, Hash: rec.BlockHash}}, false, true
	}
	list = v.Headers[at:min(at+int(depth)+1, len(v.Headers))]
	return list, true, list[0].Hash == rec.BlockHash
}

// isFinal says whether one answer of one node proves the receipt final.
func (r Rules) isFinal(rec Receipt, list []Header, whole bool, v ChainObservation) bool {
	if r.Finality == ByConfirmations {
		return uint64(len(list)) > r.Confirmations
	}
	return whole && v.Tagged != nil && v.Tagged.Number >= rec.BlockNumber
}

// mayBeFinal says whether a look that brings the headers may prove it now.
func (r Rules) mayBeFinal(rec Receipt, v ChainObservation) bool {
	if r.Finality == ByConfirmations {
		return v.Head.Number >= rec.BlockNumber+r.Confirmations
	}
	return v.Tagged != nil && v.Tagged.Number >= rec.BlockNumber
}

// expectedFinalAt guesses when the receipt will be final; but nothing tracked goes
// unwatched for longer than [Rules.WatchEvery].
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

// applyNoReceipt judges a transaction of which the node has no receipt. That is no
// news, unless the node shows another block where the receipt's block was.
func (r Rules) applyNoReceipt(j *evaluation, t Tx, v ChainObservation, now time.Time) Tx {
	if t.Receipt != nil && isBlockReplaced(*t.Receipt, v) {
		j.newForks++
		t.State, t.Sub, t.Receipt, t.Confirmations = Tracking, Pending, nil, nil
		t.LastError = "a reorg removed the block it was in"
		t.FirstSubmitAt, t.SubmitAttempts, t.NextResubmitAt, t.NextBumpAt = &now, 0, &now, nil // its life on chain begins anew
	}
	if t.State == Stuck && !t.hasOpenAction() {
		return r.withNextCheck(t, now.Add(stuckPollBlocks*r.BlockTime))
	}
	return r.withNextCheck(t, r.afterBlocks(1, v.Head, now))
}

// isBlockReplaced says that the node's chain is past the receipt's height and has
// another block there.
func isBlockReplaced(rec Receipt, v ChainObservation) bool {
	return !v.Disputes.Counts && v.Head.Number > rec.BlockNumber && slices.ContainsFunc(v.Headers, func(h Header) bool {
		return h.Number == rec.BlockNumber && h.Hash != rec.BlockHash
	})
}

func (r Rules) withNextCheck(t Tx, at time.Time) Tx {
	t.NextCheckAt = &at
	return t
}

// isRebroadcastDue says whether the bytes of t should go out now: their broadcast was
// claimed and its outcome never recorded, a reorg removed it, or no receipt came
// for an interval. Where a higher bid goes out in their place they should not.
func (r Rules) isRebroadcastDue(t Tx, now time.Time) bool {
	return r.isResubmitDue(t, now) && (!r.isBumpDue(t, now) || r.isBumpHeld(t))
}

// isUnknownToNode is isRebroadcastDue, whatever is bid.
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

// blockedBy is t, not to be sent before lower is.
func (r Rules) blockedBy(t, lower Tx, now time.Time) Tx {
	next := now.Add(r.ResubmitEvery)
	if at := lower.NextResubmitAt; at != nil && at.After(now) {
		next = *at
	}
	t.NextResubmitAt = &next
	if t.State == Tracking && !r.Resubmit { // its broadcast may have been claimed, and never made
		t.State, t.Sub = Submitted, ""
	}
	return t
}

// isBroadcastClaimed says that a broadcast was written down and its outcome was not.
func (t Tx) isBroadcastClaimed() bool {
	return t.LastSubmitAt != nil && t.NextResubmitAt != nil && t.NextResubmitAt.Equal(*t.LastSubmitAt)
}

// claimBroadcast writes down a further broadcast before it is made. It is due at once
// until its outcome is recorded.
func claimBroadcast(t Tx, now time.Time) Tx {
	t.SubmitAttempts++
	t.LastSubmitAt, t.NextResubmitAt = &now, &now
	return t
}

// restartBroadcasts is t with all its attempts before it again.
func restartBroadcasts(t Tx, now time.Time) Tx {
	t.FirstSubmitAt, t.SubmitAttempts, t.NextBumpAt, t.RequestedAction, t.LastError = &now, 0, nil, "", ""
	if t.State == Stuck {
		t.State = Submitted
	}
	return t
}

// isBroadcasting says that a node holds t, or that it goes to one in this round.
func (t Tx) isBroadcasting() bool {
	return t.isAcknowledged() || (t.State == Submitted && t.isBroadcastClaimed())
}

// hasWaitedTooLong says that what a handler made has waited for as long as it may.
func (r Rules) hasWaitedTooLong(t Tx, now time.Time) bool {
	return t.FirstSubmitAt != nil && now.Sub(*t.FirstSubmitAt) >= r.StuckAfter
}

// isPastStuckAfter says that t has waited for a receipt for as long as it may.
func (r Rules) isPastStuckAfter(t Tx, now time.Time) bool {
	waiting := t.State == Submitted || (t.State == Tracking && t.Sub == Pending)
	return waiting && t.FirstSubmitAt != nil && now.Sub(*t.FirstSubmitAt) >= r.StuckAfter
}

// markStuck gives up sending t until somebody decides. It goes on being watched.
func (r Rules) markStuck(t Tx, now time.Time, reason string) Tx {
	t.State, t.Sub, t.LastError = Stuck, "", reason
	return r.withNextCheck(t, now.Add(stuckPollBlocks*r.BlockTime))
}

// stuckPollBlocks is how many blocks apart the looks at a STUCK transaction are.
const stuckPollBlocks = 10

// firstDifference is the lowest height at which list does not have the block that
// kept has. A list that begins elsewhere differs from kept's first block on.
func firstDifference(kept, list []Header) uint64 {
	for i, h := range kept {
		if i >= len(list) || list[i].Hash != h.Hash {
			return h.Number
		}
	}
	return kept[len(kept)-1].Number
}

// isPrefix says that list b begins with list a.
func isPrefix(a, b []Header) bool {
	return len(a) <= len(b) && slices.EqualFunc(a, b[:len(a)], func(x, y Header) bool { return x.Hash == y.Hash })
}

// sameRow says that nothing changed that a row keeps, so that no write is owed.
func sameRow(a, b Tx) bool {
	return a.State == b.State && a.Sub == b.Sub && a.LastCheckAt == b.LastCheckAt &&
		a.NextCheckAt == b.NextCheckAt && a.NextResubmitAt == b.NextResubmitAt &&
		a.Diagnosis == b.Diagnosis
}

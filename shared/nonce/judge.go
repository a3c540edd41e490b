package nonce

import (
	"slices"
	"time"
)

// judgement is what one view of the chain makes of the unsettled transactions.
type judgement struct {
	after     []Tx      // every unsettled transaction as it becomes, final ones included
	moves     []Move    // those that change
	resend    []int     // indexes into after: to be sent again, claimed by their move
	finalHead uint64    // highest block of what became final
	finals    []Header  // the blocks of what became final
	endedBy   []Receipt // by which each of it did
	newForks  int       // lists of confirmations replaced, receipts removed
	lookAgain bool      // receipts whose finality another look could prove now
}

// unsettled is what still holds a nonce after the judgement, by nonce.
func (j judgement) unsettled() []Tx {
	return slices.DeleteFunc(slices.Clone(j.after), func(t Tx) bool { return t.State.Final() })
}

// claimed names what is to be sent again.
func (j judgement) claimed() []string {
	var ids []string
	for _, i := range j.resend {
		ids = append(ids, j.after[i].ID)
	}
	return ids
}

// judge decides what v says of each unsettled transaction of w. A transaction
// ends only after every lower nonce has: finals are written in nonce order.
func (r Rules) judge(w Work, q Look, v View) judgement {
	var j judgement
	now, lowerAreFinal := w.now(), stands(w, v) == finalsStand // else nothing ends
	opened := suspect(w, v).Protect
	protected := w.Protected || opened != nil
	about := q.about()
	var held *Tx // the lowest that no node holds and that is not sent now: nothing above it goes ahead of it
	for i, before := range w.Unsettled {
		t := before
		if about(t) {
			t = r.Inspector.Inspect(r.judgeTx(&j, t, v, now, lowerAreFinal && t.State != Protect), w.lowest(), v, now)
		}
		served := Order("")
		switch {
		case i == 0 && opened != nil && opened.ExpectedNonce == *t.Nonce && len(t.Versions) > 0 && t.State.May(Protect):
			t.State, t.Sub, t.LastError = Protect, "", opened.What
			t = r.checkNext(t, now.Add(r.BlockTime))
		case t.State == Protect && v.Account.LatestCount <= *t.Nonce && !beforeEpisode(w, v): // a reorg freed the nonce
			t.State, t.Sub, t.LastError = Tracking, Pending, ""
		case !protected && held == nil && t.Ordered == OrderRebroadcast && t.ordersOpen() && len(t.Versions) > 0:
			served = t.Ordered
			t = claim(rebroadcast(t, now), now)
			j.resend = append(j.resend, i)
		case t.State == Stuck && len(t.Versions) == 0 && t.Ordered == "" && t.dueBy(now): // nothing to look for
			t = r.checkNext(t, now.Add(stuckLooks*r.BlockTime))
		case r.tooOld(t, now):
			t = r.stuck(t, now, "no receipt since the first broadcast for stuck.after")
		case protected || !r.resendDue(t, now) && !(r.bumpUnknown(t, v, now) && r.unheardOf(t, now)):
		case held != nil:
			t = r.after(t, *held, now)
		case t.SubmitAttempts >= r.ResubmitMost:
			t = r.stuck(t, now, "resubmit.maxAttempts is used up without a receipt")
		default:
			t = claim(t, now)
			j.resend = append(j.resend, i)
		}
		if goes := len(j.resend) > 0 && j.resend[len(j.resend)-1] == i; held == nil && !goes && !t.acknowledged() && !t.State.Final() {
			held = &t
		}
		lowerAreFinal = lowerAreFinal && t.State.Final()
		j.after = append(j.after, t)
		if !sameRow(before, t) {
			j.moves = append(j.moves, Move{From: before.State, To: t, Served: served})
		}
	}
	return j
}

// beforeEpisode says that v is of a block below the one that opened the episode: what it
// does not show may not have been yet.
func beforeEpisode(w Work, v View) bool {
	return w.Evidence != nil && v.Head.Number < w.Evidence.Block
}

// about says of a transaction whether the look was about it at all.
func (q Look) about() func(Tx) bool {
	asked := make(map[Hash]bool, len(q.Receipts))
	for _, h := range q.Receipts {
		asked[h] = true
	}
	return func(t Tx) bool { return len(t.Versions) > 0 && asked[t.Versions[0]] }
}

func (r Rules) judgeTx(j *judgement, t Tx, v View, now time.Time, mayEnd bool) Tx {
	before := t
	t.LastCheckAt = &now
	found, answer := findReceipt(t, v)
	switch answer {
	case AnswerFound:
		return r.included(j, t, found, v, now, mayEnd)
	case AnswerNotFound:
		if t = r.missing(j, t, v, now); r.asPlanned(before, t, now) {
			return before
		}
		return t
	}
	return r.checkNext(t, now.Add(r.BlockTime))
}

// asPlanned says that a look which came early changes nothing worth a write: the
// next one is planned already for when it would be now.
func (r Rules) asPlanned(before, t Tx, now time.Time) bool {
	return t.Sub == before.Sub && before.NextCheckAt != nil && before.NextCheckAt.After(now) &&
		t.NextCheckAt.Sub(*before.NextCheckAt).Abs() <= min(r.slack(), 250*time.Millisecond)
}

// findReceipt looks for the receipt of any version. Not found is the answer only
// if the node said so of every one.
func findReceipt(t Tx, v View) (Receipt, Answer) {
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

// included takes a receipt up, counts the blocks on top of it, and ends the
// transaction where they make it final.
func (r Rules) included(j *judgement, t Tx, rec Receipt, v View, now time.Time, mayEnd bool) Tx {
	list, whole, consistent := confirming(rec, v, r.depth())
	if !consistent {
		return r.checkNext(t, now.Add(r.BlockTime/2))
	}
	switch kept := t.Confirmations; {
	case t.Receipt == nil, isPrefix(kept, list):
		t.Confirmations = list
	case isPrefix(list, kept): // a lower head, or a shorter look: no news
	case v.Head.Number <= firstOther(kept, list), v.Doubts.Signs: // not past it, or alone with it: no news either
		return r.checkNext(t, now.Add(r.BlockTime/2))
	default:
		j.newForks++
		t.Confirmations = list // replaced, never spliced
	}
	t.State, t.Sub, t.LastError, t.Receipt = Tracking, Included, "", &rec
	switch {
	case !r.isFinal(rec, list, whole, v):
		j.lookAgain = j.lookAgain || (!whole && r.couldBeFinal(rec, v))
		return r.checkNext(t, r.finalAt(rec, v, now))
	case !mayEnd || v.Doubts.keepOpen(rec.BlockNumber):
		return r.checkNext(t, now.Add(r.BlockTime/2))
	}
	j.finalHead = max(j.finalHead, rec.BlockNumber)
	j.finals, j.endedBy = append(j.finals, list[0]), append(j.endedBy, rec)
	return ended(t, rec)
}

// ended is t with its mined version as its end.
func ended(t Tx, rec Receipt) Tx {
	t.State, t.Sub, t.Ordered = Confirmed, "", ""
	switch {
	case t.isPlaceholder(rec.TxHash) && t.Recorded != nil:
		return recordedAs(t, *t.Recorded)
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

// confirming lists the receipt's block and up to depth blocks on top of it, out
// of one node's one answer. whole says that the headers were part of the
// answer; consistent, that they do not contradict the receipt.
func confirming(rec Receipt, v View, depth uint64) (list []Header, whole, consistent bool) {
	at := slices.IndexFunc(v.Headers, func(h Header) bool { return h.Number == rec.BlockNumber })
	if at < 0 {
		return []Header{{Number: rec.BlockNumber, Hash: rec.BlockHash}}, false, true
	}
	list = v.Headers[at:min(at+int(depth)+1, len(v.Headers))]
	return list, true, list[0].Hash == rec.BlockHash
}

// isFinal says whether one answer of one node proves the receipt final.
func (r Rules) isFinal(rec Receipt, list []Header, whole bool, v View) bool {
	if r.Finality == ByConfirmations {
		return uint64(len(list)) > r.Confirmations
	}
	return whole && v.Tagged != nil && v.Tagged.Number >= rec.BlockNumber
}

// couldBeFinal says whether a look that brings the headers may prove it now.
func (r Rules) couldBeFinal(rec Receipt, v View) bool {
	if r.Finality == ByConfirmations {
		return v.Head.Number >= rec.BlockNumber+r.Confirmations
	}
	return v.Tagged != nil && v.Tagged.Number >= rec.BlockNumber
}

// finalAt guesses when the receipt will be final; but nothing tracked goes
// unwatched for longer than [Rules.WatchEvery].
func (r Rules) finalAt(rec Receipt, v View, now time.Time) time.Time {
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

// missing judges a transaction of which the node has no receipt. That is no
// news, unless the node shows another block where the receipt's block was.
func (r Rules) missing(j *judgement, t Tx, v View, now time.Time) Tx {
	if t.Receipt != nil && replacedAt(*t.Receipt, v) {
		j.newForks++
		t.State, t.Sub, t.Receipt, t.Confirmations = Tracking, Pending, nil, nil
		t.LastError = "a reorg removed the block it was in"
		t.FirstSubmitAt, t.SubmitAttempts, t.NextResubmitAt, t.NextBumpAt = &now, 0, &now, nil // its life on chain begins anew
	}
	if t.State == Stuck && !t.ordersOpen() {
		return r.checkNext(t, now.Add(stuckLooks*r.BlockTime))
	}
	return r.checkNext(t, r.afterBlocks(1, v.Head, now))
}

// replacedAt says that the node's chain is past the receipt's height and has
// another block there.
func replacedAt(rec Receipt, v View) bool {
	return !v.Doubts.Signs && v.Head.Number > rec.BlockNumber && slices.ContainsFunc(v.Headers, func(h Header) bool {
		return h.Number == rec.BlockNumber && h.Hash != rec.BlockHash
	})
}

func (r Rules) checkNext(t Tx, at time.Time) Tx {
	t.NextCheckAt = &at
	return t
}

// resendDue says whether the bytes of t should go out now: their broadcast was
// claimed and its outcome never recorded, a reorg removed it, or no receipt came
// for an interval. Where a higher bid goes out in their place they should not.
func (r Rules) resendDue(t Tx, now time.Time) bool {
	return r.unheardOf(t, now) && (!r.bumpDue(t, now) || r.bidHeld(t))
}

// unheardOf is resendDue, whatever is bid.
func (r Rules) unheardOf(t Tx, now time.Time) bool {
	if t.spent() {
		return false
	}
	due := t.NextResubmitAt == nil || !now.Before(*t.NextResubmitAt)
	switch {
	case t.State == Submitted:
		return due
	case t.State == Tracking && t.Sub == Pending:
		return due && (r.Resubmit || t.SubmitAttempts == 0 || t.claimed())
	}
	return false
}

// after is t, not to be sent before lower is.
func (r Rules) after(t, lower Tx, now time.Time) Tx {
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

// claimed says that a broadcast was written down and its outcome was not.
func (t Tx) claimed() bool {
	return t.LastSubmitAt != nil && t.NextResubmitAt != nil && t.NextResubmitAt.Equal(*t.LastSubmitAt)
}

// claim writes down a further broadcast before it is made. It is due at once
// until its outcome is recorded.
func claim(t Tx, now time.Time) Tx {
	t.SubmitAttempts++
	t.LastSubmitAt, t.NextResubmitAt = &now, &now
	return t
}

// rebroadcast is t with all its attempts before it again.
func rebroadcast(t Tx, now time.Time) Tx {
	t.FirstSubmitAt, t.SubmitAttempts, t.NextBumpAt, t.Ordered, t.LastError = &now, 0, nil, "", ""
	if t.State == Stuck {
		t.State = Submitted
	}
	return t
}

// going says that a node holds t, or that it goes to one in this round.
func (t Tx) going() bool { return t.acknowledged() || (t.State == Submitted && t.claimed()) }

// waitedLong says that what a handler made has waited for as long as it may.
func (r Rules) waitedLong(t Tx, now time.Time) bool {
	return t.FirstSubmitAt != nil && now.Sub(*t.FirstSubmitAt) >= r.StuckAfter
}

// tooOld says that t has waited for a receipt for as long as it may.
func (r Rules) tooOld(t Tx, now time.Time) bool {
	waiting := t.State == Submitted || (t.State == Tracking && t.Sub == Pending)
	return waiting && t.FirstSubmitAt != nil && now.Sub(*t.FirstSubmitAt) >= r.StuckAfter
}

// stuck gives up sending t until somebody decides. It goes on being watched.
func (r Rules) stuck(t Tx, now time.Time, reason string) Tx {
	t.State, t.Sub, t.LastError = Stuck, "", reason
	return r.checkNext(t, now.Add(stuckLooks*r.BlockTime))
}

// stuckLooks is how many blocks apart the looks at a STUCK transaction are.
const stuckLooks = 10

// firstOther is the lowest height at which list does not have the block that
// kept has. A list that begins elsewhere differs from kept's first block on.
func firstOther(kept, list []Header) uint64 {
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

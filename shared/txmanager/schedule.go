package txmanager

import (
	"slices"
	"time"
)

// pollSlack is how early a check may be made: a check that is due within it is made now.
func (r Rules) pollSlack() time.Duration { return r.BlockTime / 4 }

// nextQuery is the next chain query for w. ok is false where nothing is due and no nonce could be
// allocated, so that no query is needed.
func (r Rules) nextQuery(w SubmitterState, k Kind, chain ChainConnector) (q ChainQuery, ok bool) {
	q = ChainQuery{Submitter: w.submitterOf(), Account: true, Finality: r.finalityTag(), HashesAt: w.watchedHeights()}
	ok = w.SuspectedViolation != nil || w.isFinalBlockReorged()
	horizon := w.now().Add(r.pollSlack())
	for _, t := range w.Open {
		if !t.isDueBy(horizon) && !r.isRebroadcastDue(t, horizon) && !t.hasOpenAction() && !(k.MaySign() && r.isBumpDue(t, w.now())) {
			continue
		}
		q.SelfTransfer = q.SelfTransfer || (t.hasOpenAction() && k.MaySign())
		ok = ok || t.State != InFlight || (k.MaySign() && !w.Protected)
		q.addReceipts(t)
		if t.Receipt != nil {
			q.coverBlocks(t.Receipt.BlockNumber, r.headerDepth())
		}
	}
	if len(w.Open) > 0 && w.Open[0].Receipt == nil {
		q.Known = slices.Clip(w.Open[0].Versions)
	}
	r.Inspector.addKnown(&q, w.Open)
	q.limitHeaders()
	if k.MaySign() && w.isQueueHeadDue(horizon) {
		ok = ok || w.nextSlots().count > 0
		q.Estimates = callsToEstimate(w, chain)
	}
	return q, ok
}

// addReceipts queries the receipt of every version of t.
func (q *ChainQuery) addReceipts(t Tx) {
	hint := Hint{Nonce: *t.Nonce}
	if t.Receipt != nil {
		hint.Block = t.Receipt.BlockNumber
	}
	for _, h := range t.Versions {
		q.Receipts, q.Hints = append(q.Receipts, h), append(q.Hints, hint)
	}
}

// coverBlocks extends the range of headers to block and the depth blocks on top of it.
func (q *ChainQuery) coverBlocks(block, depth uint64) {
	if q.ToBlock == 0 || block < q.FromBlock {
		q.FromBlock = block
	}
	q.ToBlock = max(q.ToBlock, block+depth)
}

// maxHeaders bounds the headers of one query. The lowest nonce's come first, because it must
// become final first.
const maxHeaders = 1000

func (q *ChainQuery) limitHeaders() { q.ToBlock = min(q.ToBlock, q.FromBlock+maxHeaders) }

// withFinalityHeaders is q with the headers that prove or disprove the finality of the receipts in
// v.
func (r Rules) withFinalityHeaders(q ChainQuery, v ChainObservation) ChainQuery {
	for _, a := range v.Receipts {
		if a.Answer == AnswerFound {
			q.coverBlocks(a.Receipt.BlockNumber, r.headerDepth())
		}
	}
	q.limitHeaders()
	return q
}

// callsToEstimate lists the calls of the queue without a gas limit.
func callsToEstimate(w SubmitterState, chain ChainConnector) []Call {
	var calls []Call
	for _, t := range w.Queue {
		if c, err := callOf(t, chain); err == nil && c.Gas == 0 {
			calls = append(calls, c)
		}
	}
	return calls
}

// estimatesByTx maps the estimates to their transactions.
func estimatesByTx(w SubmitterState, chain ChainConnector, answers []Estimate) map[string]Estimate {
	named := make(map[string]Estimate, len(answers))
	for _, t := range w.Queue {
		if c, err := callOf(t, chain); err == nil && c.Gas == 0 && len(answers) > 0 {
			named[t.ID], answers = answers[0], answers[1:]
		}
	}
	return named
}

// isQueueHeadDue reports whether the head of the queue can be planned at that time.
func (w SubmitterState) isQueueHeadDue(by time.Time) bool {
	return !w.Protected && !w.Suspended && len(w.Queue) > 0 && w.Queue[0].isDueBy(by)
}

// isDueBy reports whether t's next check is due at that time.
func (t Tx) isDueBy(by time.Time) bool { return t.NextCheckAt == nil || !t.NextCheckAt.After(by) }

// nextWork is the next task that a submitter needs.
type nextWork struct {
	advanceNow bool      // the submitter needs an advance now
	kind       Kind      // otherwise a task of this kind,
	at         time.Time // at this time; zero: nothing is due
}

// planNextWork plans the next task from the state that remains.
func (r Rules) planNextWork(w SubmitterState) nextWork {
	var d nextWork
	acknowledged, held := true, false
	var bump *time.Time // when the first gas bump may be made
	for i, t := range w.Open {
		acknowledged = acknowledged && t.isAcknowledged()
		toSign := t.State == InFlight || t.hasOpenAction()
		bumpBy, bumps := r.bumpBy(t)
		if bumps = bumps && !held && !w.Protected; bumps {
			d.advanceNow = d.advanceNow || !bumpBy.After(w.now())
			d.consider(KindAdvance, &bumpBy)
			bump = earlierOf(bump, bumpBy)
		}
		switch {
		case toSign && (w.Protected || held): // in PROTECT nothing is signed; otherwise a lower one is not with a node yet
			if len(t.Versions) > 0 {
				d.consider(KindReceipt, t.NextCheckAt)
			}
		case w.waitsForWindow(i):
			d.consider(KindAdvance, t.NextCheckAt)
		case toSign && t.isDueBy(w.now()):
			d.advanceNow = true
		case toSign:
			d.consider(KindAdvance, t.NextCheckAt)
		case t.Sub == Included:
			d.consider(KindConfirm, t.NextCheckAt)
		default:
			d.consider(KindReceipt, t.NextCheckAt)
		}
		// Otherwise a gas bump is sent in place of the rebroadcast, even if the rebroadcast was
		// due first.
		resent := t.NextResubmitAt == nil || r.isBumpBlocked(t) || !r.isBumpDue(t, laterOf(w.now(), *t.NextResubmitAt))
		if !w.Protected && resent && (t.State == Submitted || (t.Sub == Pending && (r.Resubmit || t.isBroadcastClaimed()))) {
			d.consider(KindResubmit, t.NextResubmitAt)
		}
		held = held || !t.isAcknowledged() && !(toSign && t.isDueBy(w.now()))
	}
	if w.SuspectedViolation != nil && !w.Protected || w.isFinalBlockReorged() || w.ForeignUnread {
		next := w.now().Add(r.BlockTime)
		if w.ForeignReadable {
			next = w.now()
		}
		d.consider(KindConfirm, &next)
	}
	switch slot := w.nextSlots(); {
	case w.Protected || w.Suspended || slot.count == 0 || !acknowledged && slot.reservation == "":
	case w.LowestDeferredUntil != nil && !w.hasOpenUpTo(*w.LowestDeferredUntil):
		d.advanceNow = true
	case len(w.Queue) == 0:
		d.advanceNow = d.advanceNow || w.QueueMore
	case w.isQueueHeadDue(w.now()):
		d.advanceNow = true
	default:
		d.consider(KindAdvance, w.Queue[0].NextCheckAt)
	}
	if w.mayExpire() {
		d.advanceNow = d.advanceNow || w.ExpiredMore
		d.consider(KindAdvance, w.nextExpiryPoll())
	}
	if !w.Protected && !w.Suspended && w.nextSlots().count > 0 {
		d.consider(KindAdvance, w.DeferredUntil)
	}
	if bump != nil && !bump.After(d.at.Add(r.pollSlack())) { // only an advance may sign
		d.kind = KindAdvance
	}
	return d
}

// earlierOf is the earlier of two times; nil is no time.
func earlierOf(a *time.Time, b time.Time) *time.Time {
	if a == nil || b.Before(*a) {
		return &b
	}
	return a
}

func (d *nextWork) consider(k Kind, at *time.Time) {
	if at != nil && (d.at.IsZero() || at.Before(d.at)) {
		d.kind, d.at = k, *at
	}
}

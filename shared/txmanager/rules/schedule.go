package rules

import (
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// PollSlack is how early a check may be made: a check that is due within it is made now.
func (r Rules) PollSlack() time.Duration { return r.BlockTime / 4 }

// NextQuery is the next chain query for w. ok is false where nothing is due and no nonce could be
// allocated, so that no query is needed.
func (r Rules) NextQuery(w txmanager.SubmitterState, k txmanager.Kind, chain txmanager.ChainConnector) (q txmanager.ChainQuery, ok bool) {
	q = txmanager.ChainQuery{Submitter: w.Submitter(), Account: true, Finality: r.FinalityTag(), HashesAt: WatchedHeights(w)}
	ok = w.SuspectedViolation != nil || w.IsFinalBlockReorged()
	horizon := w.DatabaseTime().Add(r.PollSlack())
	for _, t := range w.Open {
		if !t.IsDueBy(horizon) && !r.IsRebroadcastDue(t, horizon) && !t.HasOpenAction() && !(k.MaySign() && r.IsBumpDue(t, w.DatabaseTime())) {
			continue
		}
		q.SelfTransfer = q.SelfTransfer || (t.HasOpenAction() && k.MaySign())
		ok = ok || t.State != txmanager.InFlight || (k.MaySign() && !w.Protected)
		addReceipts(&q, t)
		if t.Receipt != nil {
			coverBlocks(&q, t.Receipt.BlockNumber, r.HeaderDepth())
		}
	}
	if len(w.Open) > 0 && w.Open[0].Receipt == nil {
		q.Known = slices.Clip(w.Open[0].Versions)
	}
	r.Inspector.addKnown(&q, w.Open)
	limitHeaders(&q)
	if k.MaySign() && IsQueueHeadDue(w, horizon) {
		ok = ok || NextSlots(w).Count > 0
		q.Estimates = CallsToEstimate(w, chain)
	}
	return q, ok
}

// addReceipts queries the receipt of every version of t.
func addReceipts(q *txmanager.ChainQuery, t txmanager.Tx) {
	hint := txmanager.Hint{Nonce: *t.Nonce}
	if t.Receipt != nil {
		hint.Block = t.Receipt.BlockNumber
	}
	for _, h := range t.Versions {
		q.Receipts, q.Hints = append(q.Receipts, h), append(q.Hints, hint)
	}
}

// coverBlocks extends the range of headers to block and the depth blocks on top of it.
func coverBlocks(q *txmanager.ChainQuery, block, depth uint64) {
	if q.ToBlock == 0 || block < q.FromBlock {
		q.FromBlock = block
	}
	q.ToBlock = max(q.ToBlock, block+depth)
}

// maxHeaders bounds the headers of one query. The lowest nonce's come first, because it must
// become final first.
const maxHeaders = 1000

func limitHeaders(q *txmanager.ChainQuery) { q.ToBlock = min(q.ToBlock, q.FromBlock+maxHeaders) }

// WithFinalityHeaders is q with the headers that prove or disprove the finality of the receipts in
// v.
func (r Rules) WithFinalityHeaders(q txmanager.ChainQuery, v txmanager.ChainObservation) txmanager.ChainQuery {
	for _, a := range v.Receipts {
		if a.Answer == txmanager.AnswerFound {
			coverBlocks(&q, a.Receipt.BlockNumber, r.HeaderDepth())
		}
	}
	limitHeaders(&q)
	return q
}

// CallsToEstimate lists the calls of the queue without a gas limit.
func CallsToEstimate(w txmanager.SubmitterState, chain txmanager.ChainConnector) []txmanager.Call {
	var calls []txmanager.Call
	for _, t := range w.Queue {
		if c, err := callOf(t, chain); err == nil && c.Gas == 0 {
			calls = append(calls, c)
		}
	}
	return calls
}

// EstimatesByTx maps the estimates to their transactions.
func EstimatesByTx(w txmanager.SubmitterState, chain txmanager.ChainConnector, answers []txmanager.Estimate) map[string]txmanager.Estimate {
	named := make(map[string]txmanager.Estimate, len(answers))
	for _, t := range w.Queue {
		if c, err := callOf(t, chain); err == nil && c.Gas == 0 && len(answers) > 0 {
			named[t.ID], answers = answers[0], answers[1:]
		}
	}
	return named
}

// IsQueueHeadDue reports whether the head of the queue can be planned at that time.
func IsQueueHeadDue(w txmanager.SubmitterState, by time.Time) bool {
	return !w.Protected && !w.Suspended && len(w.Queue) > 0 && w.Queue[0].IsDueBy(by)
}

// NextWork is the next task that a submitter needs.
type NextWork struct {
	AdvanceNow bool           // the submitter needs an advance now
	Kind       txmanager.Kind // otherwise a task of this kind,
	At         time.Time      // At this time; zero: nothing is due
}

// PlanNextWork plans the next task from the state that remains.
func (r Rules) PlanNextWork(w txmanager.SubmitterState) NextWork {
	var d NextWork
	acknowledged, held := true, false
	var bump *time.Time // when the first gas bump may be made
	for i, t := range w.Open {
		acknowledged = acknowledged && t.IsAcknowledged()
		toSign := t.State == txmanager.InFlight || t.HasOpenAction()
		bumpBy, bumps := r.BumpBy(t)
		if bumps = bumps && !held && !w.Protected; bumps {
			d.AdvanceNow = d.AdvanceNow || !bumpBy.After(w.DatabaseTime())
			d.consider(txmanager.KindAdvance, &bumpBy)
			bump = earlierOf(bump, bumpBy)
		}
		switch {
		case toSign && (w.Protected || held): // in PROTECT nothing is signed; otherwise a lower one is not with a node yet
			if len(t.Versions) > 0 {
				d.consider(txmanager.KindReceipt, t.NextCheckAt)
			}
		case waitsForWindow(w, i):
			d.consider(txmanager.KindAdvance, t.NextCheckAt)
		case toSign && t.IsDueBy(w.DatabaseTime()):
			d.AdvanceNow = true
		case toSign:
			d.consider(txmanager.KindAdvance, t.NextCheckAt)
		case t.Sub == txmanager.Included:
			d.consider(txmanager.KindConfirm, t.NextCheckAt)
		default:
			d.consider(txmanager.KindReceipt, t.NextCheckAt)
		}
		// Otherwise a gas bump is sent in place of the rebroadcast, even if the rebroadcast was
		// due first.
		resent := t.NextResubmitAt == nil || r.IsBumpBlocked(t) || !r.IsBumpDue(t, laterOf(w.DatabaseTime(), *t.NextResubmitAt))
		if !w.Protected && resent && (t.State == txmanager.Submitted || (t.Sub == txmanager.Pending && (r.Resubmit || t.IsBroadcastClaimed()))) {
			d.consider(txmanager.KindResubmit, t.NextResubmitAt)
		}
		held = held || !t.IsAcknowledged() && !(toSign && t.IsDueBy(w.DatabaseTime()))
	}
	if w.SuspectedViolation != nil && !w.Protected || w.IsFinalBlockReorged() || w.ForeignUnread {
		next := w.DatabaseTime().Add(r.BlockTime)
		if w.ForeignReadable {
			next = w.DatabaseTime()
		}
		d.consider(txmanager.KindConfirm, &next)
	}
	switch slot := NextSlots(w); {
	case w.Protected || w.Suspended || slot.Count == 0 || !acknowledged && slot.Reservation == "":
	case w.LowestDeferredUntil != nil && !hasOpenUpTo(w, *w.LowestDeferredUntil):
		d.AdvanceNow = true
	case len(w.Queue) == 0:
		d.AdvanceNow = d.AdvanceNow || w.QueueMore
	case IsQueueHeadDue(w, w.DatabaseTime()):
		d.AdvanceNow = true
	default:
		d.consider(txmanager.KindAdvance, w.Queue[0].NextCheckAt)
	}
	if mayExpire(w) {
		d.AdvanceNow = d.AdvanceNow || w.ExpiredMore
		d.consider(txmanager.KindAdvance, nextExpiryPoll(w))
	}
	if !w.Protected && !w.Suspended && NextSlots(w).Count > 0 {
		d.consider(txmanager.KindAdvance, w.DeferredUntil)
	}
	if bump != nil && !bump.After(d.At.Add(r.PollSlack())) { // only an advance may sign
		d.Kind = txmanager.KindAdvance
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

func (d *NextWork) consider(k txmanager.Kind, at *time.Time) {
	if at != nil && (d.At.IsZero() || at.Before(d.At)) {
		d.Kind, d.At = k, *at
	}
}

// IsBlockDue reports whether a pending transaction is due for a check at a new block. A separate
// poll would come up to a second later. Each check plans the next one ahead, so that this ends.
func IsBlockDue(w txmanager.SubmitterState) bool {
	return !w.Protected && slices.ContainsFunc(w.Open, func(x txmanager.Tx) bool {
		return x.Sub == txmanager.Pending && x.NextCheckAt != nil && !x.NextCheckAt.After(w.DatabaseTime())
	})
}

// PacedAt delays the next advance of a submitter that was just served, so that intents which
// arrive together share one chain query. Work that is due earlier is not delayed.
func (r Rules) PacedAt(d NextWork, now time.Time) time.Time {
	at := now.Add(min(r.BlockTime/2, 500*time.Millisecond))
	if !d.At.IsZero() && d.At.Before(at) {
		return d.At
	}
	return at
}

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
		if !r.isQueryDue(t, k, horizon, w.DatabaseTime()) {
			continue
		}
		q.SelfTransfer = q.SelfTransfer || t.Phase() == txmanager.AwaitingAction && k.MaySign()
		ok = ok || t.State != txmanager.InFlight || (k.MaySign() && !w.Protected)
		addReceipts(&q, t)
		if t.Receipt != nil {
			coverBlocks(&q, t.Receipt.BlockNumber, r.HeaderDepth())
		}
	}
	if len(w.Open) > 0 && w.Open[0].Receipt == nil {
		q.Known = slices.Clip(w.Open[0].Versions)
	}
	r.Inspection.addKnown(&q, w.Open)
	limitHeaders(&q)
	if k.MaySign() && IsQueueHeadDue(w, horizon) {
		ok = ok || NextSlots(w).Count > 0
		q.Estimates = CallsToEstimate(w, chain)
	}
	return q, ok
}

// isQueryDue reports whether the chain must be asked about t before horizon.
func (r Rules) isQueryDue(t txmanager.Tx, k txmanager.Kind, horizon, now time.Time) bool {
	return t.IsDueBy(horizon) || r.IsRebroadcastDue(t, horizon) || t.Phase() == txmanager.AwaitingAction || k.MaySign() && r.IsBumpDue(t, now)
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

// workPlanner collects what a submitter needs next.
type workPlanner struct {
	Rules
	w    txmanager.SubmitterState
	now  time.Time
	next NextWork
	bump *time.Time // when the first gas bump may be made
}

// PlanNextWork plans the next task from the state that remains: for each open nonce, from the
// lowest up, then for the account as a whole, then for the queue.
func (r Rules) PlanNextWork(w txmanager.SubmitterState) NextWork {
	p := workPlanner{Rules: r, w: w, now: w.DatabaseTime()}
	blocked := w.Protected // or a lower nonce is neither held by a node nor signed now: nothing above it is signed
	for i, t := range w.Open {
		if !blocked {
			p.planBump(t)
		}
		p.planCheck(i, blocked)
		if !w.Protected {
			p.planRebroadcast(t)
		}
		blocked = blocked || !t.IsAcknowledged() && !(t.Phase().NeedsSigner() && t.IsDueBy(p.now))
	}
	p.planConfirmation()
	p.planAllocation()
	p.planExpiry()
	if p.bump != nil && !p.bump.After(p.next.At.Add(r.PollSlack())) { // only an advance may sign
		p.next.Kind = txmanager.KindAdvance
	}
	return p.next
}

// planBump plans t's next gas bump.
func (p *workPlanner) planBump(t txmanager.Tx) {
	if at, ok := p.BumpBy(t); ok {
		p.next.AdvanceNow = p.next.AdvanceNow || !at.After(p.now)
		p.next.consider(txmanager.KindAdvance, &at)
		p.bump = earlierOf(p.bump, at)
	}
}

// planCheck plans the next check of the open transaction at i.
func (p *workPlanner) planCheck(i int, blocked bool) {
	t := p.w.Open[i]
	switch phase := t.Phase(); {
	case phase.NeedsSigner() && blocked && len(t.Versions) == 0: // there is no receipt to look for
	case phase.NeedsSigner() && blocked:
		p.next.consider(txmanager.KindReceipt, t.NextCheckAt)
	case waitsForWindow(p.w, i):
		p.next.consider(txmanager.KindAdvance, t.NextCheckAt)
	case phase.NeedsSigner() && t.IsDueBy(p.now):
		p.next.AdvanceNow = true
	case phase.NeedsSigner():
		p.next.consider(txmanager.KindAdvance, t.NextCheckAt)
	case phase == txmanager.AwaitingFinality:
		p.next.consider(txmanager.KindConfirm, t.NextCheckAt)
	default:
		p.next.consider(txmanager.KindReceipt, t.NextCheckAt)
	}
}

// planRebroadcast plans t's next rebroadcast. A gas bump is sent in its place, even if the
// rebroadcast was due first.
func (p *workPlanner) planRebroadcast(t txmanager.Tx) {
	sent := t.State == txmanager.Submitted || t.Sub == txmanager.Pending && (p.Resubmit || t.IsBroadcastClaimed())
	if !sent || t.NextResubmitAt == nil {
		return
	}
	if p.IsBumpBlocked(t) || !p.IsBumpDue(t, laterOf(p.now, *t.NextResubmitAt)) {
		p.next.consider(txmanager.KindResubmit, t.NextResubmitAt)
	}
}

// planConfirmation plans the query that confirms or clears a suspected violation, sees a reorged
// final block return, or reads foreign transactions.
func (p *workPlanner) planConfirmation() {
	if p.w.SuspectedViolation != nil && !p.w.Protected || p.w.IsFinalBlockReorged() || p.w.ForeignUnread {
		at := p.now.Add(p.BlockTime)
		if p.w.ForeignReadable {
			at = p.now
		}
		p.next.consider(txmanager.KindConfirm, &at)
	}
}

// planAllocation plans the next nonce for the queue.
func (p *workPlanner) planAllocation() {
	w, slot := p.w, NextSlots(p.w)
	if w.Protected || w.Suspended || slot.Count == 0 {
		return
	}
	p.next.consider(txmanager.KindAdvance, w.DeferredUntil)
	unacknowledged := slices.ContainsFunc(w.Open, func(t txmanager.Tx) bool { return !t.IsAcknowledged() })
	switch {
	case unacknowledged && slot.Reservation == "":
	case w.LowestDeferredUntil != nil && !hasOpenUpTo(w, *w.LowestDeferredUntil), IsQueueHeadDue(w, p.now):
		p.next.AdvanceNow = true
	case len(w.Queue) == 0:
		p.next.AdvanceNow = p.next.AdvanceNow || w.QueueMore
	default:
		p.next.consider(txmanager.KindAdvance, w.Queue[0].NextCheckAt)
	}
}

// planExpiry plans the next validUntil.
func (p *workPlanner) planExpiry() {
	if !mayExpire(p.w) {
		return
	}
	p.next.AdvanceNow = p.next.AdvanceNow || p.w.ExpiredMore
	if p.w.NextExpiry != nil {
		p.next.consider(txmanager.KindAdvance, earlierOf(p.w.NextExpiry, p.now.Add(expiryHorizon)))
	}
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

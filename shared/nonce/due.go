package nonce

import (
	"slices"
	"time"
)

// slack is how early a look may be: what falls due so soon is looked at now.
func (r Rules) slack() time.Duration { return r.BlockTime / 4 }

// question is what to ask the chain about w now; ok is false where nothing is
// due and nothing could be allocated, so that there is nothing to ask.
func (r Rules) question(w Work, k Kind, chain ChainConnector) (q Look, ok bool) {
	q = Look{Submitter: w.submitter(), Account: true, Finality: r.tag(), Watch: w.watched()}
	ok = w.Suspicion != nil || w.fell()
	horizon := w.now().Add(r.slack())
	for _, t := range w.Unsettled {
		if !t.dueBy(horizon) && !r.resendDue(t, horizon) && !t.ordersOpen() && !(k.MaySign() && r.bumpDue(t, w.now())) {
			continue
		}
		q.Self = q.Self || (t.ordersOpen() && k.MaySign())
		ok = ok || t.State != InFlight || (k.MaySign() && !w.Protected)
		q.wantReceipts(t)
		if t.Receipt != nil {
			q.cover(t.Receipt.BlockNumber, r.depth())
		}
	}
	if len(w.Unsettled) > 0 && w.Unsettled[0].Receipt == nil {
		q.Known = slices.Clip(w.Unsettled[0].Versions)
	}
	r.Inspector.ask(&q, w.Unsettled)
	q.bound()
	if k.MaySign() && w.queueOpen(horizon) {
		ok = ok || w.seat().most > 0
		q.Estimates = estimates(w, chain)
	}
	return q, ok
}

// wantReceipts asks for the receipt of every version of t.
func (q *Look) wantReceipts(t Tx) {
	hint := Hint{Nonce: *t.Nonce}
	if t.Receipt != nil {
		hint.Block = t.Receipt.BlockNumber
	}
	for _, h := range t.Versions {
		q.Receipts, q.Hints = append(q.Receipts, h), append(q.Hints, hint)
	}
}

// cover widens the range of headers to block and depth blocks on top of it.
func (q *Look) cover(block, depth uint64) {
	if q.ToBlock == 0 || block < q.FromBlock {
		q.FromBlock = block
	}
	q.ToBlock = max(q.ToBlock, block+depth)
}

// maxHeaders bounds the headers of one look. The lowest nonce's come first: it
// is the one whose finality is wanted first.
const maxHeaders = 1000

func (q *Look) bound() { q.ToBlock = min(q.ToBlock, q.FromBlock+maxHeaders) }

// again is q with the headers that prove or disprove the finality of what v
// found.
func (r Rules) again(q Look, v View) Look {
	for _, a := range v.Receipts {
		if a.Answer == AnswerFound {
			q.cover(a.Receipt.BlockNumber, r.depth())
		}
	}
	q.bound()
	return q
}

// estimates are the calls of the queue that come without a gas limit.
func estimates(w Work, chain ChainConnector) []Call {
	var calls []Call
	for _, t := range w.Queue {
		if c, err := callOf(t, chain); err == nil && c.Gas == 0 {
			calls = append(calls, c)
		}
	}
	return calls
}

// estimatesByTx names the answers to estimates by transaction.
func estimatesByTx(w Work, chain ChainConnector, answers []Estimate) map[string]Estimate {
	named := make(map[string]Estimate, len(answers))
	for _, t := range w.Queue {
		if c, err := callOf(t, chain); err == nil && c.Gas == 0 && len(answers) > 0 {
			named[t.ID], answers = answers[0], answers[1:]
		}
	}
	return named
}

// queueOpen says that the head of the queue could be worked on by then.
func (w Work) queueOpen(by time.Time) bool {
	return !w.Protected && !w.Suspended && len(w.Queue) > 0 && w.Queue[0].dueBy(by)
}

// dueBy says that t's next check is due by then.
func (t Tx) dueBy(by time.Time) bool { return t.NextCheckAt == nil || !t.NextCheckAt.After(by) }

// due is what a submitter needs next, read from the state it was left in.
type due struct {
	advance bool      // the queue has work and room: now
	kind    Kind      // else this function,
	at      time.Time // at this time; zero: nothing is due
}

// due reads what is left to do.
func (r Rules) due(w Work) due {
	var d due
	acknowledged, held := true, false
	var bump *time.Time // when the first replacement may be made
	for i, t := range w.Unsettled {
		acknowledged = acknowledged && t.acknowledged()
		toSign := t.State == InFlight || t.ordersOpen()
		bumpBy, bumps := r.bumpBy(t)
		if bumps = bumps && !held && !w.Protected; bumps {
			d.advance = d.advance || !bumpBy.After(w.now())
			d.earliest(KindAdvance, &bumpBy)
			bump = soonest(bump, bumpBy)
		}
		switch {
		case toSign && (w.Protected || held): // nothing is signed, or nothing ahead of what no node holds
			if len(t.Versions) > 0 {
				d.earliest(KindReceipt, t.NextCheckAt)
			}
		case w.parked(i):
			d.earliest(KindAdvance, t.NextCheckAt)
		case toSign && t.dueBy(w.now()):
			d.advance = true
		case toSign:
			d.earliest(KindAdvance, t.NextCheckAt)
		case t.Sub == Included:
			d.earliest(KindConfirm, t.NextCheckAt)
		default:
			d.earliest(KindReceipt, t.NextCheckAt)
		}
		// Else a replacement goes out in its place, also where its time was before.
		resent := t.NextResubmitAt == nil || r.bidHeld(t) || !r.bumpDue(t, later(w.now(), *t.NextResubmitAt))
		if !w.Protected && resent && (t.State == Submitted || (t.Sub == Pending && (r.Resubmit || t.claimed()))) {
			d.earliest(KindResubmit, t.NextResubmitAt)
		}
		held = held || !t.acknowledged() && !(toSign && t.dueBy(w.now()))
	}
	if w.Suspicion != nil && !w.Protected || w.fell() || w.ForeignLeft {
		next := w.now().Add(r.BlockTime)
		if w.ForeignSoon {
			next = w.now()
		}
		d.earliest(KindConfirm, &next)
	}
	switch seat := w.seat(); {
	case w.Protected || w.Suspended || seat.most == 0 || !acknowledged && seat.from == "":
	case w.AsideUntil != nil && !w.holds(*w.AsideUntil):
		d.advance = true
	case len(w.Queue) == 0:
		d.advance = d.advance || w.QueueMore
	case w.queueOpen(w.now()):
		d.advance = true
	default:
		d.earliest(KindAdvance, w.Queue[0].NextCheckAt)
	}
	if w.mayExpire() {
		d.advance = d.advance || w.ExpiredMore
		d.earliest(KindAdvance, w.expiry())
	}
	if !w.Protected && !w.Suspended && w.seat().most > 0 {
		d.earliest(KindAdvance, w.DeferredUntil)
	}
	if bump != nil && !bump.After(d.at.Add(r.slack())) { // only an advance may sign
		d.kind = KindAdvance
	}
	return d
}

// soonest is the earlier of two times; nil is none.
func soonest(a *time.Time, b time.Time) *time.Time {
	if a == nil || b.Before(*a) {
		return &b
	}
	return a
}

func (d *due) earliest(k Kind, at *time.Time) {
	if at != nil && (d.at.IsZero() || at.Before(d.at)) {
		d.kind, d.at = k, *at
	}
}

package rules

import (
	"cmp"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// expire ends queued t because its validUntil passed.
func expire(t txmanager.Tx) txmanager.Transition {
	t.State, t.Sub, t.NextCheckAt = txmanager.Failed, txmanager.Expired, nil
	t.Explain("", "its validUntil passed before its turn came: nothing was signed for it")
	return txmanager.Transition{From: txmanager.Queued, To: t}
}

// mayExpire is false in PROTECT and while a violation is suspected: a queued intent may then have
// been carried out, unknown to this database.
func mayExpire(w txmanager.SubmitterState) bool { return !w.Protected && w.SuspectedViolation == nil }

// ExpireQueued ends the loaded expired intents, unless c reports a violation.
func ExpireQueued(w txmanager.SubmitterState, c txmanager.CursorChange) []txmanager.Transition {
	if !mayExpire(w) || c.Suspect != nil || c.OpenIncident != nil {
		return nil
	}
	var moves []txmanager.Transition
	for _, t := range w.Expired {
		moves = append(moves, expire(t))
	}
	return moves
}

// expiryHorizon is how far ahead an advance is scheduled for a validUntil.
const expiryHorizon = 24 * time.Hour

// deferOrWait makes t wait for its own limits until the time until. It reports whether intents of
// other callers may pass it.
func (r Rules) deferOrWait(p *AllocationPlan, t txmanager.Tx, why txmanager.Wait, until, now time.Time) (passed bool) {
	if r.DeferAfter == 0 {
		t.HeldBackSince, t.DeferredAt = cmp.Or(t.HeldBackSince, &now), nil
		return p.Wait(t, why, until)
	}
	t.HeldBackSince = p.holdBack(t, now)
	if after := t.HeldBackSince.Add(r.DeferAfter); t.DeferredAt == nil && after.After(now) {
		return p.Wait(t, why, *earlierOf(&until, after))
	}
	t.DeferredAt = cmp.Or(t.DeferredAt, &now)
	why.Reason += "; deferred since " + t.DeferredAt.UTC().Format(time.RFC3339) + ": intents of other callers go ahead of it, later ones of its caller do not"
	return p.passDeferred(t, why, until)
}

// maxHeldBack limits how many callers are kept in [txmanager.SubmitterState.HeldBackSince].
const maxHeldBack = 1000

// holdBack returns since when the own bounds of t's caller block its intents, and keeps it for
// the next ones. The time of an intent that expired or was cancelled counts on, so that a
// caller gains nothing by posting many of them.
func (p *AllocationPlan) holdBack(t txmanager.Tx, now time.Time) *time.Time {
	since := *cmp.Or(t.HeldBackSince, &now)
	before, kept := p.HeldBack[t.PresentCaller]
	switch {
	case kept && !before.After(since):
		return &before
	case !kept && len(p.HeldBack) >= maxHeldBack:
		return &since
	}
	p.HeldBack[t.PresentCaller], p.HeldBackChanged = since.Truncate(time.Microsecond), true
	return &since
}

// endHoldBack forgets the time of a caller of which an intent gets a nonce.
func (p *AllocationPlan) endHoldBack(caller string) {
	if _, kept := p.HeldBack[caller]; kept {
		delete(p.HeldBack, caller)
		p.HeldBackChanged = true
	}
}

// passDeferred passes over t and the later intents of its caller.
func (p *AllocationPlan) passDeferred(t txmanager.Tx, why txmanager.Wait, until time.Time) (next bool) {
	p.PassedCallers[t.PresentCaller] = true
	return p.passOver(t, why, until)
}

// WaitAtHead makes the head of the queue wait for a reason that is not its own. Deferred intents
// before it keep their reasons and get only the next check.
func WaitAtHead(w txmanager.SubmitterState, why txmanager.Wait, until time.Time) (moves []txmanager.Transition) {
	for _, t := range w.Queue {
		t.NextCheckAt = &until
		if t.DeferredAt == nil {
			t.Explain(why.Cause, why.Reason)
		}
		moves = append(moves, txmanager.Transition{From: txmanager.Queued, To: t})
		if t.DeferredAt == nil {
			return moves
		}
	}
	return moves
}

// withoutDeferred is w without the deferred intents that are not due, and without the later
// intents of their callers. A load also omits them.
func withoutDeferred(w txmanager.SubmitterState) txmanager.SubmitterState {
	now, behind := w.DatabaseTime(), make(map[string]bool)
	w.Queue = slices.DeleteFunc(w.Queue, func(t txmanager.Tx) bool {
		if behind[t.PresentCaller] {
			return true
		}
		if t.DeferredAt == nil || t.IsDueBy(now) {
			return false
		}
		behind[t.PresentCaller] = true
		w.DeferredUntil = earlierOf(w.DeferredUntil, *t.NextCheckAt)
		return true
	})
	return w
}

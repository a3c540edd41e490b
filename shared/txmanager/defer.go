package txmanager

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// hasExpired reports whether t's validUntil has passed. t then gets no nonce.
func (t Tx) hasExpired(now time.Time) bool { return t.ValidUntil != nil && !t.ValidUntil.After(now) }

// expire ends queued t because its validUntil passed.
func (t Tx) expire() Transition {
	t.State, t.Sub, t.NextCheckAt = Failed, Expired, nil
	t.LastError = "its validUntil passed before its turn came: nothing was signed for it"
	return Transition{From: Queued, To: t}
}

// mayExpire is false in PROTECT and while a violation is suspected: a queued intent may then have
// been carried out, unknown to this database.
func (w SubmitterState) mayExpire() bool { return !w.Protected && w.SuspectedViolation == nil }

// expireQueued ends the loaded expired intents, unless c reports a violation.
func (w SubmitterState) expireQueued(c CursorChange) []Transition {
	if !w.mayExpire() || c.Suspect != nil || c.OpenIncident != nil {
		return nil
	}
	var moves []Transition
	for _, t := range w.Expired {
		moves = append(moves, t.expire())
	}
	return moves
}

// expiryHorizon is how far ahead an advance is scheduled for a validUntil.
const expiryHorizon = 24 * time.Hour

// nextExpiryPoll is when the advance for the next validUntil is due; nil: no queued intent has
// one.
func (w SubmitterState) nextExpiryPoll() *time.Time {
	if w.NextExpiry == nil {
		return nil
	}
	return earlierOf(w.NextExpiry, w.now().Add(expiryHorizon))
}

// ownBoundReason is the limit of call itself that blocks it, even with no open transaction; or "".
// gas is 0 where it is not known. Other intents may then pass it, since they need not have such a
// limit. A balance in use by open transactions does not count as an own limit: smaller intents
// would pass the intent forever.
func (r Limits) ownBoundReason(b Bounds, call Call, gas uint64, a Account) string {
	least := a.BaseFeeWei
	if a.GasPriceWei != nil {
		least = a.GasPriceWei
	}
	if call.FeeCapWei != nil && call.FeeCapWei.Cmp(least) < 0 {
		return tooExpensiveReason(call, GasParams{FeeCapWei: call.FeeCapWei}, a)
	}
	params := r.clampFees(b, r.firstVersionFees(call, max(gas, placeholderGas), a), a)
	if dear := r.tooExpensiveReason(b, call, params, a); dear != "" && gas > 0 && !exceeds(least, r.FeeCapWei) {
		return dear // the gas that it needs exceeds the cost limit of one transaction
	}
	if params.FeeCapWei.Sign() > 0 && costWithPlaceholder(params).Cmp(a.BalanceWei) > 0 {
		return ownBalance
	}
	return ""
}

// ownBalance is why an intent waits that the account could not pay even with no open transaction.
const ownBalance = "balance: the account cannot pay for it and a placeholder, also with nothing in flight"

// deferOrWait makes t wait for its own limits until the time until. It reports whether intents of
// other callers may pass it.
func (r Rules) deferOrWait(p *allocationPlan, t Tx, reason string, until, now time.Time) (passed bool) {
	if r.DeferAfter == 0 {
		t.HeldBackSince, t.DeferredAt = cmp.Or(t.HeldBackSince, &now), nil
		p.wait(t, reason, until)
		return false
	}
	t.HeldBackSince = p.holdBack(t, now)
	if after := t.HeldBackSince.Add(r.DeferAfter); t.DeferredAt == nil && after.After(now) {
		p.wait(t, reason, *earlierOf(&until, after))
		return false
	}
	if t.DeferredAt == nil {
		t.DeferredAt = &now
	}
	p.passDeferred(t, reason+"; deferred since "+t.DeferredAt.UTC().Format(time.RFC3339)+": intents of other callers go ahead of it, later ones of its caller do not", until)
	return true
}

// maxHeldBack limits how many callers are kept in [SubmitterState.HeldBackSince].
const maxHeldBack = 1000

// holdBack returns since when the own bounds of t's caller block its intents, and keeps it for
// the next ones. The time of an intent that expired or was cancelled counts on, so that a
// caller gains nothing by posting many of them.
func (p *allocationPlan) holdBack(t Tx, now time.Time) *time.Time {
	since := *cmp.Or(t.HeldBackSince, &now)
	before, kept := p.heldBack[t.PresentCaller]
	switch {
	case kept && !before.After(since):
		return &before
	case !kept && len(p.heldBack) >= maxHeldBack:
		return &since
	}
	p.setHeldBack(func(all map[string]time.Time) { all[t.PresentCaller] = since.Truncate(time.Microsecond) })
	return &since
}

// endHoldBack forgets the time of a caller of which an intent gets a nonce.
func (p *allocationPlan) endHoldBack(caller string) {
	if _, kept := p.heldBack[caller]; kept {
		p.setHeldBack(func(all map[string]time.Time) { delete(all, caller) })
	}
}

func (p *allocationPlan) setHeldBack(change func(map[string]time.Time)) {
	all := make(map[string]time.Time, len(p.heldBack)+1)
	maps.Copy(all, p.heldBack)
	change(all)
	p.heldBack, p.heldBackChanged = all, true
}

// passDeferred passes over t and the later intents of its caller.
func (p *allocationPlan) passDeferred(t Tx, reason string, until time.Time) {
	if p.passedCallers == nil {
		p.passedCallers = make(map[string]bool)
	}
	p.passedCallers[t.PresentCaller] = true
	p.passOver(t, reason, until)
}

// waitAtHead makes the head of the queue wait for a reason that is not its own. Deferred intents
// before it keep their reasons and get only the next check.
func (w SubmitterState) waitAtHead(reason string, until time.Time) (moves []Transition) {
	for _, t := range w.Queue {
		t.NextCheckAt = &until
		if t.DeferredAt == nil {
			t.LastError = reason
		}
		moves = append(moves, Transition{From: Queued, To: t})
		if t.DeferredAt == nil {
			return moves
		}
	}
	return moves
}

// withoutDeferred is w without the deferred intents that are not due, and without the later
// intents of their callers. A load also omits them.
func (w SubmitterState) withoutDeferred() SubmitterState {
	now, behind := w.now(), make(map[string]bool)
	w.Queue = slices.DeleteFunc(w.Queue, func(t Tx) bool {
		if behind[t.PresentCaller] {
			return true
		}
		if t.DeferredAt == nil || t.isDueBy(now) {
			return false
		}
		behind[t.PresentCaller] = true
		w.DeferredUntil = earlierOf(w.DeferredUntil, *t.NextCheckAt)
		return true
	})
	return w
}

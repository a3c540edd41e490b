package txmanager

import (
	"slices"
	"time"
)

// hasExpired is true where the validUntil of t has passed: t gets no nonce any more.
func (t Tx) hasExpired(now time.Time) bool { return t.ValidUntil != nil && !t.ValidUntil.After(now) }

// expire ends t, which is queued, by its validUntil.
func (t Tx) expire() Transition {
	t.State, t.Sub, t.NextCheckAt = Failed, Expired, nil
	t.LastError = "its validUntil passed before its turn came: nothing was signed for it"
	return Transition{From: Queued, To: t}
}

// mayExpire is false where a queued intent may have run, unknown to this database: in PROTECT,
// and while the account is under suspicion.
func (w SubmitterState) mayExpire() bool { return !w.Protected && w.SuspectedViolation == nil }

// expireQueued ends the intents that were loaded as expired, unless c suspects the account.
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

// expiryHorizon is the furthest ahead that an advance is scheduled for an intent's validUntil.
const expiryHorizon = 24 * time.Hour

// nextExpiryPoll is when the advance for the next validUntil is due; nil: no queued intent has one.
func (w SubmitterState) nextExpiryPoll() *time.Time {
	if w.NextExpiry == nil {
		return nil
	}
	return earlierOf(w.NextExpiry, w.now().Add(expiryHorizon))
}

// ownBoundReason is the bound of call itself that holds it back, with nothing else in flight; or "".
// gas is 0 where it is not known. Another intent may go meanwhile: it need not have such a
// bound. An intent is not held back by its own bounds where transactions in flight have the
// balance: smaller intents would go ahead of it for ever.
func (r Rules) ownBoundReason(b Bounds, call Call, gas uint64, a Account) string {
	least := a.BaseFeeWei
	if a.GasPriceWei != nil {
		least = a.GasPriceWei
	}
	if call.FeeCapWei != nil && call.FeeCapWei.Cmp(least) < 0 {
		return tooExpensiveReason(call, GasParams{FeeCapWei: call.FeeCapWei}, a)
	}
	params := r.clampFees(b, r.firstVersionFees(call, max(gas, placeholderGas), a), a)
	if dear := r.tooExpensiveReason(b, call, params, a); dear != "" && gas > 0 && !exceeds(least, r.FeeCapWei) {
		return dear // the gas that it needs costs more than one transaction may cost
	}
	if params.FeeCapWei.Sign() > 0 && costWithPlaceholder(params).Cmp(a.BalanceWei) > 0 {
		return ownBalance
	}
	return ""
}

// ownBalance is why an intent waits that the account could not pay with nothing in flight.
const ownBalance = "balance: the account cannot pay for it and a placeholder, also with nothing in flight"

// deferOrWait has t wait for its own bounds until then. It reports whether intents of other
// callers go ahead of it.
func (r Rules) deferOrWait(p *allocationPlan, t Tx, reason string, until, now time.Time) (passed bool) {
	if t.HeldBackSince == nil {
		t.HeldBackSince = &now
	}
	if r.DeferAfter == 0 {
		t.DeferredAt = nil
		p.wait(t, reason, until)
		return false
	}
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

// passDeferred passes t over, and what its caller has behind it.
func (p *allocationPlan) passDeferred(t Tx, reason string, until time.Time) {
	if p.passedCallers == nil {
		p.passedCallers = make(map[string]bool)
	}
	p.passedCallers[t.PresentCaller] = true
	p.passOver(t, reason, until)
}

// waitAtHead has the head of the queue wait, for a reason that is not its own. Deferred intents
// before it get the next check alone, and keep their reasons.
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
// intents of their callers. A load reads none of these either.
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

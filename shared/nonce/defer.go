package nonce

import (
	"slices"
	"time"
)

// expired is true where the validUntil of t has passed: t gets no nonce any more.
func (t Tx) expired(now time.Time) bool { return t.ValidUntil != nil && !t.ValidUntil.After(now) }

// expire ends t, which is queued, by its validUntil.
func (t Tx) expire() Move {
	t.State, t.Sub, t.NextCheckAt = Failed, Expired, nil
	t.LastError = "its validUntil passed before its turn came: nothing was signed for it"
	return Move{From: Queued, To: t}
}

// mayExpire is false where a queued intent may have run, unknown to this database: in PROTECT,
// and while the account is under suspicion.
func (w Work) mayExpire() bool { return !w.Protected && w.Suspicion == nil }

// expire ends the intents that were loaded as expired, unless c suspects the account.
func (w Work) expire(c CursorChange) []Move {
	if !w.mayExpire() || c.Suspect != nil || c.Protect != nil {
		return nil
	}
	var moves []Move
	for _, t := range w.Expired {
		moves = append(moves, t.expire())
	}
	return moves
}

// expiryHorizon is the furthest ahead that an advance is scheduled for an intent's validUntil.
const expiryHorizon = 24 * time.Hour

// expiry is when the advance for the next validUntil is due; nil: no queued intent has one.
func (w Work) expiry() *time.Time {
	if w.NextExpiry == nil {
		return nil
	}
	return soonest(w.NextExpiry, w.now().Add(expiryHorizon))
}

// ownBound is the bound of call itself that holds it back, with nothing else in flight; or "".
// gas is 0 where it is not known. Another intent may go meanwhile: it need not have such a
// bound. An intent is not held back by its own bounds where transactions in flight have the
// balance: smaller intents would go ahead of it for ever.
func (r Rules) ownBound(b Bounds, call Call, gas uint64, a Account) string {
	least := a.BaseFeeWei
	if a.GasPriceWei != nil {
		least = a.GasPriceWei
	}
	if call.FeeCapWei != nil && call.FeeCapWei.Cmp(least) < 0 {
		return tooDear(call, GasParams{FeeCapWei: call.FeeCapWei}, a)
	}
	params := r.within(b, r.offer(call, max(gas, placeholderGas), a), a)
	if dear := r.tooDear(b, call, params, a); dear != "" && gas > 0 && !above(least, r.FeeCapWei) {
		return dear // the gas that it needs costs more than one transaction may cost
	}
	if params.FeeCapWei.Sign() > 0 && cost(params).Cmp(a.BalanceWei) > 0 {
		return ownBalance
	}
	return ""
}

// ownBalance is why an intent waits that the account could not pay with nothing in flight.
const ownBalance = "balance: the account cannot pay for it and a placeholder, also with nothing in flight"

// heldBack has t wait for its own bounds until then. It reports whether intents of other
// callers go ahead of it.
func (r Rules) heldBack(p *preparation, t Tx, reason string, until, now time.Time) (passed bool) {
	if t.HeldBackSince == nil {
		t.HeldBackSince = &now
	}
	if r.DeferAfter == 0 {
		t.DeferredAt = nil
		p.wait(t, reason, until)
		return false
	}
	if after := t.HeldBackSince.Add(r.DeferAfter); t.DeferredAt == nil && after.After(now) {
		p.wait(t, reason, *soonest(&until, after))
		return false
	}
	if t.DeferredAt == nil {
		t.DeferredAt = &now
	}
	p.defers(t, reason+"; deferred since "+t.DeferredAt.UTC().Format(time.RFC3339)+": intents of other callers go ahead of it, later ones of its caller do not", until)
	return true
}

// defers passes t over, and what its caller has behind it.
func (p *preparation) defers(t Tx, reason string, until time.Time) {
	if p.passed == nil {
		p.passed = make(map[string]bool)
	}
	p.passed[t.PresentCaller] = true
	p.passOver(t, reason, until)
}

// headWaits has the head of the queue wait, for a reason that is not its own. Deferred intents
// before it get the next check alone, and keep their reasons.
func (w Work) headWaits(reason string, until time.Time) (moves []Move) {
	for _, t := range w.Queue {
		t.NextCheckAt = &until
		if t.DeferredAt == nil {
			t.LastError = reason
		}
		moves = append(moves, Move{From: Queued, To: t})
		if t.DeferredAt == nil {
			return moves
		}
	}
	return moves
}

// withoutDeferred is w without the deferred intents that are not due, and without the later
// intents of their callers. A load reads none of these either.
func (w Work) withoutDeferred() Work {
	now, behind := w.now(), make(map[string]bool)
	w.Queue = slices.DeleteFunc(w.Queue, func(t Tx) bool {
		if behind[t.PresentCaller] {
			return true
		}
		if t.DeferredAt == nil || t.dueBy(now) {
			return false
		}
		behind[t.PresentCaller] = true
		w.DeferredUntil = soonest(w.DeferredUntil, *t.NextCheckAt)
		return true
	})
	return w
}

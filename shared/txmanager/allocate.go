package txmanager

import (
	"fmt"
	"math/big"
	"time"
)

// allocationPlan is the plan for the head of the queue.
type allocationPlan struct {
	slot        nonceSlots   // where the nonces come from
	allocations []Allocation // unsigned; the signer is asked next
	unsigned    []Unsigned   // one for each allocation
	transitions []Transition // refused, deferred, or waiting with a reason
	waiting     bool         // the head waits: no later intent may pass it
	exhausted   bool         // there was room for more intents than the queue had

	passedCallers map[string]bool      // callers whose deferred intent was passed over: their later intents wait too
	heldBack      map[string]time.Time // see [SubmitterState.HeldBackSince]; never changed in place

	heldBackChanged bool
}

// allocationBlockedReason returns why no nonce can be allocated now, or "".
func allocationBlockedReason(w SubmitterState, unsettled []Tx, v ChainObservation) string {
	first := w.nextSlots().first
	switch a := v.Account; {
	case w.Protected:
		return "the submitter is in PROTECT"
	case w.Suspended:
		return "the submitter is suspended"
	case w.isFilling():
		return "placeholders consume the nonces for which a lost database may have signed, and are not all final yet"
	case v.Disputes.Counts:
		return "the chain's nodes do not agree"
	case w.SuspectedViolation != nil && !isPastSuspected(w, v):
		return "the node does not show whether the suspected violation of the account persists"
	case a.HasCode:
		return "the account has code or a delegation: its nonce may move by itself"
	case a.LatestCount > w.NextNonce || a.PendingCount > w.NextNonce:
		return "the chain's count is ahead of the cursor"
	case a.LatestCount > first || a.PendingCount > first:
		return "the chain's count is ahead of a nonce that was released unsigned"
	case a.LatestCount < w.lowestOpenNonce(), v.Head.Number < w.FinalHead:
		return "the node lags behind what is final"
	}
	for _, t := range unsettled {
		if *t.Nonce < first && !t.isAcknowledged() {
			return fmt.Sprintf("an earlier transaction is %s: nothing goes ahead of it", t.State)
		}
	}
	return ""
}

// planAllocations plans queued transactions, in order, for the free nonce slots of w. It stops
// when these are used up or a transaction has to wait. It rejects a transaction only where the
// reason can never change.
func (r Rules) planAllocations(w SubmitterState, chain ChainConnector, v ChainObservation, estimates map[string]Estimate) allocationPlan {
	p := allocationPlan{slot: w.nextSlots(), heldBack: w.HeldBackSince}
	balance, bounds := newAvailableBalance(v, w.openWithout(p.slot.reservation)), w.Bounds
	for _, t := range w.Queue {
		if len(p.allocations) == p.slot.count {
			return p
		}
		switch {
		case p.passedCallers[t.PresentCaller]:
			continue
		case t.hasExpired(w.now()):
			p.transitions = append(p.transitions, t.expire())
			continue
		case t.Forged != "":
			p.reject(t, t.Forged)
			continue
		case t.NoKey:
			p.passOver(t, t.Unknown, w.now().Add(stuckPollBlocks*r.BlockTime))
			continue
		case t.Unchecked:
			return p
		case t.Unknown != "":
			p.wait(t, t.Unknown, w.now().Add(r.BlockTime))
			return p
		}
		call, err := callOf(t, chain)
		if err != nil {
			p.reject(t, "the payload is no transaction: "+err.Error())
			continue
		}
		if reason := r.forbiddenReason(bounds, t, call); reason != "" {
			p.reject(t, reason)
			continue
		}
		limit, verdict, reason := gasLimit(call, estimates[t.ID], bounds.Gas)
		switch {
		case verdict == Refused && len(w.Open)+len(p.allocations) == 0 && v.oldestBlock() >= w.FinalHead:
			p.reject(t, reason)
			continue
		case verdict == Refused && len(w.Open)+len(p.allocations) == 0:
			p.wait(t, "the node is behind the last final block", w.now().Add(r.BlockTime))
			return p
		case verdict == Refused: // open transactions may change that
			p.deferUntilNonce(t, max(p.nextNonce(), w.NextNonce)-1, "set aside until what is in flight has settled: "+reason)
			continue
		}
		if own := r.ownBoundReason(bounds, call, limit, v.Account); own != "" {
			if !r.deferOrWait(&p, t, own, r.afterBlocks(1, v.Head, w.now()), w.now()) {
				return p
			}
			continue
		}
		if verdict == Unknown && r.DeferAfter > 0 && t.DeferredAt != nil { // its earlier reason may still hold
			p.passDeferred(t, t.LastError, w.now().Add(r.BlockTime))
			continue
		}
		t.HeldBackSince, t.DeferredAt = nil, nil
		if verdict == Unknown {
			p.wait(t, "no gas estimate: "+reason, w.now().Add(r.BlockTime))
			return p
		}
		params := r.clampFees(bounds, r.firstVersionFees(call, limit, v.Account), v.Account)
		if reason := r.tooExpensiveReason(bounds, call, params, v.Account); reason != "" {
			p.wait(t, reason, r.afterBlocks(1, v.Head, w.now()))
			return p
		}
		if reason := bounds.feesUsedUpReason(params.feeWei()); reason != "" {
			p.wait(t, reason, w.now().Add(stuckPollBlocks*r.BlockTime))
			return p
		}
		if short := balance.reserve(params); short != nil {
			p.wait(t, "balance: the account cannot pay for it, what is in flight and a placeholder for each", w.now().Add(r.BlockTime))
			return p
		}
		p.allocate(t, call, params)
		bounds = bounds.withFee(params.feeWei())
		if t.Handler != "" { // no nonce is bound above one without bytes
			return p
		}
	}
	p.exhausted = len(p.allocations) < p.slot.count
	return p
}

// callOf is the call of t. A handler's call is unknown before its nonce is bound; until then the
// gas of a placeholder is reserved.
func callOf(t Tx, chain ChainConnector) (Call, error) {
	if t.Handler != "" {
		return Call{Gas: placeholderGas}, nil
	}
	return chain.ParsePayload(t.Payload)
}

// nextNonce is the nonce of the next allocation.
func (p *allocationPlan) nextNonce() uint64 { return p.slot.first + uint64(len(p.allocations)) }

// allocate plans the next nonce for t.
func (p *allocationPlan) allocate(t Tx, call Call, params GasParams) {
	n := p.nextNonce()
	t.Nonce, t.Gas, t.LastError, t.NextCheckAt = &n, &params, "", nil
	t.HeldBackSince, t.DeferredAt = nil, nil
	p.endHoldBack(t.PresentCaller)
	p.allocations = append(p.allocations, Allocation{Tx: t, Nonce: n, FromReservation: p.slot.reservation})
	p.unsigned = append(p.unsigned, buildUnsigned(t, call))
}

// buildUnsigned is call with t's nonce and gas parameters.
func buildUnsigned(t Tx, call Call) Unsigned {
	return Unsigned{
		ChainID: t.Submitter.ChainID(), Nonce: *t.Nonce, To: call.To, Value: t.Gas.ValueWei, Data: call.Data,
		Gas: t.Gas.Gas, Legacy: t.Gas.Legacy, FeeCapWei: t.Gas.FeeCapWei, TipCapWei: t.Gas.TipCapWei,
	}
}

func (p *allocationPlan) reject(t Tx, reason string) {
	t.State, t.Sub, t.LastError, t.NextCheckAt = Failed, Rejected, reason, nil
	p.transitions = append(p.transitions, Transition{From: Queued, To: t})
}

// wait makes t and all later intents wait. A deferred intent keeps its reason.
func (p *allocationPlan) wait(t Tx, reason string, until time.Time) {
	if t.NextCheckAt = &until; t.DeferredAt == nil {
		t.LastError = reason
	}
	p.transitions = append(p.transitions, Transition{From: Queued, To: t})
	p.waiting = true
}

// passOver makes t wait, but not the later intents: see [SubmitterState.afterCommit].
func (p *allocationPlan) passOver(t Tx, reason string, until time.Time) {
	t.LastError, t.NextCheckAt = reason, &until
	p.transitions = append(p.transitions, Transition{From: Queued, To: t})
}

func (p *allocationPlan) deferUntilNonce(t Tx, until uint64, reason string) {
	t.LastError, t.DeferredUntilNonce, t.HeldBackSince, t.DeferredAt = reason, &until, nil, nil
	p.transitions = append(p.transitions, Transition{From: Queued, To: t})
}

// txGasCap is the gas limit of one transaction (EIP-7825).
const txGasCap = 1 << 24

// gasLimit is the gas limit of call: its own, or the estimate plus one fifth, since state changes
// between the estimate and the block. A plain transfer needs exactly 21,000. policyMost is the
// limit of the submitter's policy; 0: no limit.
func gasLimit(call Call, e Estimate, policyMost uint64) (gas uint64, verdict Outcome, reason string) {
	if call.Gas > 0 {
		return call.Gas, Done, ""
	}
	most := uint64(txGasCap)
	if call.MaxGas > 0 {
		most = call.MaxGas
	}
	if policyMost > 0 && policyMost < most {
		most = policyMost
	}
	switch {
	case e.Outcome == Done && most == policyMost && e.Gas > most:
		return 0, Refused, fmt.Sprintf("the call needs %d gas, above the %d that the submitter's policy allows", e.Gas, most)
	case e.Outcome == Done && call.MaxGas > 0 && e.Gas > most:
		return 0, Refused, fmt.Sprintf("the call needs %d gas, above its maxGas %d", e.Gas, most)
	case e.Outcome == Done && e.Gas > 21_000 && e.Gas <= most:
		return min(e.Gas+e.Gas/5, most), Done, ""
	case e.Outcome == Refused:
		return 0, Refused, withDetail("the call would revert", e.Reason)
	}
	return e.Gas, e.Outcome, withDetail("the node gave none", e.Reason)
}

// availableBalance is the account's balance minus the worst cost of each open nonce and of a
// placeholder for it.
type availableBalance struct{ leftWei *big.Int }

func newAvailableBalance(v ChainObservation, unsettled []Tx) availableBalance {
	p := availableBalance{new(big.Int).Set(v.Account.BalanceWei)}
	for _, t := range unsettled {
		paid := t.Receipt != nil && t.Receipt.BlockNumber <= v.oldestBlock() // the balance is of that block or later
		if t.Gas != nil && !paid {
			p.leftWei.Sub(p.leftWei, costWithPlaceholder(*t.Gas))
		}
	}
	return p
}

// reserve subtracts what g and a placeholder may cost. If the balance is too low, it subtracts
// nothing and returns the missing wei.
func (p *availableBalance) reserve(g GasParams) (shortWei *big.Int) {
	left := new(big.Int).Sub(p.leftWei, costWithPlaceholder(g))
	if left.Sign() < 0 {
		return left.Neg(left)
	}
	p.leftWei = left
	return nil
}

func costWithPlaceholder(g GasParams) *big.Int {
	return new(big.Int).Add(g.worstCostWei(), placeholderCostWei(g.FeeCapWei))
}

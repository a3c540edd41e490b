package rules

import (
	"fmt"
	"maps"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
)

// AllocationPlan is the plan for the head of the queue.
type AllocationPlan struct {
	slot        NonceSlots             // where the nonces come from
	Allocations []txmanager.Allocation // unsigned; the signer is asked next
	Unsigned    []txmanager.Unsigned   // one for each allocation
	Transitions []txmanager.Transition // refused, deferred, or waiting with a reason
	Waiting     bool                   // the head waits: no later intent may pass it
	Exhausted   bool                   // there was room for more intents than the queue had

	PassedCallers map[string]bool      // callers whose deferred intent was passed over: their later intents wait too
	HeldBack      map[string]time.Time // a copy of [txmanager.SubmitterState.HeldBackSince], as it is to become

	HeldBackChanged bool
}

// AllocationBlocked is why no nonce can be allocated now. PROTECT and a suspension have a reason
// and no cause: the submitter's state is the cause.
func AllocationBlocked(w txmanager.SubmitterState, v txmanager.ChainObservation) txmanager.Wait {
	first := NextSlots(w).First
	switch a := v.Account; {
	case w.Protected:
		return txmanager.Wait{Reason: "the submitter is in PROTECT"}
	case w.Suspended:
		return txmanager.Wait{Reason: "the submitter is suspended"}
	case isFilling(w):
		return txmanager.Wait{Cause: txmanager.WaitLostNonces, Reason: "placeholders consume the nonces for which a lost database may have signed, and are not all final yet"}
	case v.Disputes.Counts:
		return txmanager.Wait{Cause: txmanager.WaitNodesDiffer, Reason: "the chain's nodes do not agree"}
	case w.SuspectedViolation != nil && !IsPastSuspected(w, v):
		return txmanager.Wait{Cause: txmanager.WaitSuspected, Reason: "the node does not show whether the suspected violation of the account persists"}
	case a.HasCode:
		return txmanager.Wait{Cause: txmanager.WaitAccountCode, Reason: "the account has code or a delegation, so its nonce can rise without a transaction of its key"}
	case a.LatestCount > w.NextNonce || a.PendingCount > w.NextNonce:
		return txmanager.Wait{Cause: txmanager.WaitSuspected, Reason: "the chain's count is ahead of the cursor"}
	case a.LatestCount > first || a.PendingCount > first:
		return txmanager.Wait{Cause: txmanager.WaitSuspected, Reason: "the chain's count is ahead of a nonce that was released unsigned"}
	case a.LatestCount < w.LowestOpenNonce(), v.Head.Number < w.FinalHead:
		return txmanager.Wait{Cause: txmanager.WaitNodes, Reason: "the node lags behind the last final block"}
	}
	if reason := unacknowledgedReason(w.Open, first); reason != "" {
		return txmanager.Wait{Cause: txmanager.WaitPredecessor, Reason: reason}
	}
	if seen := FindViolation(w, v); seen != nil {
		return txmanager.Wait{Cause: txmanager.WaitSuspected, Reason: seen.Description}
	}
	return txmanager.Wait{}
}

// unacknowledgedReason is why nothing may be allocated from nonce n on: no node has acknowledged a
// transaction below it.
func unacknowledgedReason(open []txmanager.Tx, n uint64) string {
	for _, t := range open {
		if *t.Nonce < n && !t.IsAcknowledged() {
			return fmt.Sprintf("an earlier transaction is %s: nothing goes ahead of it", t.State)
		}
	}
	return ""
}

// allocator plans the queued intents of one submitter, in order.
type allocator struct {
	Rules
	AllocationPlan
	w         txmanager.SubmitterState
	chain     txmanager.ChainConnector
	v         txmanager.ChainObservation
	estimates map[string]txmanager.Estimate
	balance   gas.Balance
	bounds    txmanager.Bounds
	now       time.Time
}

// PlanAllocations plans queued transactions, in order, for the free nonce slots of w. It stops
// when these are used up or a transaction has to wait. It rejects a transaction only where the
// reason can never change.
func (r Rules) PlanAllocations(w txmanager.SubmitterState, chain txmanager.ChainConnector, v txmanager.ChainObservation, estimates map[string]txmanager.Estimate) AllocationPlan {
	a := allocator{Rules: r, w: w, chain: chain, v: v, estimates: estimates, bounds: w.Bounds, now: w.DatabaseTime()}
	a.PassedCallers = make(map[string]bool)
	a.slot, a.HeldBack = NextSlots(w), maps.Collect(maps.All(w.HeldBackSince))
	a.balance = gas.BalanceOf(v, OpenWithout(w, a.slot.Reservation))
	for _, t := range w.Queue {
		if len(a.Allocations) == a.slot.Count || !a.planIntent(t) {
			return a.AllocationPlan
		}
	}
	a.Exhausted = len(a.Allocations) < a.slot.Count
	return a.AllocationPlan
}

// planIntent plans t. It reports whether the intents after t may be planned too.
func (a *allocator) planIntent(t txmanager.Tx) (next bool) {
	switch {
	case a.PassedCallers[t.PresentCaller]:
		return true
	case t.HasExpired(a.now):
		a.Transitions = append(a.Transitions, expire(t))
		return true
	case t.Forged != "":
		return a.reject(t, t.Forged)
	case t.NoKey:
		return a.passOver(t, Unproved(t), a.now.Add(StuckPollBlocks*a.BlockTime))
	case t.Unchecked:
		return false
	case t.Unknown != "":
		return a.Wait(t, Unproved(t), a.now.Add(a.BlockTime))
	}
	call, err := callOf(t, a.chain)
	if err != nil {
		return a.reject(t, "the payload is no transaction: "+err.Error())
	}
	if reason := a.forbiddenReason(a.bounds, t, call); reason != "" {
		return a.reject(t, reason)
	}
	limit, verdict, reason := gas.LimitOf(call, a.estimates[t.ID], a.bounds.Gas)
	if verdict == txmanager.Refused {
		return a.planRefused(t, reason)
	}
	if own := a.OwnBound(a.bounds, call, limit, a.v.Account); own.Reason != "" {
		return a.deferOrWait(&a.AllocationPlan, t, own, a.AfterBlocks(1, a.v.Head, a.now), a.now)
	}
	if verdict == txmanager.Unknown {
		return a.planUnestimated(t, WithoutEstimate(a.estimates[t.ID], reason))
	}
	t.HeldBackSince, t.DeferredAt = nil, nil
	return a.planPriced(t, call, limit)
}

// planRefused plans t, whose call the node refuses now. Open transactions, or a block that the node
// does not have yet, may change that.
func (a *allocator) planRefused(t txmanager.Tx, reason string) (next bool) {
	switch alone := len(a.w.Open)+len(a.Allocations) == 0; {
	case !alone:
		return a.deferUntilNonce(t, max(a.nextNonce(), a.w.NextNonce)-1, "deferred until the open transactions are terminal: "+reason)
	case a.v.OldestBlock() >= a.w.FinalHead:
		return a.reject(t, reason)
	}
	return a.Wait(t, txmanager.Wait{Cause: txmanager.WaitNodes, Reason: "the node lags behind the last final block"}, a.now.Add(a.BlockTime))
}

// planUnestimated plans t without a gas estimate. The earlier reason of a deferred intent may still
// hold.
func (a *allocator) planUnestimated(t txmanager.Tx, why txmanager.Wait) (next bool) {
	if a.DeferAfter > 0 && t.DeferredAt != nil {
		return a.passDeferred(t, txmanager.Wait{Cause: t.Cause, Reason: t.LastError}, a.now.Add(a.BlockTime))
	}
	t.HeldBackSince, t.DeferredAt = nil, nil
	return a.Wait(t, why, a.now.Add(a.BlockTime))
}

// WithoutEstimate is why a call without a gas estimate waits: for money, if the account cannot pay
// its value.
func WithoutEstimate(e txmanager.Estimate, reason string) txmanager.Wait {
	if e.Unfunded {
		return txmanager.Wait{Cause: txmanager.WaitBalance, Reason: "balance: the account cannot pay for it: " + reason}
	}
	return txmanager.Wait{Cause: txmanager.WaitGasEstimate, Reason: "no gas estimate: " + reason}
}

// planPriced allocates the next nonce to t, if blocks accept its fees now and the account and the
// fees of the day can pay for it.
func (a *allocator) planPriced(t txmanager.Tx, call txmanager.Call, limit uint64) (next bool) {
	params := a.ClampFees(a.bounds, a.FirstVersionFees(call, limit, a.v.Account), a.v.Account)
	if reason := a.TooExpensiveReason(a.bounds, call, params, a.v.Account); reason != "" {
		return a.Wait(t, txmanager.Wait{Cause: txmanager.WaitFeeCeiling, Reason: reason}, a.AfterBlocks(1, a.v.Head, a.now))
	}
	if reason := a.bounds.FeesUsedUpReason(params.FeeWei()); reason != "" {
		return a.Wait(t, txmanager.Wait{Cause: txmanager.WaitPolicy, Reason: reason}, a.now.Add(StuckPollBlocks*a.BlockTime))
	}
	if short := a.balance.Reserve(params); short != nil {
		return a.Wait(t, shortBalance, a.now.Add(a.BlockTime))
	}
	a.allocate(t, call, params)
	a.bounds = a.bounds.WithFee(params.FeeWei())
	return t.Handler == "" // no nonce is bound above one without bytes
}

// shortBalance is why an intent waits that the account cannot pay beside the open transactions.
var shortBalance = txmanager.Wait{Cause: txmanager.WaitBalance, Reason: "balance: the account cannot pay for it, the open transactions and a placeholder for each"}

// callOf is the call of t. A handler's call is unknown before its nonce is bound; until then the
// gas of a placeholder is reserved.
func callOf(t txmanager.Tx, chain txmanager.ChainConnector) (txmanager.Call, error) {
	if t.Handler != "" {
		return txmanager.Call{Gas: gas.PlaceholderGas}, nil
	}
	return chain.ParsePayload(t.Payload)
}

// nextNonce is the nonce of the next allocation.
func (p *AllocationPlan) nextNonce() uint64 { return p.slot.First + uint64(len(p.Allocations)) }

// allocate plans the next nonce for t.
func (p *AllocationPlan) allocate(t txmanager.Tx, call txmanager.Call, params txmanager.GasParams) {
	n := p.nextNonce()
	t.Explain("", "")
	t.Nonce, t.Gas, t.NextCheckAt = &n, &params, nil
	t.HeldBackSince, t.DeferredAt = nil, nil
	p.endHoldBack(t.PresentCaller)
	p.Allocations = append(p.Allocations, txmanager.Allocation{Tx: t, Nonce: n, FromReservation: p.slot.Reservation})
	p.Unsigned = append(p.Unsigned, buildUnsigned(t, call))
}

// buildUnsigned is call with t's nonce and gas parameters.
func buildUnsigned(t txmanager.Tx, call txmanager.Call) txmanager.Unsigned {
	return txmanager.Unsigned{
		ChainID: t.Submitter.ChainID(), Nonce: *t.Nonce, To: call.To, Value: t.Gas.ValueWei, Data: call.Data,
		Gas: t.Gas.Gas, Legacy: t.Gas.Legacy, FeeCapWei: t.Gas.FeeCapWei, TipCapWei: t.Gas.TipCapWei,
	}
}

// The methods below plan t's transition. They report whether the intents after t may be planned.

// reject ends t: the reason can never change.
func (p *AllocationPlan) reject(t txmanager.Tx, reason string) (next bool) {
	t.Explain("", reason)
	t.State, t.Sub, t.NextCheckAt = txmanager.Failed, txmanager.Rejected, nil
	p.Transitions = append(p.Transitions, txmanager.Transition{From: txmanager.Queued, To: t})
	return true
}

// Wait makes t and all later intents wait. A deferred intent keeps its reason.
func (p *AllocationPlan) Wait(t txmanager.Tx, why txmanager.Wait, until time.Time) (next bool) {
	if t.NextCheckAt = &until; t.DeferredAt == nil {
		t.Explain(why.Cause, why.Reason)
	}
	p.Transitions = append(p.Transitions, txmanager.Transition{From: txmanager.Queued, To: t})
	p.Waiting = true
	return false
}

// passOver makes t wait, but not the later intents: see [AfterCommit].
func (p *AllocationPlan) passOver(t txmanager.Tx, why txmanager.Wait, until time.Time) (next bool) {
	t.Explain(why.Cause, why.Reason)
	t.NextCheckAt = &until
	p.Transitions = append(p.Transitions, txmanager.Transition{From: txmanager.Queued, To: t})
	return true
}

// deferUntilNonce makes t wait until a nonce is terminal.
func (p *AllocationPlan) deferUntilNonce(t txmanager.Tx, until uint64, reason string) (next bool) {
	t.Explain(txmanager.WaitDeferred, reason)
	t.DeferredUntilNonce, t.HeldBackSince, t.DeferredAt = &until, nil, nil
	p.Transitions = append(p.Transitions, txmanager.Transition{From: txmanager.Queued, To: t})
	return true
}

// forbiddenReason is why the submitter's policy or callers no longer allow queued t, or "". A
// handler's transaction is checked once it is made. The limits of a minute and of a day are not
// checked again: t counted against them when it was accepted.
func (r Rules) forbiddenReason(b txmanager.Bounds, t txmanager.Tx, c txmanager.Call) string {
	if t.BarredReason != "" {
		return t.BarredReason
	}
	if t.Handler == "" {
		if txmanager.ExceedsLimit(c.Value, t.MaxValueWei) {
			return fmt.Sprintf("the submitter's policy allows this caller at most %s wei in one transaction", t.MaxValueWei)
		}
		if reason := b.RefusalReason(txmanager.BoundedTerms{ValueWei: c.Value, Target: c.Target(), Function: c.Function(), AmountUnits: c.TokenAmount()}); reason != "" {
			return reason
		}
	}
	return r.RefusalReason(b, c)
}

// Forbidden counts the intents of w's queue that the submitter's policy and callers no longer
// allow. They would end FAILED/REJECTED in their turn.
func (r Rules) Forbidden(w txmanager.SubmitterState, chain txmanager.ChainConnector) (n int) {
	for _, t := range w.Queue {
		call, err := callOf(t, chain)
		if err != nil || r.forbiddenReason(w.Bounds, t, call) != "" {
			n++
		}
	}
	return n
}

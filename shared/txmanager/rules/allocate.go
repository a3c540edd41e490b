package rules

import (
	"fmt"
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
	HeldBack      map[string]time.Time // see [txmanager.SubmitterState.HeldBackSince]; never changed in place

	HeldBackChanged bool
}

// AllocationBlockedReason returns why no nonce can be allocated now, or "".
func AllocationBlockedReason(w txmanager.SubmitterState, unsettled []txmanager.Tx, v txmanager.ChainObservation) string {
	first := NextSlots(w).First
	switch a := v.Account; {
	case w.Protected:
		return "the submitter is in PROTECT"
	case w.Suspended:
		return "the submitter is suspended"
	case isFilling(w):
		return "placeholders consume the nonces for which a lost database may have signed, and are not all final yet"
	case v.Disputes.Counts:
		return "the chain's nodes do not agree"
	case w.SuspectedViolation != nil && !IsPastSuspected(w, v):
		return "the node does not show whether the suspected violation of the account persists"
	case a.HasCode:
		return "the account has code or a delegation: its nonce may move by itself"
	case a.LatestCount > w.NextNonce || a.PendingCount > w.NextNonce:
		return "the chain's count is ahead of the cursor"
	case a.LatestCount > first || a.PendingCount > first:
		return "the chain's count is ahead of a nonce that was released unsigned"
	case a.LatestCount < w.LowestOpenNonce(), v.Head.Number < w.FinalHead:
		return "the node lags behind what is final"
	}
	for _, t := range unsettled {
		if *t.Nonce < first && !t.IsAcknowledged() {
			return fmt.Sprintf("an earlier transaction is %s: nothing goes ahead of it", t.State)
		}
	}
	return ""
}

// PlanAllocations plans queued transactions, in order, for the free nonce slots of w. It stops
// when these are used up or a transaction has to wait. It rejects a transaction only where the
// reason can never change.
func (r Rules) PlanAllocations(w txmanager.SubmitterState, chain txmanager.ChainConnector, v txmanager.ChainObservation, estimates map[string]txmanager.Estimate) AllocationPlan {
	p := AllocationPlan{slot: NextSlots(w), HeldBack: w.HeldBackSince}
	balance, bounds := gas.BalanceOf(v, OpenWithout(w, p.slot.Reservation)), w.Bounds
	for _, t := range w.Queue {
		if len(p.Allocations) == p.slot.Count {
			return p
		}
		switch {
		case p.PassedCallers[t.PresentCaller]:
			continue
		case t.HasExpired(w.DatabaseTime()):
			p.Transitions = append(p.Transitions, expire(t))
			continue
		case t.Forged != "":
			p.reject(t, t.Forged)
			continue
		case t.NoKey:
			p.passOver(t, t.Unknown, w.DatabaseTime().Add(StuckPollBlocks*r.BlockTime))
			continue
		case t.Unchecked:
			return p
		case t.Unknown != "":
			p.Wait(t, t.Unknown, w.DatabaseTime().Add(r.BlockTime))
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
		limit, verdict, reason := gas.LimitOf(call, estimates[t.ID], bounds.Gas)
		switch {
		case verdict == txmanager.Refused && len(w.Open)+len(p.Allocations) == 0 && v.OldestBlock() >= w.FinalHead:
			p.reject(t, reason)
			continue
		case verdict == txmanager.Refused && len(w.Open)+len(p.Allocations) == 0:
			p.Wait(t, "the node is behind the last final block", w.DatabaseTime().Add(r.BlockTime))
			return p
		case verdict == txmanager.Refused: // open transactions may change that
			p.deferUntilNonce(t, max(p.nextNonce(), w.NextNonce)-1, "set aside until what is in flight has settled: "+reason)
			continue
		}
		if own := r.OwnBoundReason(bounds, call, limit, v.Account); own != "" {
			if !r.deferOrWait(&p, t, own, r.AfterBlocks(1, v.Head, w.DatabaseTime()), w.DatabaseTime()) {
				return p
			}
			continue
		}
		if verdict == txmanager.Unknown && r.DeferAfter > 0 && t.DeferredAt != nil { // its earlier reason may still hold
			p.passDeferred(t, t.LastError, w.DatabaseTime().Add(r.BlockTime))
			continue
		}
		t.HeldBackSince, t.DeferredAt = nil, nil
		if verdict == txmanager.Unknown {
			p.Wait(t, "no gas estimate: "+reason, w.DatabaseTime().Add(r.BlockTime))
			return p
		}
		params := r.ClampFees(bounds, r.FirstVersionFees(call, limit, v.Account), v.Account)
		if reason := r.TooExpensiveReason(bounds, call, params, v.Account); reason != "" {
			p.Wait(t, reason, r.AfterBlocks(1, v.Head, w.DatabaseTime()))
			return p
		}
		if reason := bounds.FeesUsedUpReason(params.FeeWei()); reason != "" {
			p.Wait(t, reason, w.DatabaseTime().Add(StuckPollBlocks*r.BlockTime))
			return p
		}
		if short := balance.Reserve(params); short != nil {
			p.Wait(t, "balance: the account cannot pay for it, what is in flight and a placeholder for each", w.DatabaseTime().Add(r.BlockTime))
			return p
		}
		p.allocate(t, call, params)
		bounds = bounds.WithFee(params.FeeWei())
		if t.Handler != "" { // no nonce is bound above one without bytes
			return p
		}
	}
	p.Exhausted = len(p.Allocations) < p.slot.Count
	return p
}

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
	t.Nonce, t.Gas, t.LastError, t.NextCheckAt = &n, &params, "", nil
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

func (p *AllocationPlan) reject(t txmanager.Tx, reason string) {
	t.State, t.Sub, t.LastError, t.NextCheckAt = txmanager.Failed, txmanager.Rejected, reason, nil
	p.Transitions = append(p.Transitions, txmanager.Transition{From: txmanager.Queued, To: t})
}

// Wait makes t and all later intents wait. A deferred intent keeps its reason.
func (p *AllocationPlan) Wait(t txmanager.Tx, reason string, until time.Time) {
	if t.NextCheckAt = &until; t.DeferredAt == nil {
		t.LastError = reason
	}
	p.Transitions = append(p.Transitions, txmanager.Transition{From: txmanager.Queued, To: t})
	p.Waiting = true
}

// passOver makes t wait, but not the later intents: see [AfterCommit].
func (p *AllocationPlan) passOver(t txmanager.Tx, reason string, until time.Time) {
	t.LastError, t.NextCheckAt = reason, &until
	p.Transitions = append(p.Transitions, txmanager.Transition{From: txmanager.Queued, To: t})
}

func (p *AllocationPlan) deferUntilNonce(t txmanager.Tx, until uint64, reason string) {
	t.LastError, t.DeferredUntilNonce, t.HeldBackSince, t.DeferredAt = reason, &until, nil, nil
	p.Transitions = append(p.Transitions, txmanager.Transition{From: txmanager.Queued, To: t})
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

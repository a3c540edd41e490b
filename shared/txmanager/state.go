package txmanager

import (
	"fmt"
	"slices"
)

// State is where a managed transaction is in its life.
type State string

// The states. Queued holds no nonce; InFlight to Protect hold one; Confirmed
// and Failed are final.
const (
	Queued    State = "QUEUED"    // accepted, waiting its turn, funds or a lower fee
	InFlight  State = "IN_FLIGHT" // nonce allocated, not yet signed
	Submitted State = "SUBMITTED" // signed bytes stored, a broadcast claimed, outcome not known
	Tracking  State = "TRACKING"  // a node has acknowledged it
	Stuck     State = "STUCK"     // attempts exhausted: a decision is needed; still watched
	Protect   State = "PROTECT"   // its nonce was consumed by a transaction that is not ours
	Confirmed State = "CONFIRMED" // included, succeeded, final
	Failed    State = "FAILED"    // final; the sub-state says how
)

// SubState is detail within a state.
type SubState string

// Sub-states of Queued, of Tracking, then of Failed. Rejected, Cancelled and Expired used no
// nonce.
const (
	Held SubState = "HELD" // no nonce is given to it until its caller posts it again or an operator decides

	Pending  SubState = "PENDING"  // no receipt yet
	Included SubState = "INCLUDED" // receipt held, confirmations counting

	Rejected    SubState = "REJECTED"    // refused in preparation
	Cancelled   SubState = "CANCELLED"   // cancelled before allocation
	Expired     SubState = "EXPIRED"     // its validUntil passed before allocation
	Reverted    SubState = "REVERTED"    // mined, and reverted
	Placeholder SubState = "PLACEHOLDER" // a placeholder consumed the nonce
	Displaced   SubState = "DISPLACED"   // a foreign transaction took the nonce, and a human accepted that

	// RecordedOnChain is a sub-state of Confirmed: a release recorded that a foreign
	// transaction was the request.
	RecordedOnChain SubState = "RECORDED"
)

// transitions is the whole of what may happen to a managed transaction. A local
// signer signs for the expected nonce before it is allocated, and then passes
// IN_FLIGHT within one statement: hence QUEUED to SUBMITTED.
var transitions = map[State][]State{
	Queued:    {Queued, InFlight, Submitted, Failed},
	InFlight:  {InFlight, Submitted, Stuck, Protect, Confirmed, Failed},
	Submitted: {Submitted, Tracking, Stuck, Protect, Confirmed, Failed},
	Tracking:  {Tracking, Submitted, Stuck, Protect, Confirmed, Failed},
	Stuck:     {Stuck, Submitted, Tracking, Protect, Confirmed, Failed},
	Protect:   {Protect, Tracking, Confirmed, Failed},
	Confirmed: {},
	Failed:    {},
}

// States lists every state in the order of a transaction's life.
func States() []State {
	return []State{Queued, InFlight, Submitted, Tracking, Stuck, Protect, Confirmed, Failed}
}

// MayBecome says whether a transaction in s may become t.
func (s State) MayBecome(t State) bool { return slices.Contains(transitions[s], t) }

// Terminal says that nothing changes any more.
func (s State) Terminal() bool { return s == Confirmed || s == Failed }

// HoldsOpenNonce says that the transaction holds a nonce whose end is not yet final.
func (s State) HoldsOpenNonce() bool {
	switch s {
	case InFlight, Submitted, Tracking, Stuck, Protect:
		return true
	}
	return false
}

// IllegalTransitionError reports a change of state that the table of transitions does
// not have. It is a defect of the caller; nothing was written.
type IllegalTransitionError struct {
	From, To State
}

// Error names both states.
func (e IllegalTransitionError) Error() string {
	return fmt.Sprintf("a transaction in %s never becomes %s", e.From, e.To)
}

package txmanager

import (
	"fmt"
	"slices"
)

// State is the stage of a managed transaction's lifecycle.
type State string

// The states. A transaction in Queued holds no nonce; one in InFlight to Protect holds one.
// Confirmed and Failed are terminal.
const (
	Queued    State = "QUEUED"    // accepted, waiting for its turn, the balance or a lower fee
	InFlight  State = "IN_FLIGHT" // nonce allocated, not yet signed
	Submitted State = "SUBMITTED" // signed bytes stored, a broadcast claimed, outcome unknown
	Tracking  State = "TRACKING"  // a node has acknowledged it
	Stuck     State = "STUCK"     // broadcasts used up or timed out: needs a decision, still polled
	Protect   State = "PROTECT"   // a foreign transaction consumed its nonce
	Confirmed State = "CONFIRMED" // included, succeeded, final
	Failed    State = "FAILED"    // terminal; the sub-state gives the cause
)

// SubState refines a state.
type SubState string

// The sub-states of Queued, of Tracking, then of Failed. Rejected, Cancelled and Expired
// transactions used no nonce.
const (
	Held SubState = "HELD" // gets no nonce until its caller posts it again or an operator decides

	Pending  SubState = "PENDING"  // no receipt yet
	Included SubState = "INCLUDED" // receipt stored, confirmations being counted

	Rejected    SubState = "REJECTED"    // refused before allocation
	Cancelled   SubState = "CANCELLED"   // cancelled before allocation
	Expired     SubState = "EXPIRED"     // its validUntil passed before allocation
	Reverted    SubState = "REVERTED"    // mined and reverted
	Placeholder SubState = "PLACEHOLDER" // a placeholder consumed the nonce
	Displaced   SubState = "DISPLACED"   // a foreign transaction consumed the nonce, and an operator accepted that

	// RecordedOnChain is a sub-state of Confirmed: a release recorded that a foreign transaction
	// was the request.
	RecordedOnChain SubState = "RECORDED"
)

// transitions lists every allowed change of state. An in-process signer signs for the expected
// nonce before it is allocated. Its transaction passes IN_FLIGHT within one statement, so QUEUED
// may become SUBMITTED.
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

// States lists every state in the order of the lifecycle.
func States() []State {
	return []State{Queued, InFlight, Submitted, Tracking, Stuck, Protect, Confirmed, Failed}
}

// MayBecome reports whether a transaction in s may change to t.
func (s State) MayBecome(t State) bool { return slices.Contains(transitions[s], t) }

// Terminal reports whether the state never changes again.
func (s State) Terminal() bool { return s == Confirmed || s == Failed }

// HoldsOpenNonce reports whether a transaction in this state holds a nonce that is not final yet.
func (s State) HoldsOpenNonce() bool {
	switch s {
	case InFlight, Submitted, Tracking, Stuck, Protect:
		return true
	}
	return false
}

// IllegalTransitionError reports a change of state that transitions does not allow. It is a defect
// of the caller; nothing was written.
type IllegalTransitionError struct {
	From, To State
}

// Error names both states.
func (e IllegalTransitionError) Error() string {
	return fmt.Sprintf("a transaction in %s never becomes %s", e.From, e.To)
}

package txmanager

import (
	"fmt"
	"slices"
)

// State is the stage of a managed transaction's lifecycle.
type State string

// The states. A transaction in Queued holds no nonce; one in InFlight to Protect holds one.
// Confirmed and Failed are terminal. The comments of states and sub-states are their texts in
// docs/state-machine.md and in the description of the API.
const (
	Queued    State = "QUEUED"    // waits for its turn, the balance, a lower fee, an estimate or a node, as `lastError` says
	InFlight  State = "IN_FLIGHT" // nonce allocated, not yet signed
	Submitted State = "SUBMITTED" // signed bytes stored, a broadcast claimed, its outcome not recorded: with a window of one, a node may have it
	Tracking  State = "TRACKING"  // a node has acknowledged it
	Stuck     State = "STUCK"     // attempts or `stuck.after` used up, bytes that no node takes, or `nonce.placeholder=ask`; still polled
	Protect   State = "PROTECT"   // a foreign transaction consumed its nonce: the node knows none of its versions
	Confirmed State = "CONFIRMED" // mined, succeeded, final
	Failed    State = "FAILED"    // terminal; the sub-state gives the cause
)

// SubState refines a state.
type SubState string

// The sub-states. No row stores Held: it is shown for a QUEUED transaction with the flag held.
const (
	Held            SubState = "HELD"        // gets no nonce until its caller posts it again or an operator decides, as `lastError` says
	Pending         SubState = "PENDING"     // acknowledged by a node, no receipt yet
	Included        SubState = "INCLUDED"    // has a receipt, confirmations are counted
	RecordedOnChain SubState = "RECORDED"    // a foreign transaction carried it out, as a release recorded: `txHash` and `receipt` are of that; without `receipt` an operator stated it
	Rejected        SubState = "REJECTED"    // invalid, forbidden, or its call would revert; it used no nonce
	Cancelled       SubState = "CANCELLED"   // cancelled before allocation; it used no nonce
	Expired         SubState = "EXPIRED"     // its `validUntil` passed before allocation; it used no nonce
	Reverted        SubState = "REVERTED"    // mined and final, and it reverted
	Placeholder     SubState = "PLACEHOLDER" // a placeholder consumed its nonce
	Displaced       SubState = "DISPLACED"   // a foreign transaction consumed its nonce, and an operator accepted that
)

// subStates lists the sub-states of each state; "" is none.
var subStates = map[State][]SubState{
	Queued:    {"", Held},
	InFlight:  {""},
	Submitted: {""},
	Tracking:  {Pending, Included},
	Stuck:     {""},
	Protect:   {""},
	Confirmed: {"", RecordedOnChain},
	Failed:    {Rejected, Cancelled, Expired, Reverted, Placeholder, Displaced},
}

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

// SubStates lists the sub-states that a transaction in s may have; "" is none.
func (s State) SubStates() []SubState { return subStates[s] }

// MayBecome reports whether a transaction in s may change to t.
func (s State) MayBecome(t State) bool { return slices.Contains(transitions[s], t) }

// Terminal reports whether the state never changes again.
func (s State) Terminal() bool { return s == Confirmed || s == Failed }

// HoldsOpenNonce reports whether a transaction in this state holds a nonce that is not final yet.
func (s State) HoldsOpenNonce() bool {
	return slices.Contains([]State{InFlight, Submitted, Tracking, Stuck, Protect}, s)
}

// IllegalTransitionError reports a change of state that transitions does not allow. It is a defect
// of the caller; nothing was written.
type IllegalTransitionError struct {
	From, To State
}

func (e IllegalTransitionError) Error() string {
	return fmt.Sprintf("a transaction in %s never becomes %s", e.From, e.To)
}

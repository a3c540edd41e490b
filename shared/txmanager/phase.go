package txmanager

import "slices"

// Phase is what a transaction waits for. Exactly one holds for each transaction; [Tx.Phase] derives
// it from the stored row. What signs, evaluates or schedules a transaction depends on it.
type Phase string

// The phases, in the order of the lifecycle.
const (
	AwaitingNonce     Phase = "NONCE"     // queued
	AwaitingMark      Phase = "MARK"      // a reserved nonce: its owner's mark, the reuse of the nonce, or its expiry
	AwaitingHandler   Phase = "HANDLER"   // its handler's call
	AwaitingSignature Phase = "SIGNATURE" // its first version
	AwaitingAction    Phase = "ACTION"    // the requested action
	AwaitingReceipt   Phase = "RECEIPT"   // it is broadcast, again or with higher fees, until a receipt arrives
	AwaitingFinality  Phase = "FINALITY"  // it has a receipt, and blocks are counted
	AwaitingDecision  Phase = "DECISION"  // STUCK: an operator or a [StuckResolution]
	AwaitingRelease   Phase = "RELEASE"   // in PROTECT: an operator
	Ended             Phase = "ENDED"     // nothing
)

// Phase is what t waits for.
func (t Tx) Phase() Phase {
	switch {
	case t.State.Terminal():
		return Ended
	case t.State == Queued:
		return AwaitingNonce
	case t.State == Protect:
		return AwaitingRelease
	case t.RequestedAction != "" && t.Receipt == nil:
		return AwaitingAction
	case t.State == Stuck:
		return AwaitingDecision
	case t.State == InFlight && t.Reservation != nil && t.Reservation.State != Used:
		return AwaitingMark
	case t.State == InFlight && t.Handler != "":
		return AwaitingHandler
	case t.State == InFlight:
		return AwaitingSignature
	case t.Sub == Included:
		return AwaitingFinality
	}
	return AwaitingReceipt
}

// NeedsSigner reports whether only a function that may sign can end the phase.
func (p Phase) NeedsSigner() bool {
	return slices.Contains([]Phase{AwaitingMark, AwaitingHandler, AwaitingSignature, AwaitingAction}, p)
}

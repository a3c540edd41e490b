package transfer

import (
	"fmt"
	"slices"
)

// State is the stored state of a transfer.
type State int16

// The states. Committed, Failed and RolledBack are terminal.
const (
	Init          State = 0   // accepted; funds at the source
	SourcePending State = 10  // the source is about to be called
	SourceDone    State = 20  // the source said yes; funds in flight
	TargetPending State = 30  // the target is about to be called
	Committed     State = 40  // the target said yes; funds at the target
	Failed        State = -10 // the source refused, or was never called; funds untouched
	Compensating  State = -20 // the target refused; the refund is under way
	RolledBack    State = -30 // refunded
)

// transitions has every allowed transition of a transfer. The trigger guard_transfer has the same pairs
// and rejects any other.
var transitions = map[State][]State{
	Init:          {SourcePending, Failed},
	SourcePending: {SourceDone, Failed},
	SourceDone:    {TargetPending},
	TargetPending: {Committed, Compensating},
	Compensating:  {RolledBack},
	Committed:     {},
	Failed:        {},
	RolledBack:    {},
}

var stateNames = map[State]string{
	Init: "INIT", SourcePending: "SOURCE_PENDING", SourceDone: "SOURCE_DONE", TargetPending: "TARGET_PENDING",
	Committed: "COMMITTED", Failed: "FAILED", Compensating: "COMPENSATING", RolledBack: "ROLLED_BACK",
}

// States returns every state in the order of a transfer's lifecycle.
func States() []State {
	return []State{Init, SourcePending, SourceDone, TargetPending, Committed, Failed, Compensating, RolledBack}
}

// MayBecome reports whether a transfer in s can go to t.
func (s State) MayBecome(t State) bool { return slices.Contains(transitions[s], t) }

// Terminal reports whether the state can no longer change.
func (s State) Terminal() bool { return s == Committed || s == Failed || s == RolledBack }

// AwaitedOp returns the operation whose answer a transfer in s waits for, or "". Only these states
// have unknown answers, and only they can be resolved.
func (s State) AwaitedOp() Op { return awaitedOps[s] }

var awaitedOps = map[State]Op{SourcePending: Withdraw, TargetPending: Deposit, Compensating: Refund}

// String returns the state's name in the API.
func (s State) String() string {
	if name, ok := stateNames[s]; ok {
		return name
	}
	return fmt.Sprintf("State(%d)", int16(s))
}

// IllegalTransitionError reports a path that the table of transitions does not have. The caller has a
// defect; nothing was written.
type IllegalTransitionError struct {
	From, To State
}

func (e IllegalTransitionError) Error() string {
	return fmt.Sprintf("a transfer in %s never becomes %s", e.From, e.To)
}

// Legal returns nil if a transfer can go along the path from its first state on. Otherwise it
// returns an [IllegalTransitionError] for the first forbidden step.
func Legal(path []State) error {
	if len(path) < 2 {
		return fmt.Errorf("a path has %d states, want at least 2", len(path))
	}
	for i, to := range path[1:] {
		if !path[i].MayBecome(to) {
			return IllegalTransitionError{path[i], to}
		}
	}
	return nil
}

// Package model checks reservations together with intents. It visits every interleaving of two
// workers, two reservations and two intents of one submitter. That includes crashes, expiries,
// cancels, lost, late and repeated marks, and owners who send their bytes themselves.
//
// Each atomic operation is one step: a load, a fenced write, the arrival of a mark, a send, a
// nonce that the chain consumes. Any step can occur between a load and its write. Time has no
// number: a reservation can expire at any moment. Package shared/lease/model shows that a lease
// fences; here it is a rule.
//
// Two properties are checked. First, every allocated nonce always has a holder, has versions of at
// most one payload, and is consumed only by its holder's bytes or a placeholder. Second, from
// every state a terminal state can be reached, in which the chain has consumed every allocated
// nonce. Start reading at [Check].
package model

import "github.com/fencepost/fencepost/shared/modelcheck"

// maxStates is how many states a search visits before it stops.
const maxStates = 10_000_000

// Rules are the rules that reservations depend on. A false field replaces its rule by a plausible
// wrong alternative.
type Rules struct {
	// TimeOutFills: a placeholder consumes the nonce of an expired reservation. Otherwise the
	// nonce is allocated again (H13).
	TimeOutFills bool
	// OwnersOnly: a mark counts only for its own reservation, while that is RESERVED, not expired,
	// and no placeholder is requested. Otherwise it counts for the present holder of the nonce.
	OwnersOnly bool
	// UnsignedOnly: a nonce with stored bytes cannot be released. Otherwise the owner's mark is
	// accepted.
	UnsignedOnly bool
	// IntentFirst: the write locks the intent, which must still be queued, before the reservation
	// releases its nonce. Otherwise a cancelled intent leaves the nonce without a holder (H5).
	IntentFirst bool
	// ReleasedTimesOut: a placeholder also consumes a released nonce that is not reused in time.
	// Otherwise the nonce can wait forever.
	ReleasedTimesOut bool
	// Fenced: a write succeeds only if no other invocation took the lease since the load.
	Fenced bool
	// StoredFirst: only stored bytes are sent. Otherwise an owner's bytes are sent first and
	// stored later.
	StoredFirst bool
}

// All are the rules of the protocol.
func All() Rules { return Rules{true, true, true, true, true, true, true} }

// Budget bounds a run.
type Budget struct {
	Workers int8
	Window  int8 // at most 3
	Intents int8 // at most 2
	Owners  int8 // reservations requested, at most 2
	Crashes int8 // of workers between load and write
	Losses  int8 // marks that never arrive
	Twice   int8 // marks that arrive twice
	Cancels int8 // cancels of queued intents
	Rogues  int8 // owners who send their signed bytes themselves
}

// Check visits every interleaving within b and reports the first state that breaks a property.
func Check(r Rules, b Budget) modelcheck.Report {
	p := protocol{r, b}
	return modelcheck.Search(modelcheck.Machine[state, state, string]{
		Start: p.start(), Key: func(s state) state { return s }, Next: p.next, Terminal: state.isTerminal,
		Violation: func(s state, _ []string) string { return s.violation() }, Describe: func(s state) string { return s.violation() },
	}, maxStates)
}

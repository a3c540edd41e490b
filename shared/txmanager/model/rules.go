package model

import "github.com/fencepost/fencepost/shared/modelcheck"

// maxStates is how many states a search meets before it gives up.
const maxStates = 10_000_000

// Rules are the sentences that reservations stand on. A field that is false leaves its
// rule out and puts in its place what a plausible build does instead.
type Rules struct {
	// TimeOutFills: what nobody marked in time is consumed by a placeholder. Else its
	// nonce is given out again (H13).
	TimeOutFills bool
	// OwnersOnly: a mark names its reservation, and counts while that is RESERVED, in
	// time, and nobody has ordered anything. Else it counts for whoever has the nonce.
	OwnersOnly bool
	// UnsignedOnly: what has stored bytes is never given back. Else its owner's word is
	// taken.
	UnsignedOnly bool
	// TakerFirst: the taker is locked, and still in the queue, before the reservation
	// gives its nonce up. Else it has left the queue meanwhile, and nobody has it (H5).
	TakerFirst bool
	// GivenBackTimesOut: what was given back and not taken in time is consumed, too. Else
	// it waits for a taker for ever.
	GivenBackTimesOut bool
	// Fenced: a write holds only if nobody took the lease since its load.
	Fenced bool
	// StoredFirst: only stored bytes are sent. Else what an owner hands in goes out first,
	// and is stored after.
	StoredFirst bool
}

// All are the rules of the protocol, none left out.
func All() Rules { return Rules{true, true, true, true, true, true, true} }

// Budget bounds a run.
type Budget struct {
	Workers int8
	Window  int8 // at most 3
	Intents int8 // at most 2
	Owners  int8 // reservations asked for, at most 2
	Crashes int8 // of workers between load and write
	Losses  int8 // marks that never arrive
	Twice   int8 // marks that arrive once more, later
	Cancels int8 // of intents in the queue
	Rogues  int8 // owners who send by themselves what they signed
}

// Check walks every interleaving within b and reports the first state that is wrong.
func Check(r Rules, b Budget) modelcheck.Report {
	p := protocol{r, b}
	return modelcheck.Search(modelcheck.Machine[state, state, string]{
		Start: p.start(), Key: func(s state) state { return s }, Next: p.next, Terminal: state.ended,
		Violation: func(s state, _ []string) string { return s.wrong() },
	}, maxStates).Report(func(s state) string { return s.wrong() })
}

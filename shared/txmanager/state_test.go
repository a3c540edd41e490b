package txmanager

import (
	"errors"
	"fmt"
	"testing"
)

// The specification's table, as edges: a row of reasons for each state; all other pairs are
// forbidden.
func TestTransitionsAreTheSpecifications(t *testing.T) {
	t.Parallel()
	allowed := map[State]map[State]string{
		Queued: {
			Queued: "waits with a reason", InFlight: "its nonce is allocated",
			Submitted: "a local signer: allocated and signed in one statement", Failed: "refused, or cancelled before allocation",
		},
		InFlight: {
			InFlight: "is looked at", Submitted: "bytes and hash are stored",
			Stuck: "no policy may act", Protect: "a foreign transaction took the nonce",
			Confirmed: "a release recorded that a foreign transaction was it", Failed: "displaced: a human accepted it",
		},
		Submitted: {
			Submitted: "is sent again", Tracking: "a node has acknowledged it", Stuck: "attempts exhausted",
			Protect: "a foreign transaction took the nonce", Confirmed: "found final", Failed: "found reverted and final",
		},
		Tracking: {
			Tracking: "is watched", Submitted: "another version is claimed", Stuck: "attempts exhausted",
			Protect: "a foreign transaction took the nonce", Confirmed: "final", Failed: "reverted and final",
		},
		Stuck: {
			Stuck: "goes on being watched", Submitted: "a decision: sent again", Tracking: "a receipt came",
			Protect: "a foreign transaction took the nonce", Confirmed: "final", Failed: "reverted and final",
		},
		Protect: {
			Protect: "goes on being watched", Tracking: "a reorg freed the nonce", Failed: "displaced: a human accepted it",
			Confirmed: "a release recorded that a foreign transaction was it",
		},
		Confirmed: {}, Failed: {},
	}
	if len(allowed) != len(States()) {
		t.Fatalf("states: got %d, want %d", len(States()), len(allowed))
	}
	for _, from := range States() {
		for _, to := range States() {
			_, want := allowed[from][to]
			if got := from.MayBecome(to); got != want {
				t.Errorf("%s to %s: got %v, want %v", from, to, got, want)
			}
		}
	}
}

func TestFinalStatesHaveNoExits(t *testing.T) {
	t.Parallel()
	for _, s := range States() {
		exits := 0
		for _, to := range States() {
			if s.MayBecome(to) {
				exits++
			}
		}
		if s.Terminal() != (exits == 0) {
			t.Errorf("%s: final %v with %d exits, want final exactly where there is none", s, s.Terminal(), exits)
		}
	}
}

// A state either waits for a nonce, holds one, or is terminal. One that holds a nonce never
// returns to the queue.
func TestHeldNoncesNeverReturnToTheQueue(t *testing.T) {
	t.Parallel()
	for _, s := range States() {
		kinds := 0
		for _, is := range []bool{s == Queued, s.HoldsOpenNonce(), s.Terminal()} {
			if is {
				kinds++
			}
		}
		if kinds != 1 {
			t.Errorf("%s: got %d of queued, unsettled, final; want exactly one", s, kinds)
		}
		if s != Queued && s.MayBecome(Queued) {
			t.Errorf("%s may become QUEUED: its nonce would be skipped", s)
		}
	}
	if State("LOST").MayBecome(Queued) || State("LOST").Terminal() || State("LOST").HoldsOpenNonce() {
		t.Error("an unknown state may do something, want nothing")
	}
}

func TestIllegalTransitionNamesBothStates(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("transaction x: %w", IllegalTransitionError{From: Confirmed, To: Queued})
	got, ok := errors.AsType[IllegalTransitionError](err)
	if !ok || got.From != Confirmed || got.To != Queued {
		t.Errorf("got %+v, %v; want CONFIRMED to QUEUED", got, ok)
	}
	if want := "transaction x: a transaction in CONFIRMED never becomes QUEUED"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

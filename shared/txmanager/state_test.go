package txmanager_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// The specification's table, as edges: a row of reasons for each state; all other pairs are
// forbidden.
func TestTransitionsAreTheSpecifications(t *testing.T) {
	t.Parallel()
	allowed := map[txmanager.State]map[txmanager.State]string{
		txmanager.Queued: {
			txmanager.Queued: "waits with a reason", txmanager.InFlight: "its nonce is allocated",
			txmanager.Submitted: "a local signer: allocated and signed in one statement", txmanager.Failed: "refused, or cancelled before allocation",
		},
		txmanager.InFlight: {
			txmanager.InFlight: "is looked at", txmanager.Submitted: "bytes and hash are stored",
			txmanager.Stuck: "no policy may act", txmanager.Protect: "a foreign transaction took the nonce",
			txmanager.Confirmed: "a release recorded that a foreign transaction was it", txmanager.Failed: "displaced: a human accepted it",
		},
		txmanager.Submitted: {
			txmanager.Submitted: "is sent again", txmanager.Tracking: "a node has acknowledged it", txmanager.Stuck: "attempts exhausted",
			txmanager.Protect: "a foreign transaction took the nonce", txmanager.Confirmed: "found final", txmanager.Failed: "found reverted and final",
		},
		txmanager.Tracking: {
			txmanager.Tracking: "is watched", txmanager.Submitted: "another version is claimed", txmanager.Stuck: "attempts exhausted",
			txmanager.Protect: "a foreign transaction took the nonce", txmanager.Confirmed: "final", txmanager.Failed: "reverted and final",
		},
		txmanager.Stuck: {
			txmanager.Stuck: "goes on being watched", txmanager.Submitted: "a decision: sent again", txmanager.Tracking: "a receipt came",
			txmanager.Protect: "a foreign transaction took the nonce", txmanager.Confirmed: "final", txmanager.Failed: "reverted and final",
		},
		txmanager.Protect: {
			txmanager.Protect: "goes on being watched", txmanager.Tracking: "a reorg freed the nonce", txmanager.Failed: "displaced: a human accepted it",
			txmanager.Confirmed: "a release recorded that a foreign transaction was it",
		},
		txmanager.Confirmed: {}, txmanager.Failed: {},
	}
	if len(allowed) != len(txmanager.States()) {
		t.Fatalf("states: got %d, want %d", len(txmanager.States()), len(allowed))
	}
	for _, from := range txmanager.States() {
		check.Equal(t, fmt.Sprintf("%s is terminal", from), from.Terminal(), len(allowed[from]) == 0)
		for _, to := range txmanager.States() {
			_, want := allowed[from][to]
			check.Equal(t, fmt.Sprintf("%s to %s", from, to), from.MayBecome(to), want)
		}
	}
}

// A state either waits for a nonce, holds one, or is terminal. One that holds a nonce never
// returns to the queue.
func TestHeldNoncesNeverReturnToTheQueue(t *testing.T) {
	t.Parallel()
	for _, s := range txmanager.States() {
		kinds := 0
		for _, is := range []bool{s == txmanager.Queued, s.HoldsOpenNonce(), s.Terminal()} {
			if is {
				kinds++
			}
		}
		check.Equal(t, fmt.Sprintf("%s: of queued, unsettled, final", s), kinds, 1)
		if s != txmanager.Queued && s.MayBecome(txmanager.Queued) {
			t.Errorf("%s may become QUEUED: its nonce would be skipped", s)
		}
	}
	if txmanager.State("LOST").MayBecome(txmanager.Queued) || txmanager.State("LOST").Terminal() || txmanager.State("LOST").HoldsOpenNonce() {
		t.Error("an unknown state may do something, want nothing")
	}
}

func TestIllegalTransitionNamesBothStates(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("transaction x: %w", txmanager.IllegalTransitionError{From: txmanager.Confirmed, To: txmanager.Queued})
	got, ok := errors.AsType[txmanager.IllegalTransitionError](err)
	if !ok || got.From != txmanager.Confirmed || got.To != txmanager.Queued {
		t.Errorf("got %+v, %v; want CONFIRMED to QUEUED", got, ok)
	}
	if want := "transaction x: a transaction in CONFIRMED never becomes QUEUED"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

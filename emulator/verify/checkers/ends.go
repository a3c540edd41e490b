package checkers

import (
	"github.com/fencepost/fencepost/shared/txmanager"
)

// cursor compares the cursor with the rows from which it is derived.
func cursor(a *account, report reporter) {
	var lowest *managed
	for _, t := range a.txs {
		if t.State.HoldsOpenNonce() && t.Nonce != nil && (lowest == nil || *t.Nonce < *lowest.Nonce) {
			lowest = &t
		}
	}
	want := "IDLE"
	switch {
	case a.Protected:
		want = "PROTECT"
	case lowest != nil:
		want = "IN_FLIGHT"
	}
	if a.InFlightState != want {
		report("", "the cursor is %s, want %s", a.InFlightState, want)
	}
	switch {
	case lowest == nil && a.InFlightNonce != nil:
		report("", "the cursor names nonce %d, and nothing is unsettled", *a.InFlightNonce)
	case lowest == nil:
	case a.InFlightNonce == nil || a.InFlightTx == nil:
		report(lowest.ID, "the cursor names nothing, and nonce %d is unsettled", *lowest.Nonce)
	case *a.InFlightNonce != *lowest.Nonce || *a.InFlightTx != lowest.ID:
		report(lowest.ID, "the cursor names nonce %d of %s, and nonce %d is unsettled", *a.InFlightNonce, *a.InFlightTx, *lowest.Nonce)
	}
}

// settled requires every transaction to be terminal, if the episode is settled.
func settled(a *account, report reporter) {
	if !a.settled {
		return
	}
	for _, t := range a.txs {
		switch {
		case t.State == txmanager.Queued:
			report(t.ID, "it is still QUEUED")
		case t.State.Terminal():
		case t.Nonce != nil:
			report(t.ID, "it is still %s at nonce %d", t.ended(), *t.Nonce)
		default:
			report(t.ID, "it is still %s", t.ended())
		}
	}
	if a.LeaseHeld {
		report("", "the lease is held, under token %d", a.LeaseToken)
	}
	if a.Wake {
		report("", "a rerun flag is left on the lease")
	}
}

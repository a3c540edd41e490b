package rules

import (
	"fmt"
	"slices"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// expireReservation is t with a placeholder requested, or STUCK where an operator must decide
// first. An expired nonce is never allocated again, because its owner may have signed and sent
// bytes elsewhere (H13).
func (r Rules) expireReservation(t txmanager.Tx, w txmanager.SubmitterState) txmanager.Transition {
	what := "was not marked in time"
	if t.Reservation.State == txmanager.Recyclable {
		what = "was released, and not used in time"
	}
	reason := fmt.Sprintf("the nonce that was reserved for %s %s", t.Reservation.Owner, what)
	return r.requestPlaceholder(t, decidedByTimeOut, reason, w)
}

// NonceSlots are the source of the next nonces.
type NonceSlots struct {
	First       uint64
	Count       int    // number of nonces
	Reservation string // the transaction of the reservation that releases the nonce; "": the cursor advances
}

// NextSlots is the lowest released nonce, if nodes hold all open transactions below it. Otherwise
// it is the nonces from the cursor on. A gap below another nonce is filled first. It uses the time
// of the load, so that one iteration always gets the same result; the commit checks the clock
// again.
func NextSlots(w txmanager.SubmitterState) NonceSlots {
	if lowest := FreeSlots(w, 1); len(lowest) > 0 && lowest[0].Reservation != "" {
		return lowest[0]
	}
	return NonceSlots{First: w.NextNonce, Count: w.RoomInWindow()}
}

// mayReuseNonce reports whether a released nonce may be bound again. A strict submitter may do so
// only if it is the one open nonce.
func mayReuseNonce(w txmanager.SubmitterState) bool { return !w.Strict || len(w.Open) == 1 }

// FreeSlots lists the lowest n nonces that are free now, or fewer. Released nonces come first, as
// long as each lower nonce is acknowledged or itself released. Those from the cursor on follow.
func FreeSlots(w txmanager.SubmitterState, n int) (all []NonceSlots) {
	for _, t := range w.Open {
		if t.IsReusable(w.Now) && mayReuseNonce(w) {
			all = append(all, NonceSlots{First: *t.Nonce, Count: 1, Reservation: t.ID})
		} else if !t.IsAcknowledged() {
			return all[:min(len(all), n)]
		}
	}
	for i := range min(w.RoomInWindow(), n) {
		all = append(all, NonceSlots{First: w.NextNonce + uint64(i), Count: 1})
	}
	return all[:min(len(all), n)]
}

// OpenWithout lists the open transactions except the one named.
func OpenWithout(w txmanager.SubmitterState, id string) []txmanager.Tx {
	if id == "" {
		return w.Open
	}
	return slices.DeleteFunc(slices.Clone(w.Open), func(t txmanager.Tx) bool { return t.ID == id })
}

// isFilling reports whether placeholders of a release are not final yet. Until then bytes of a
// lost database can be mined, and no other nonce is bound.
func isFilling(w txmanager.SubmitterState) bool {
	return slices.ContainsFunc(w.Open, func(t txmanager.Tx) bool { return t.FillsLostNonce })
}

// waitsForWindow reports whether the open transaction at i is a fill that the window has no room
// to send yet. Its nonce is bound already.
func waitsForWindow(w txmanager.SubmitterState, i int) bool {
	t := w.Open[i]
	return t.FillsLostNonce && len(t.Versions) == 0 && i >= int(w.Window)
}

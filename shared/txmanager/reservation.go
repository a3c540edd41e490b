package txmanager

import (
	"fmt"
	"slices"
	"time"
)

// ReservationState is the state of a nonce that was reserved without an intent.
type ReservationState string

// The states. Used and Recyclable never change. A reservation without a mark in time stays
// Reserved, and a placeholder consumes its nonce.
const (
	Reserved   ReservationState = "RESERVED"   // its owner may sign for it
	Used       ReservationState = "USED"       // its owner's bytes are stored; from now on it is an ordinary transaction
	Recyclable ReservationState = "RECYCLABLE" // its owner released it unsigned: the next allocation gets the nonce
)

// Reservation is an outside owner's claim to a nonce. The transaction that represents it is
// IN_FLIGHT and has no payload.
type Reservation struct {
	State ReservationState
	Owner string    // only the owner may mark it
	Until time.Time // by the database's clock; from then on a placeholder is due
}

// awaitsMark reports whether t waits for its mark, for reuse of its nonce, or for its expiry.
func (t Tx) awaitsMark() bool {
	return t.Reservation != nil && t.Reservation.State != Used && t.State == InFlight && t.RequestedAction == ""
}

// isExpired reports whether t was not marked, or its nonce not reused, in time.
func (t Tx) isExpired(now time.Time) bool { return t.awaitsMark() && !now.Before(t.Reservation.Until) }

// isReusable reports whether t's nonce may be allocated again.
func (t Tx) isReusable(now time.Time) bool {
	return t.awaitsMark() && t.Reservation.State == Recyclable && len(t.Versions) == 0 && !t.isExpired(now)
}

// isMadeElsewhere reports whether t's payload does not determine its call.
func (t Tx) isMadeElsewhere() bool { return t.Handler != "" || t.Reservation != nil }

// decidedByTimeOut is recorded as the decider of the placeholder for an expired reservation.
const decidedByTimeOut = "hooks"

// expireReservation is t with a placeholder requested, or STUCK where an operator must decide
// first. An expired nonce is never allocated again, because its owner may have signed and sent
// bytes elsewhere (H13).
func (r Rules) expireReservation(t Tx, w SubmitterState) Transition {
	from, what := t.State, "was not marked in time"
	if t.Reservation.State == Recyclable {
		what = "was given back, and nobody took it in time"
	}
	reason := fmt.Sprintf("the nonce that was reserved for %s %s", t.Reservation.Owner, what)
	if r.AskBeforePlaceholder {
		return Transition{From: from, To: r.markStuck(t, w.now(), reason+"; nonce.placeholder=ask: an operator must decide")}
	}
	t.RequestedAction, t.LastError = ActionPlaceholder, reason
	return Transition{From: from, To: t, Decision: &Decision{Action: ActionPlaceholder, By: decidedByTimeOut, Reason: reason}}
}

// nonceSlots are the source of the next nonces.
type nonceSlots struct {
	first       uint64
	count       int    // number of nonces
	reservation string // the transaction of the reservation that releases the nonce; "": the cursor advances
}

// nextSlots is the lowest released nonce, if nodes hold all open transactions below it. Otherwise
// it is the nonces from the cursor on. A gap below another nonce is filled first. It uses the time
// of the load, so that one iteration always gets the same result; the commit checks the clock
// again.
func (w SubmitterState) nextSlots() nonceSlots {
	for _, t := range w.Open {
		if t.isReusable(w.Now) && w.mayReuseNonce() {
			return nonceSlots{first: *t.Nonce, count: 1, reservation: t.ID}
		}
		if !t.isAcknowledged() {
			break
		}
	}
	return nonceSlots{first: w.NextNonce, count: w.roomInWindow()}
}

// mayReuseNonce reports whether a released nonce may be bound again. A strict submitter may do so
// only if it is the one open nonce.
func (w SubmitterState) mayReuseNonce() bool { return !w.Strict || len(w.Open) == 1 }

// freeSlots lists the lowest n nonces that are free now, or fewer. Released nonces come first, as
// long as each lower nonce is acknowledged or itself released. Those from the cursor on follow.
func (w SubmitterState) freeSlots(n int) (all []nonceSlots) {
	whole := true // no nonce below the cursor blocks
	for _, t := range w.Open {
		if t.isReusable(w.Now) && w.mayReuseNonce() {
			all = append(all, nonceSlots{first: *t.Nonce, count: 1, reservation: t.ID})
		} else if !t.isAcknowledged() {
			whole = false
			break
		}
	}
	if whole {
		for i := range w.roomInWindow() {
			if len(all) == n {
				break
			}
			all = append(all, nonceSlots{first: w.NextNonce + uint64(i), count: 1})
		}
	}
	return all[:min(len(all), n)]
}

// openWithout lists the open transactions except the one named.
func (w SubmitterState) openWithout(id string) []Tx {
	if id == "" {
		return w.Open
	}
	return slices.DeleteFunc(slices.Clone(w.Open), func(t Tx) bool { return t.ID == id })
}

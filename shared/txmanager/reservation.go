package txmanager

import (
	"fmt"
	"slices"
	"time"
)

// ReservationState is what became of a nonce that somebody asked for by itself.
type ReservationState string

// The states. Used and Recyclable never change. What nobody marked in time stays
// Reserved, and its nonce is consumed by a placeholder.
const (
	Reserved   ReservationState = "RESERVED"   // its owner may sign for it
	Used       ReservationState = "USED"       // its owner's bytes are stored: from here on a transaction like any other
	Recyclable ReservationState = "RECYCLABLE" // its owner gave it back unsigned: whoever needs a nonce gets it
)

// Reservation is the hold that an owner outside has on a nonce. The transaction
// that stands for it is IN_FLIGHT, bound to nobody's payload.
type Reservation struct {
	State ReservationState
	Owner string    // alone may mark it
	Until time.Time // from then on, by the database's clock, it is nobody's: a placeholder is due
}

// awaitsMark says that t waits for its reservation's mark, or its taker, or its end.
func (t Tx) awaitsMark() bool {
	return t.Reservation != nil && t.Reservation.State != Used && t.State == InFlight && t.RequestedAction == ""
}

// isExpired says that t was not marked, or not taken, in time.
func (t Tx) isExpired(now time.Time) bool { return t.awaitsMark() && !now.Before(t.Reservation.Until) }

// isReusable says that t's nonce may be given out again.
func (t Tx) isReusable(now time.Time) bool {
	return t.awaitsMark() && t.Reservation.State == Recyclable && len(t.Versions) == 0 && !t.isExpired(now)
}

// isMadeElsewhere says that t's payload does not tell what its versions do.
func (t Tx) isMadeElsewhere() bool { return t.Handler != "" || t.Reservation != nil }

// decidedByTimeOut is who ordered the placeholder of a reservation that nobody
// marked.
const decidedByTimeOut = "hooks"

// expireReservation is t with a placeholder ordered, or STUCK where an operator has to be
// asked first. A time-out never recycles: its owner may have signed, and sent
// elsewhere (H13).
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

// nonceSlots is where the next nonces come from.
type nonceSlots struct {
	first       uint64
	count       int    // how many there are
	reservation string // the transaction of the reservation that gives it up; "": the cursor moves
}

// nextSlots is the lowest nonce that was given back, if a node has all that is below it;
// else those from the cursor on. A gap below something else is filled first. What was
// given back is so by the time of the load, so that one round never says otherwise;
// the write looks at the clock again.
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

// mayReuseNonce says that a nonce which was given back may be bound again: for a strict
// submitter only where it is the one open nonce.
func (w SubmitterState) mayReuseNonce() bool { return !w.Strict || len(w.Open) == 1 }

// freeSlots are the first n nonces that can be had now, the lowest first: those given
// back, while a node has all that is below or it is one of them, then those from the
// cursor on. There may be fewer.
func (w SubmitterState) freeSlots(n int) (all []nonceSlots) {
	whole := true // nothing below the cursor keeps anything back
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

// openWithout is what is unsettled but for the transaction named.
func (w SubmitterState) openWithout(id string) []Tx {
	if id == "" {
		return w.Open
	}
	return slices.DeleteFunc(slices.Clone(w.Open), func(t Tx) bool { return t.ID == id })
}

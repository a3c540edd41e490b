package nonce

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

// awaited says that t waits for its reservation's mark, or its taker, or its end.
func (t Tx) awaited() bool {
	return t.Reservation != nil && t.Reservation.State != Used && t.State == InFlight && t.Ordered == ""
}

// overtime says that t was not marked, or not taken, in time.
func (t Tx) overtime(now time.Time) bool { return t.awaited() && !now.Before(t.Reservation.Until) }

// givenBack says that t's nonce may be given out again.
func (t Tx) givenBack(now time.Time) bool {
	return t.awaited() && t.Reservation.State == Recyclable && len(t.Versions) == 0 && !t.overtime(now)
}

// opaque says that t's payload does not tell what its versions do.
func (t Tx) opaque() bool { return t.Handler != "" || t.Reservation != nil }

// decidedByTimeOut is who ordered the placeholder of a reservation that nobody
// marked.
const decidedByTimeOut = "hooks"

// timedOut is t with a placeholder ordered, or STUCK where an operator has to be
// asked first. A time-out never recycles: its owner may have signed, and sent
// elsewhere (H13).
func (r Rules) timedOut(t Tx, w Work) Move {
	from, what := t.State, "was not marked in time"
	if t.Reservation.State == Recyclable {
		what = "was given back, and nobody took it in time"
	}
	reason := fmt.Sprintf("the nonce that was reserved for %s %s", t.Reservation.Owner, what)
	if r.AskBeforePlaceholder {
		return Move{From: from, To: r.stuck(t, w.now(), reason+"; nonce.placeholder=ask: an operator must decide")}
	}
	t.Ordered, t.LastError = OrderPlaceholder, reason
	return Move{From: from, To: t, Decided: &Decision{Action: OrderPlaceholder, By: decidedByTimeOut, Reason: reason}}
}

// seat is where the next nonces come from.
type seat struct {
	first uint64
	most  int    // how many there are
	from  string // the transaction of the reservation that gives it up; "": the cursor moves
}

// seat is the lowest nonce that was given back, if a node has all that is below it;
// else those from the cursor on. A gap below something else is filled first. What was
// given back is so by the time of the load, so that one round never says otherwise;
// the write looks at the clock again.
func (w Work) seat() seat {
	for _, t := range w.Unsettled {
		if t.givenBack(w.Now) && w.mayGiveAgain() {
			return seat{first: *t.Nonce, most: 1, from: t.ID}
		}
		if !t.acknowledged() {
			break
		}
	}
	return seat{first: w.NextNonce, most: w.room()}
}

// mayGiveAgain says that a nonce which was given back may be bound again: for a strict
// submitter only where it is the one open nonce.
func (w Work) mayGiveAgain() bool { return !w.Strict || len(w.Unsettled) == 1 }

// seats are the first n nonces that can be had now, the lowest first: those given
// back, while a node has all that is below or it is one of them, then those from the
// cursor on. There may be fewer.
func (w Work) seats(n int) (all []seat) {
	whole := true // nothing below the cursor keeps anything back
	for _, t := range w.Unsettled {
		if t.givenBack(w.Now) && w.mayGiveAgain() {
			all = append(all, seat{first: *t.Nonce, most: 1, from: t.ID})
		} else if !t.acknowledged() {
			whole = false
			break
		}
	}
	if whole {
		for i := range w.room() {
			if len(all) == n {
				break
			}
			all = append(all, seat{first: w.NextNonce + uint64(i), most: 1})
		}
	}
	return all[:min(len(all), n)]
}

// without is what is unsettled but for the transaction named.
func (w Work) without(id string) []Tx {
	if id == "" {
		return w.Unsettled
	}
	return slices.DeleteFunc(slices.Clone(w.Unsettled), func(t Tx) bool { return t.ID == id })
}

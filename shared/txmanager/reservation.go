package txmanager

import (
	"errors"
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

// IsExpired reports whether t was not marked, or its nonce not reused, in time.
func (t Tx) IsExpired(now time.Time) bool {
	return t.Phase() == AwaitingMark && !now.Before(t.Reservation.Until)
}

// IsReusable reports whether t's nonce may be allocated again.
func (t Tx) IsReusable(now time.Time) bool {
	return t.Phase() == AwaitingMark && t.Reservation.State == Recyclable && len(t.Versions) == 0 && !t.IsExpired(now)
}

// IsMadeElsewhere reports whether t's payload does not determine its call.
func (t Tx) IsMadeElsewhere() bool { return t.Handler != "" || t.Reservation != nil }

// ReserveRequest is the input of [reservation.Reserve]: one nonce for each transaction, which
// represents the reservation.
type ReserveRequest struct {
	Owner    string // only the owner may mark them
	For      time.Duration
	Caller   string
	TxIDs    []string // new UUIDs
	Requests []string // one requestId for each transaction
}

// NewReservation binds a nonce to a transaction that represents a reservation.
type NewReservation struct {
	Tx     Tx // as it is to become: id, request, nonce, a placeholder's gas, the reservation's owner
	Caller string
	For    time.Duration
	From   string // the transaction of the reservation that releases the nonce; "": the cursor advances
}

// ReservationMark is the owner's one statement about a reservation.
type ReservationMark struct {
	TxID   string
	Owner  string
	To     ReservationState // [Used] or [Recyclable]
	Signed *Signed          // for Used: the bytes to send
	Call   Call             // for Used: what the bytes do
	Gas    *GasParams       // for Used: what they may cost
	Reason string           // for Recyclable
}

// Errors of reservations. After each, nothing was changed.
var (
	// ErrNotOwner reports a mark that is not accepted from this owner. The reservation is another
	// owner's, expired, or marked differently; an action was requested for its transaction; or the
	// database was restored.
	ErrNotOwner = errors.New("the reservation belongs to another owner, or has ended")
	// ErrSignedBytes reports signed bytes that do not fit the reserved nonce.
	ErrSignedBytes = errors.New("the signed bytes do not fit the reserved nonce")
	// ErrPolicyAllowsNothing reports a submitter whose policy allows no transaction to pay any fee.
	ErrPolicyAllowsNothing = errors.New("the submitter's policy allows no transaction to pay a fee")
	// ErrHooksForbidden reports a submitter whose list of callers does not contain the hooks.
	ErrHooksForbidden = errors.New("the submitter's callers do not name \"hooks\"")
	// ErrTooManyNonces reports a request for more nonces than the submitter's window has. A retry
	// never helps.
	ErrTooManyNonces = errors.New("more nonces at once than the window has")
)

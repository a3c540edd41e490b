package transfer

import (
	"context"
	"time"
)

// Book is the record of all transfers: Postgres, the only authority. An error from
// any method, but for those that its documentation names, is unknown: the write may
// have happened. Whoever goes on reads first.
type Book interface {
	// Create stores the request, or finds what is stored under the user's cid or
	// under the req_id. What is stored answers first, whatever would be refused
	// now. The error is an [ErrRefused], or wraps one of [ErrCIDConflict],
	// [ErrHalted], [ErrForeign], [ErrProtected] and [ErrMoved].
	Create(ctx context.Context, r Request, terms Terms) (Created, error)

	// Load reads the row. The error wraps [ErrNotFound] where there is none.
	Load(ctx context.Context, reqID string) (Transfer, error)

	// Start is the compare-and-set out of INIT: to SOURCE_PENDING, or, where the
	// transfer is older than initTimeout by the database's clock, to FAILED/EXPIRED.
	// A payout does not begin while its payer is in PROTECT, its asset is suspended,
	// or a halt is open for it: it stays in INIT until that is over or it expires.
	// The statement that writes reads all of them.
	Start(ctx context.Context, reqID string, initTimeout time.Duration) (Moved, error)

	// Move is a compare-and-set along a path of the table of transitions, all of
	// it or nothing.
	Move(ctx context.Context, m Move) (Moved, error)

	// Postpone leaves the transfer where it is and plans the next attempt, if it
	// still is in that state with that retry_count. So what many workers find out
	// at once counts once, and one that was frozen plans nothing.
	Postpone(ctx context.Context, p Postponement) (Moved, error)
}

// Orders is the record of what operators do.
type Orders interface {
	// Cancel is the compare-and-set INIT to FAILED/CANCELLED, recorded in the same
	// statement. In every other state it changes and records nothing.
	Cancel(ctx context.Context, o Order) (Moved, error)

	// Record keeps that an operator is about to have a ledger asked, and returns
	// the record's number.
	Record(ctx context.Context, o Order, op Op) (int64, error)

	// Answer completes the record with what the ledger answered.
	Answer(ctx context.Context, number int64, o Outcome) error
}

// Created is what is on record for a request.
type Created struct {
	Transfer
	New bool // this request made it, now or by an attempt whose answer was lost
}

// Moved is what a compare-and-set came to.
type Moved struct {
	Done bool
	Now  Transfer // as it was after the commit, whoever moved it
}

// Move is a compare-and-set. Path begins with the state that the transfer must be
// in. Reason is for FAILED and COMPENSATING alone.
type Move struct {
	ReqID  string
	Path   []State
	Reason Reason
}

// Postponement plans the next attempt after an answer that was unknown.
type Postponement struct {
	ReqID      string
	State      State
	RetryCount int           // as read before the call
	First      time.Duration // after the first unknown answer in this state, twice that after the next …
	Most       time.Duration // … and never more
	Unknown    string        // why; shown to operators
}

// Order is who does something about a transfer, and why. Neither is empty. Where a
// second operator must approve an order, who approved belongs here, and is recorded
// with it.
type Order struct {
	ReqID  string
	By     string
	Reason string
	Word   *Word // what the operator says became of a forgotten call; nil: he says nothing
}

package transfer

import (
	"context"
	"time"
)

// Store is the port to Postgres, which has all transfers and decides. After an error that a
// method does not document, the write may have happened. The caller must read the row first.
type Store interface {
	// Create stores the request, or returns the transfer that is stored under the user's cid or
	// under the req_id. It looks for a stored transfer first, even if the request would be
	// refused now. The error is an [RefusedError], or wraps one of [ErrCIDConflict], [ErrHalted],
	// [ErrForeign], [ErrProtected], [ErrRetired] and [ErrMoved].
	Create(ctx context.Context, r Request, terms Terms) (Created, error)

	// Load reads the row. The error wraps [ErrNotFound] if there is none.
	Load(ctx context.Context, reqID string) (Transfer, error)

	// Start is the compare-and-set out of INIT: to SOURCE_PENDING, or to FAILED/EXPIRED if the
	// transfer is older than initTimeout by the database's clock. A payout stays in INIT while
	// its payer is in PROTECT, its asset is suspended, or a halt is open for it. The statement
	// that writes reads all of these.
	Start(ctx context.Context, reqID string, initTimeout time.Duration) (TransitionResult, error)

	// Transition is a compare-and-set along a path of the table of transitions. It writes all
	// transitions of the path or none.
	Move(ctx context.Context, m Transition) (TransitionResult, error)

	// Postpone leaves the state and plans the next attempt, if the row still has that state and
	// retry_count. So an unknown answer counts once even if many workers see it at the same time,
	// and a worker that was frozen plans nothing.
	Postpone(ctx context.Context, p Postponement) (TransitionResult, error)
}

// ActionStore is the port that records what operators order.
type ActionStore interface {
	// Cancel is the compare-and-set from INIT to FAILED/CANCELLED. The same statement records the
	// order. In any other state it changes and records nothing.
	Cancel(ctx context.Context, o RequestedAction) (TransitionResult, error)

	// Record stores an operator's order before the ledger is awaits, and returns the record's
	// number.
	Record(ctx context.Context, o RequestedAction, op Op) (int64, error)

	// Answer completes the record with the ledger's answer.
	Answer(ctx context.Context, number int64, o Outcome) error
}

// Created is the transfer that is stored for a request.
type Created struct {
	Transfer
	New bool // this request created it, now or in an attempt whose answer was lost
}

// TransitionResult is the result of a compare-and-set.
type TransitionResult struct {
	Done bool
	Now  Transfer // the row after the commit, whichever worker moved it
}

// Transition is a compare-and-set. The transfer must be in the first state of Path. Reason is set for
// FAILED and COMPENSATING only.
type Transition struct {
	ReqID  string
	Path   []State
	Reason Reason
}

// Postponement plans the next attempt after an unknown answer.
type Postponement struct {
	ReqID      string
	State      State
	RetryCount int           // as read before the call
	First      time.Duration // delay after the first unknown answer in this state, doubled after each further one
	Most       time.Duration // the longest delay
	Unknown    string        // the cause, shown to operators
}

// RequestedAction is an operator's order about a transfer. By and Reason are never empty. If a second
// operator must approve an order, the approval belongs here and is recorded with it.
type RequestedAction struct {
	ReqID  string
	By     string
	Reason string
	Word   *OperatorStatement // the operator's statement about a forgotten call; nil: none
}

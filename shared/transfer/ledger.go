package transfer

import (
	"context"
	"time"
)

// Op is an operation that a ledger carries out for a transfer. (req_id, op) is the key of the
// operation and of its stored answer: a ledger carries out each key at most once.
type Op string

// The operations of a transfer. The source gets Withdraw and perhaps Refund, the target Deposit.
const (
	Withdraw Op = "withdraw"
	Deposit  Op = "deposit"
	Refund   Op = "refund"
)

// Call is the input of a ledger's operation. It is the same at each attempt, because it is built
// from columns of the transfer's row that never change.
type Call struct {
	ReqID     string    // the transfer's ULID
	UserID    int64     // whose account, above 0
	AssetID   int32     // above 0
	Units     uint64    // the amount, in 10^-precision of the asset; above 0
	CreatedAt time.Time // of the transfer, by the database
}

// Verdict is the result of a call, as far as its caller can know.
type Verdict int

// The zero Verdict is Unknown: a result counts only if the ledger stated it.
const (
	Unknown Verdict = iota // a time-out, a lost answer, anything but the two below
	Success                // applied, now or by an earlier call with the same key
	Refused                // stored as refused for this key: it can never apply
)

// Outcome is a ledger's answer.
type Outcome struct {
	Verdict Verdict
	Reason  Reason // why it was Refused; empty otherwise
	Err     error  // why it is Unknown; nil otherwise
}

// OperatorStatement is an operator's statement about a call that a ledger may have forgotten.
type OperatorStatement struct {
	Applied bool   // false: not applied, and never applied later. A refund with false is applied now
	Line    uint64 // number of the ledger's journal line that proves it; 0: the check of conservation proves it
}

// Outcome returns the recorded form of the statement: applied or not_applied.
func (w OperatorStatement) Outcome() string {
	if w.Applied {
		return "applied"
	}
	return "not_applied"
}

// Forgetful is a ledger that deletes old keys. It answers a call with a deleted key as unknown
// until an operator has stated the result.
type Forgetful interface {
	// Forgot reports whether the stored unknown answer was that the key may be forgotten. After
	// such an answer nothing can be applied under the key. So a journal that is read later shows
	// every application of it.
	Forgot(lastUnknown string) bool

	// Objection returns the reason for an unknown outcome of an operator's order: [ErrForgotten],
	// [ErrNotForgotten] or [ErrEvidence]; nil for any other cause.
	Objection(o Outcome) error

	// Record stores the statement as the answer to (req_id, op) in one atomic write. Later calls
	// return it. Record checks the journal line. The outcome is Unknown for a key that is not
	// forgotten.
	Record(ctx context.Context, op Op, c Call, w OperatorStatement) Outcome
}

// Ledger keeps the balances of one kind of account.
//
// Each call is idempotent by (req_id, op). A repeated call has no further effect and returns the
// same answer, refusals included, at any later time and from any process. One atomic write stores
// the answer and the effect. Each method returns by the context's deadline; a result that it did
// not learn by then is Unknown. A call whose other fields differ from the stored ones is Unknown
// too. It changes nothing, and its caller has a defect.
type Ledger interface {
	// Withdraw takes the units from the user's account. No other operation checks the account's
	// status and balance.
	Withdraw(ctx context.Context, c Call) Outcome

	// Deposit adds the units to the user's account. It refuses a DISABLED account, an overflow,
	// and a missing account (if the ledger does not create accounts). It accepts a FROZEN
	// account.
	Deposit(ctx context.Context, c Call) Outcome

	// Refund returns the units of the withdrawal with the same req_id, whatever the account's
	// status. It is never Refused, and it stores nothing before it has credited. Without a
	// successful withdrawal it is Unknown.
	Refund(ctx context.Context, c Call) Outcome

	// Resolve returns the stored answer for (req_id, op). If there is none, the same atomic write
	// stores a permanent refusal with ResolvedByOperator. A refund without an answer stays
	// Unknown, because a refund has no refusal.
	Resolve(ctx context.Context, op Op, c Call) Outcome
}

// Reason is a stable code, shown by the API: why a ledger refused, or why a transfer failed.
type Reason string

// The reasons. A ledger returns those of accounts and balances. The last three come from the
// coordinator and from operators.
const (
	InvalidAmount          Reason = "INVALID_AMOUNT"
	InvalidAsset           Reason = "INVALID_ASSET"
	InvalidUser            Reason = "INVALID_USER"
	Overflow               Reason = "OVERFLOW"
	SourceAccountNotFound  Reason = "SOURCE_ACCOUNT_NOT_FOUND"
	TargetAccountNotFound  Reason = "TARGET_ACCOUNT_NOT_FOUND"
	AccountFrozen          Reason = "ACCOUNT_FROZEN"
	AccountDisabled        Reason = "ACCOUNT_DISABLED"
	InsufficientBalance    Reason = "INSUFFICIENT_BALANCE"
	UnsupportedAccountType Reason = "UNSUPPORTED_ACCOUNT_TYPE"

	Expired            Reason = "EXPIRED"   // never started, older than transfer.initTimeout
	Cancelled          Reason = "CANCELLED" // by an operator, in INIT
	ResolvedByOperator Reason = "RESOLVED"  // recorded as refused by Resolve
)

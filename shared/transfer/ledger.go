package transfer

import (
	"context"
	"time"
)

// Op is what a ledger is asked to do for one transfer. A ledger does each at
// most once for a req_id: (req_id, op) is its key, and the key of the answer.
type Op string

// The operations of a transfer. The source sees Withdraw and perhaps Refund, the
// target Deposit.
const (
	Withdraw Op = "withdraw"
	Deposit  Op = "deposit"
	Refund   Op = "refund"
)

// Call is all that a ledger is told. It is the same at each attempt, since it is
// made from what the transfer's row says for ever.
type Call struct {
	ReqID     string    // the transfer's ULID
	UserID    int64     // whose account, above 0
	AssetID   int32     // above 0
	Units     uint64    // the amount, in 10^-precision of the asset; above 0
	CreatedAt time.Time // of the transfer, by the database
}

// Verdict is how a call ended, as far as its caller can know.
type Verdict int

// The zero Verdict is Unknown: what nobody has said for certain is not known.
const (
	Unknown Verdict = iota // a time-out, a lost answer, anything not named below
	Success                // applied, now or by an earlier call with the same key
	Refused                // stored as refused for this key: it can never apply
)

// Outcome is a ledger's answer.
type Outcome struct {
	Verdict Verdict
	Reason  Reason // why it was Refused; empty otherwise
	Err     error  // why it is Unknown; nil otherwise
}

// Word is what an operator says became of a call that a ledger may have forgotten.
type Word struct {
	Applied bool   // else it was not applied, and never will be; a refund is applied now
	Line    uint64 // of the ledger's journal, that proves it; 0: the check of conservation does
}

// Outcome is the word as it is recorded: applied or not_applied.
func (w Word) Outcome() string {
	if w.Applied {
		return "applied"
	}
	return "not_applied"
}

// Forgetful is a ledger that forgets keys. After that it answers a call neither way,
// until an operator has said what became of it.
type Forgetful interface {
	// Forgot says whether an unknown answer, as it is on record, was that the key may
	// be forgotten. From then on nothing can apply under it: what is read of the
	// journal later has all that ever did.
	Forgot(lastUnknown string) bool

	// Objection says why an operator's order came to an unknown outcome:
	// [ErrForgotten], [ErrNotForgotten] or [ErrEvidence]; nil: for another cause.
	Objection(o Outcome) error

	// Record stores the word as the answer to (req_id, op), in one atomic write, and
	// answers as the call itself does from then on. It checks the line. A key that
	// is not forgotten is Unknown.
	Record(ctx context.Context, op Op, c Call, w Word) Outcome
}

// Ledger keeps the balances of one kind of account.
//
// Each call is idempotent by (req_id, op): asked twice it has the effect of once
// and answers the same, refusals included, however much later and from whichever
// process it is asked. The record of the answer and the effect are one atomic
// write. Every method ends by the context's deadline, and what it could not learn
// by then is Unknown. A call whose other fields differ from those that are stored
// under its key is Unknown, too: it changes nothing and is somebody's mistake.
type Ledger interface {
	// Withdraw takes the units from the user's account. It alone looks at
	// status and balance.
	Withdraw(ctx context.Context, c Call) Outcome

	// Deposit puts the units into the user's account. It refuses an account that
	// is missing (where the ledger does not make accounts), DISABLED, or would
	// overflow, but not one that is FROZEN.
	Deposit(ctx context.Context, c Call) Outcome

	// Refund puts back what the withdrawal of the same req_id took, whatever the
	// account's status. It is never Refused and stores nothing before it has
	// credited; without a withdrawal that succeeded it is Unknown.
	Refund(ctx context.Context, c Call) Outcome

	// Resolve answers what is stored for (req_id, op), or in the same atomic write
	// records it as refused for ever with ResolvedByOperator. A refund that is not
	// stored stays Unknown: it has no refusal.
	Resolve(ctx context.Context, op Op, c Call) Outcome
}

// Reason is why a ledger refused, or why a transfer failed: a stable code, as the
// API shows it.
type Reason string

// The reasons. Those of accounts and balances are a ledger's to give; the last
// three come from the coordinator and from operators.
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

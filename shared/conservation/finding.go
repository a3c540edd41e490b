package conservation

import (
	"fmt"

	"github.com/fencepost/fencepost/shared/transfer"
)

// Side is a ledger with its own journal: [transfer.Funding], [transfer.Spot], or [transfer.Chain],
// which has no balances.
type Side = transfer.AccountType

// Account is a user's account in an asset. The side is given separately.
type Account struct {
	UserID  int64 `json:"userId"`
	AssetID int32 `json:"assetId"`
}

// Kind is the kind of a violation.
type Kind string

// The kinds of finding.
const (
	BalanceDiffers      Kind = "BALANCE_DIFFERS"      // the balance differs from the sum of its side's journal
	AppliedTwice        Kind = "APPLIED_TWICE"        // one (req_id, op) in two entries, or on two sides
	FieldsDiffer        Kind = "FIELDS_DIFFER"        // entries with one req_id differ in user, asset or units
	WrongSide           Kind = "WRONG_SIDE"           // the side is not one of the transfer's accounts
	NoTransfer          Kind = "NO_TRANSFER"          // the operation's transfer does not exist
	CreditWithoutDebit  Kind = "CREDIT_WITHOUT_DEBIT" // money was created
	CreditAndRefund     Kind = "CREDIT_AND_REFUND"    // the same money was credited twice
	CommittedIncomplete Kind = "COMMITTED_INCOMPLETE" // it was not both withdrawn and deposited
	RolledBackUnpaid    Kind = "ROLLED_BACK_UNPAID"   // it was not both withdrawn and refunded
	ContradictsState    Kind = "CONTRADICTS_STATE"    // FAILED and moved, COMMITTED and refunded, or ROLLED_BACK and deposited
	JournalWentBack     Kind = "JOURNAL_WENT_BACK"    // lines that were read are missing or replaced
	StateChanged        Kind = "FINAL_STATE_CHANGED"  // a final state changed
	PrecisionDiffers    Kind = "PRECISION_DIFFERS"    // one side has another precision for an asset, so its units have another value
)

// Finding is one violation.
type Finding struct {
	Kind     Kind
	Side     Side   // "": about both sides
	ReqID    string // "": about a balance
	Account  Account
	Expected string
	Got      string
	Evidence any // stored as JSON
}

// Key identifies a finding. A finding with a known key is not new. A balance that still differs by
// the same amount is the same finding; another difference is a new one.
func (f Finding) Key() string {
	switch f.Kind {
	case BalanceDiffers:
		return fmt.Sprintf("%s|%s|%d|%d|%s", f.Kind, f.Side, f.Account.UserID, f.Account.AssetID, f.difference())
	case PrecisionDiffers:
		return fmt.Sprintf("%s|%s|%d|%s|%s", f.Kind, f.Side, f.Account.AssetID, f.Expected, f.Got)
	}
	return fmt.Sprintf("%s|%s|%s|%s|%s", f.Kind, f.Side, f.ReqID, f.Expected, f.Got)
}

func (f Finding) difference() string {
	expected, err := ParseSum(f.Expected)
	if err != nil {
		return f.Expected + "/" + f.Got
	}
	got, err := ParseSum(f.Got)
	if err != nil {
		return f.Expected + "/" + f.Got
	}
	return got.Minus(expected).String()
}

// String formats the finding in one line.
func (f Finding) String() string {
	return fmt.Sprintf("%s %s %s user %d asset %d: expected %s, got %s", f.Kind, f.Side, f.ReqID, f.Account.UserID, f.Account.AssetID, f.Expected, f.Got)
}

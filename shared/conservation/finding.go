package conservation

import (
	"fmt"

	"github.com/fencepost/fencepost/shared/transfer"
)

// Side is a ledger with a journal of its own: [transfer.Funding], [transfer.Spot],
// or [transfer.Chain], which has no balances.
type Side = transfer.AccountType

// Account is a user's account in an asset, on one side or the other.
type Account struct {
	UserID  int64 `json:"userId"`
	AssetID int32 `json:"assetId"`
}

// Kind is what is wrong.
type Kind string

// The kinds of finding.
const (
	BalanceDiffers      Kind = "BALANCE_DIFFERS"      // from the sum of its side's journal
	AppliedTwice        Kind = "APPLIED_TWICE"        // one (req_id, op) in two entries, or on two sides
	FieldsDiffer        Kind = "FIELDS_DIFFER"        // user, asset or units, of what one req_id did
	WrongSide           Kind = "WRONG_SIDE"           // not between the accounts that it is between
	NoTransfer          Kind = "NO_TRANSFER"          // an operation of a transfer that does not exist
	CreditWithoutDebit  Kind = "CREDIT_WITHOUT_DEBIT" // money from nothing
	CreditAndRefund     Kind = "CREDIT_AND_REFUND"    // the same money twice
	CommittedIncomplete Kind = "COMMITTED_INCOMPLETE" // not both withdrawn and deposited
	RolledBackUnpaid    Kind = "ROLLED_BACK_UNPAID"   // not both withdrawn and refunded
	ContradictsState    Kind = "CONTRADICTS_STATE"    // FAILED and moved, COMMITTED and refunded, ROLLED_BACK and deposited
	JournalWentBack     Kind = "JOURNAL_WENT_BACK"    // what was read of it is not there any more
	StateChanged        Kind = "FINAL_STATE_CHANGED"  // a final state, and then another
	PrecisionDiffers    Kind = "PRECISION_DIFFERS"    // of an asset, on one side: its units are not ours
)

// Finding is one violation.
type Finding struct {
	Kind     Kind
	Side     Side   // "": it is about both
	ReqID    string // "": it is about a balance
	Account  Account
	Expected string
	Got      string
	Evidence any // to be kept as JSON
}

// Key tells findings apart: what was found before under the same key is not new. A
// balance that goes on to differ by as much is the same finding; by more, another.
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

// String is the finding in one line.
func (f Finding) String() string {
	return fmt.Sprintf("%s %s %s user %d asset %d: expected %s, got %s", f.Kind, f.Side, f.ReqID, f.Account.UserID, f.Account.AssetID, f.Expected, f.Got)
}

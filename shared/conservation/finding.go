package conservation

import (
	"cmp"
	"fmt"
	"math/big"
	"math/bits"
	"slices"

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
	got, errGot := ParseSum(f.Got)
	if err != nil || errGot != nil {
		return f.Expected + "/" + f.Got
	}
	return got.Minus(expected).String()
}

// String formats the finding in one line.
func (f Finding) String() string {
	return fmt.Sprintf("%s %s %s user %d asset %d: expected %s, got %s", f.Kind, f.Side, f.ReqID, f.Account.UserID, f.Account.AssetID, f.Expected, f.Got)
}

// Sum is a sum of units: a signed whole number of 128 bits, which no real journal can overflow. The
// zero value is 0, and == compares.
type Sum struct {
	hi int64
	lo uint64
}

// Units returns u as a sum.
func Units(u uint64) Sum { return Sum{lo: u} }

// Plus returns s + t.
func (s Sum) Plus(t Sum) Sum {
	lo, carry := bits.Add64(s.lo, t.lo, 0)
	hi, _ := bits.Add64(uint64(s.hi), uint64(t.hi), carry)
	return Sum{int64(hi), lo}
}

// Minus returns s - t.
func (s Sum) Minus(t Sum) Sum {
	lo, borrow := bits.Sub64(s.lo, t.lo, 0)
	hi, _ := bits.Sub64(uint64(s.hi), uint64(t.hi), borrow)
	return Sum{int64(hi), lo}
}

// String returns s as a decimal number.
func (s Sum) String() string {
	b := new(big.Int).Lsh(big.NewInt(s.hi), 64)
	return b.Add(b, new(big.Int).SetUint64(s.lo)).String()
}

// ParseSum is the inverse of String. It rejects text that is not a whole number of at most 127
// bits.
func ParseSum(text string) (Sum, error) {
	b, ok := new(big.Int).SetString(text, 10)
	if !ok || b.BitLen() > 127 {
		return Sum{}, fmt.Errorf("%q is not a sum of units, want a whole number of at most 127 bits", text)
	}
	low := new(big.Int).And(b, new(big.Int).SetUint64(^uint64(0)))
	return Sum{new(big.Int).Rsh(b, 64).Int64(), low.Uint64()}, nil
}

// Scope is the extent of a halt.
type Scope string

// The scopes, each wider than the one before.
const (
	UserAsset Scope = "user_asset" // new transfers of one user in one asset
	Asset     Scope = "asset"      // new transfers of all users in one asset
	All       Scope = "all"        // all new transfers
)

// Mode is the setting conservation.halt.
type Mode string

// The modes: halt everything at the first finding, or only the affected part.
const (
	HaltAll    Mode = "all"
	HaltGraded Mode = "graded"
)

// Halt stops new transfers of a scope. Account has no user for the scope asset, and is empty for
// the scope all.
type Halt struct {
	Scope    Scope
	Account  Account
	Findings []Finding // the cause; unknown for an open halt
}

// Halts returns the halts for new findings, beside the open ones: one for each finding, so that
// resuming one leaves the others halted. It returns at most limit halts; the last of them covers
// all remaining findings.
func Halts(mode Mode, open []Halt, fresh []Finding, limit int) (all []Halt) {
	if len(fresh) == 0 {
		return nil
	}
	h := widest(mode, open, fresh)
	for len(fresh) > 0 {
		n := 1
		if len(all)+1 >= limit {
			n = len(fresh)
		}
		h.Findings, fresh = fresh[:n:n], fresh[n:]
		all = append(all, h)
	}
	return all
}

// widest returns the halt that covers all findings. In graded mode the first finding halts a user's
// asset. It halts the asset if a second user of it is affected, if an earlier user's halt is still
// open, or if its precision differs. It halts everything if a second asset is affected, or if a
// finding does not show whose money it is about.
func widest(mode Mode, open []Halt, fresh []Finding) Halt {
	wrong, unclear := []Account{}, mode != HaltGraded
	for _, f := range fresh {
		wrong = append(wrong, f.Account)
		unclear = unclear || f.Account.UserID <= 0 && f.Kind != PrecisionDiffers || f.Account.AssetID <= 0
	}
	for _, h := range open {
		if h.Scope != All {
			wrong = append(wrong, h.Account)
		}
	}
	slices.SortFunc(wrong, func(a, b Account) int {
		return cmp.Or(cmp.Compare(a.AssetID, b.AssetID), cmp.Compare(a.UserID, b.UserID))
	})
	wrong = slices.Compact(wrong)
	switch first, last := wrong[0], wrong[len(wrong)-1]; {
	case unclear || first.AssetID != last.AssetID:
		return Halt{Scope: All}
	case first.UserID != last.UserID || first.UserID == 0:
		return Halt{Scope: Asset, Account: Account{AssetID: first.AssetID}}
	default:
		return Halt{Scope: UserAsset, Account: first}
	}
}

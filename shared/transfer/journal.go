package transfer

import (
	"slices"
	"time"
)

// The operations that belong to no transfer: money enters or leaves a ledger from outside. The
// outside system chooses the req_id. The key is (req_id, op), as for a transfer.
const (
	OutsideDeposit    Op = "outside_deposit"
	OutsideWithdrawal Op = "outside_withdrawal"
)

// The adjustments that an operator orders for a finding BALANCE_DIFFERS. The first two change the
// journal's sum and leave the balance. The other two change the balance and leave the sum.
const (
	JournalCredit Op = "journal_credit"
	JournalDebit  Op = "journal_debit"
	BalanceCredit Op = "balance_credit"
	BalanceDebit  Op = "balance_debit"
)

// Entry is one line of a ledger's own journal: a call and its permanent answer. Only an applied
// entry moved money.
type Entry struct {
	Seq     uint64 // the ledger's order, from 1
	ReqID   string
	Op      Op
	UserID  int64
	AssetID int32
	Units   uint64 // in 10^-precision of the asset
	Refused Reason // empty: applied
	At      time.Time
}

// Counts reports whether an applied entry of the operation is part of the sum that the account's
// balance must equal.
func (o Op) Counts() bool {
	return slices.Contains([]Op{Withdraw, Deposit, Refund, OutsideDeposit, OutsideWithdrawal, JournalCredit, JournalDebit}, o)
}

// Adjusts reports whether the operation is an adjustment.
func (o Op) Adjusts() bool {
	return slices.Contains([]Op{JournalCredit, JournalDebit, BalanceCredit, BalanceDebit}, o)
}

// Credits reports whether an applied operation adds to the account. Each other operation takes
// from it.
func (o Op) Credits() bool {
	return slices.Contains([]Op{Deposit, Refund, OutsideDeposit, JournalCredit, BalanceCredit}, o)
}

package transfer

import "time"

// The operations that no transfer makes: money that enters or leaves a ledger
// from outside. Their req_id is whatever the outside names them by, and the key
// is (req_id, op) as for a transfer's.
const (
	OutsideDeposit    Op = "outside_deposit"
	OutsideWithdrawal Op = "outside_withdrawal"
)

// The adjustments that an operator orders for a finding BALANCE_DIFFERS. The
// first two move the journal's sum and leave the balance; the other two move the
// balance and leave the sum.
const (
	JournalCredit Op = "journal_credit"
	JournalDebit  Op = "journal_debit"
	BalanceCredit Op = "balance_credit"
	BalanceDebit  Op = "balance_debit"
)

// Entry is one line of a ledger's own journal: what it was asked and what it
// answered, for ever. Only an entry that was applied moved money.
type Entry struct {
	Seq     uint64 // the ledger's order, from 1
	ReqID   string
	Op      Op
	UserID  int64
	AssetID int32
	Units   uint64 // in 10^-precision of the asset
	Refused Reason // empty: it was applied
	At      time.Time
}

// Counts says whether an applied entry of the operation is part of the sum that the
// account's balance must be.
func (o Op) Counts() bool {
	switch o {
	case Withdraw, Deposit, Refund, OutsideDeposit, OutsideWithdrawal, JournalCredit, JournalDebit:
		return true
	}
	return false
}

// Adjusts says whether the operation is an adjustment.
func (o Op) Adjusts() bool {
	switch o {
	case JournalCredit, JournalDebit, BalanceCredit, BalanceDebit:
		return true
	}
	return false
}

// Credits says whether the operation, where applied, adds to the account; the
// others take from it.
func (o Op) Credits() bool {
	return o == Deposit || o == Refund || o == OutsideDeposit || o == JournalCredit || o == BalanceCredit
}

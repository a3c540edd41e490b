// Package book is the trading core's state and rules, without a clock, a disk or a network:
// accounts, assets, and the answer stored under each key.
//
// The entries alone determine a book. [Book.Decide] computes the entry for a request and changes
// nothing. [Book.Apply] applies an entry exactly, whether it is fresh or read from a log. So a
// restarted core has the same state as before, even with other rules or another clock.
package book

import (
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Kind is the kind of an entry. The numbers are stored in logs: their meaning must never change.
type Kind uint8

// The kinds.
const (
	Withdraw Kind = iota + 1
	Deposit
	Refund
	OutsideDeposit
	OutsideWithdrawal
	SetStatus
	AddAsset
	Floor

	// An operator's statements about a forgotten key. The first three move no money.
	RecordedWithdraw
	RecordedDeposit
	RecordedRefund
	LateRefund // applies a refund whose withdrawal was forgotten

	// Adjustments. The first two change the journal's sum only, the other two the balance only.
	JournalCredit
	JournalDebit
	BalanceCredit
	BalanceDebit
)

var ops = [...]transfer.Op{
	Withdraw: transfer.Withdraw, Deposit: transfer.Deposit, Refund: transfer.Refund,
	OutsideDeposit: transfer.OutsideDeposit, OutsideWithdrawal: transfer.OutsideWithdrawal,
	SetStatus: wire.SetStatus, AddAsset: wire.AddAsset, Floor: wire.Floor,
	RecordedWithdraw: wire.RecordedWithdraw, RecordedDeposit: wire.RecordedDeposit, RecordedRefund: wire.RecordedRefund,
	LateRefund:    transfer.Refund,
	JournalCredit: transfer.JournalCredit, JournalDebit: transfer.JournalDebit,
	BalanceCredit: transfer.BalanceCredit, BalanceDebit: transfer.BalanceDebit,
}

// KindOf returns the kind of an operation; 0: unknown.
func KindOf(op transfer.Op) Kind {
	return Kind(max(0, slices.Index(ops[:], op)))
}

// Op returns the kind's name in the API.
func (k Kind) Op() transfer.Op { return ops[k] }

func (k Kind) valid() bool { return k >= Withdraw && k <= BalanceDebit }

// isDebit reports whether the kind reduces a balance, and isCredit whether it increases one.
func (k Kind) isDebit() bool  { return k == Withdraw || k == OutsideWithdrawal }
func (k Kind) isCredit() bool { return k == Deposit || k == Refund || k == OutsideDeposit }

// isRecorded reports whether the kind is an operator's statement about a forgotten key.
func (k Kind) isRecorded() bool { return k >= RecordedWithdraw && k <= LateRefund }

func (k Kind) isAdjustment() bool { return k >= JournalCredit && k <= BalanceDebit }

// requested is the kind that callers ask for, under which the entry is stored. All adjustments
// share one kind, so that a finding gets only one.
func (k Kind) requested() Kind {
	switch {
	case k == LateRefund:
		return Refund
	case k.isRecorded():
		return k - RecordedWithdraw + Withdraw
	case k.isAdjustment():
		return JournalCredit
	}
	return k
}

// Status is an account's status. The numbers are stored in logs.
type Status uint8

// The statuses; the zero Status is none.
const (
	Active Status = iota + 1
	Frozen
	Disabled
)

var statuses = [...]string{Active: wire.Active, Frozen: wire.Frozen, Disabled: wire.Disabled}

// StatusOf returns the status of that name; 0: unknown.
func StatusOf(name string) Status {
	return Status(max(0, slices.Index(statuses[:], name)))
}

// String returns the status' name in the API.
func (s Status) String() string { return statuses[s] }

// reasons are the refusals by their number in logs; 0: applied.
var reasons = [...]transfer.Reason{
	"", transfer.InvalidAmount, transfer.InvalidAsset, transfer.InvalidUser, transfer.Overflow,
	transfer.SourceAccountNotFound, transfer.TargetAccountNotFound, transfer.AccountFrozen,
	transfer.AccountDisabled, transfer.InsufficientBalance, transfer.ResolvedByOperator,
}

// Micros is a time in microseconds since 1970.
type Micros int64

// MicrosOf returns t, cut to the microsecond.
func MicrosOf(t time.Time) Micros { return Micros(t.UnixMicro()) }

// Time returns the time in UTC.
func (m Micros) Time() time.Time { return time.UnixMicro(int64(m)).UTC() }

// Request is one operation that a caller asks for. A repeat must be equal in all fields to the
// request stored under its key, which is kind and ReqID.
type Request struct {
	Kind      Kind
	Status    Status // of SetStatus
	Precision uint8  // of AddAsset
	AssetID   int32
	UserID    int64
	Units     uint64
	CreatedAt Micros // of Floor: keys created before it are forgotten
	ReqID     string
}

// Entry is a request with its result: a line of the journal.
type Entry struct {
	Request
	Seq     uint64 // from 1, without gaps
	At      Micros
	Refused transfer.Reason // "": applied
}

func (e Entry) String() string {
	return fmt.Sprintf("line %d, %s of %q", e.Seq, e.Kind.Op(), e.ReqID)
}

type key struct {
	kind  Kind
	reqID string
}

func (r Request) key() key { return key{r.Kind.requested(), r.ReqID} }

// isAnswerTo reports whether the entry answers the request: its own entry, or one that an operator
// recorded for it.
func (e Entry) isAnswerTo(r Request) bool {
	stored := e.Request
	if stored.Kind.isRecorded() {
		stored.Kind = stored.Kind.requested()
	}
	return stored == r
}

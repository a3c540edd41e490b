// Package book is the trading core's state and rules, without a clock, a disk or
// a network: accounts, assets, and what was answered under each key.
//
// A book is what its entries make of it. [Book.Decide] says what the entry for a
// request would be and changes nothing; [Book.Apply] takes an entry, whether it
// has just been decided or is read from a log, and follows it to the letter. So a
// core that is restarted holds what it held before, whatever its rules or its
// clock say by then.
package book

import (
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Kind is what an entry is about. The numbers are in logs: they are never given
// another meaning.
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

	// What an operator said of a forgotten key. The first three move no money.
	RecordedWithdraw
	RecordedDeposit
	RecordedRefund
	LateRefund // credits a refund whose withdrawal was forgotten

	// Adjustments: the first two move the journal's sum and not the balance, the
	// other two the balance and not the sum.
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

// KindOf is the kind of an operation; 0 for one that is unknown.
func KindOf(op transfer.Op) Kind {
	if op == "" {
		return 0
	}
	return Kind(max(0, slices.Index(ops[:], op)))
}

// Op is the kind's name outside.
func (k Kind) Op() transfer.Op { return ops[k] }

func (k Kind) valid() bool { return k >= Withdraw && k <= BalanceDebit }

// takes says whether the kind takes from an account, and credits whether it adds.
func (k Kind) takes() bool   { return k == Withdraw || k == OutsideWithdrawal }
func (k Kind) credits() bool { return k == Deposit || k == Refund || k == OutsideDeposit }

// recorded says whether the kind is an operator's word about a forgotten key.
func (k Kind) recorded() bool { return k >= RecordedWithdraw && k <= LateRefund }

// adjusts says whether the kind is an adjustment.
func (k Kind) adjusts() bool { return k >= JournalCredit && k <= BalanceDebit }

// asked is the kind that callers ask for, and under which the entry is stored. All
// adjustments share one, so that a finding has one of them.
func (k Kind) asked() Kind {
	switch {
	case k == LateRefund:
		return Refund
	case k.recorded():
		return k - RecordedWithdraw + Withdraw
	case k.adjusts():
		return JournalCredit
	}
	return k
}

// Status is an account's. The numbers are in logs.
type Status uint8

// The statuses; the zero Status is none.
const (
	Active Status = iota + 1
	Frozen
	Disabled
)

var statuses = [...]string{Active: wire.Active, Frozen: wire.Frozen, Disabled: wire.Disabled}

// StatusOf is the status of that name; 0 for one that is unknown.
func StatusOf(name string) Status {
	if name == "" {
		return 0
	}
	return Status(max(0, slices.Index(statuses[:], name)))
}

// String is the status' name outside.
func (s Status) String() string { return statuses[s] }

// reasons are the refusals by their number in logs; 0: it was applied.
var reasons = [...]transfer.Reason{
	"", transfer.InvalidAmount, transfer.InvalidAsset, transfer.InvalidUser, transfer.Overflow,
	transfer.SourceAccountNotFound, transfer.TargetAccountNotFound, transfer.AccountFrozen,
	transfer.AccountDisabled, transfer.InsufficientBalance, transfer.ResolvedByOperator,
}

// Micros is a time, in microseconds since 1970.
type Micros int64

// MicrosOf is t, cut to the microsecond.
func MicrosOf(t time.Time) Micros { return Micros(t.UnixMicro()) }

// Time is the time in UTC.
func (m Micros) Time() time.Time { return time.UnixMicro(int64(m)).UTC() }

// Request is what somebody asks for. All of it is compared with what is stored
// under its key, which is kind and ReqID.
type Request struct {
	Kind      Kind
	Status    Status // of SetStatus
	Precision uint8  // of AddAsset
	AssetID   int32
	UserID    int64
	Units     uint64
	CreatedAt Micros // of Floor: what was created before is forgotten
	ReqID     string
}

// Entry is a request and what became of it: a line of the journal.
type Entry struct {
	Request
	Seq     uint64 // from 1, without holes
	At      Micros
	Refused transfer.Reason // empty: it was applied
}

func (e Entry) String() string {
	return fmt.Sprintf("line %d, %s of %q", e.Seq, e.Kind.Op(), e.ReqID)
}

type key struct {
	kind  Kind
	reqID string
}

func (r Request) key() key { return key{r.Kind.asked(), r.ReqID} }

// answers says whether the entry is the answer to the request: its own, or what an
// operator recorded for it.
func (e Entry) answers(r Request) bool {
	stored := e.Request
	if stored.Kind.recorded() {
		stored.Kind = stored.Kind.asked()
	}
	return stored == r
}

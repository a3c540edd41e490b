package funding_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/funding"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Units are exact at every precision, up to the largest number of units.
func TestUnitsAreExact(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for _, c := range []struct {
		asset      int32
		most, less string
	}{
		{fine, "184467440737.09551615", "184467440737.09551614"},
		{middle, "18446744073709.55161500", "18446744073709.55161400"},
		{whole, "18446744073709551615.00000000", "18446744073709551614.00000000"},
	} {
		l.fund(alice, c.asset, math.MaxUint64)
		l.has(alice, c.asset, c.most)
		one := call("one of "+c.most, c.asset, 1)
		succeeds(t, l.Withdraw(t.Context(), one))
		l.has(alice, c.asset, c.less)
		succeeds(t, l.Refund(t.Context(), one))
		l.has(alice, c.asset, c.most)
		rest := call("all of "+c.most, c.asset, math.MaxUint64)
		succeeds(t, l.Withdraw(t.Context(), rest))
		l.has(alice, c.asset, "0.00000000")
		succeeds(t, l.Deposit(t.Context(), one))
	}
	l.has(alice, fine, "0.00000001")
	l.has(alice, middle, "0.00000100")
	l.has(alice, whole, "1.00000000")
}

// A withdrawal above the balance is refused and changes nothing.
func TestBAL001MoreThanAvailableIsRefused(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.fund(alice, fine, 100)
	refused(t, l.Withdraw(t.Context(), call("r", fine, 101)), transfer.InsufficientBalance)
	refused(t, l.OutsideWithdrawal(t.Context(), call("o", fine, 101)), transfer.InsufficientBalance)
	l.has(alice, fine, "0.00000100")
}

func TestBAL002WholeBalanceCanBeWithdrawn(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.fund(alice, fine, 100)
	succeeds(t, l.Withdraw(t.Context(), call("r", fine, 100)))
	l.has(alice, fine, "0.00000000")
}

// Two withdrawals at once exceed the balance: one succeeds and the other is refused. The refusal
// stays even when the balance is high enough later.
func TestBAL003OneOfTwoConcurrentWithdrawalsIsRefused(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.fund(alice, fine, 100)
	calls := []transfer.Call{call("a", fine, 60), call("b", fine, 60)}
	got := together(len(calls), func(i int) transfer.Outcome { return l.Withdraw(t.Context(), calls[i]) })
	lost := 0
	if got[0].Verdict == transfer.Success {
		lost = 1
	}
	succeeds(t, got[1-lost])
	refused(t, got[lost], transfer.InsufficientBalance)
	l.has(alice, fine, "0.00000040")
	succeeds(t, l.OutsideDeposit(t.Context(), call("more", fine, 1000)))
	refused(t, l.Withdraw(t.Context(), calls[lost]), transfer.InsufficientBalance)
	l.has(alice, fine, "0.00001040")
}

// The second withdrawal is evaluated against the balance that the first has left.
func TestBAL003SecondWithdrawalSeesTheFirst(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.fund(alice, fine, 100)
	first := l.rival()
	do(t, first, `begin`)
	do(t, first, fmt.Sprintf(`select * from funding_apply('a', 'withdraw', %d, %d, 60)`, alice, fine))
	second := make(chan transfer.Outcome, 1)
	go func() { second <- l.Withdraw(t.Context(), call("b", fine, 60)) }()
	l.awaitLock()
	do(t, first, `commit`)
	refused(t, <-second, transfer.InsufficientBalance)
	l.has(alice, fine, "0.00000040")
}

// A frozen account accepts deposits and refuses withdrawals; a disabled one refuses both.
func TestBAL004FrozenAccountOnlyReceives(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.fund(alice, fine, 100)
	setStatus(l, "FROZEN")
	refused(t, l.Withdraw(t.Context(), call("r", fine, 1)), transfer.AccountFrozen)
	refused(t, l.OutsideWithdrawal(t.Context(), call("o", fine, 1)), transfer.AccountFrozen)
	succeeds(t, l.Deposit(t.Context(), call("d", fine, 1)))
	succeeds(t, l.OutsideDeposit(t.Context(), call("o", fine, 1)))
	l.has(alice, fine, "0.00000102")
	setStatus(l, "ACTIVE")
	succeeds(t, l.Withdraw(t.Context(), call("again", fine, 102)))
}

func TestBAL005DisabledAccountRefusesBoth(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.fund(alice, fine, 100)
	setStatus(l, "DISABLED")
	refused(t, l.Withdraw(t.Context(), call("r", fine, 1)), transfer.AccountDisabled)
	refused(t, l.Deposit(t.Context(), call("r", fine, 1)), transfer.AccountDisabled)
	refused(t, l.OutsideDeposit(t.Context(), call("o", fine, 1)), transfer.AccountDisabled)
	refused(t, l.OutsideWithdrawal(t.Context(), call("o", fine, 1)), transfer.AccountDisabled)
	l.has(alice, fine, "0.00000100")
}

func setStatus(l ledger, status string) {
	l.t.Helper()
	l.exec(`update balances_tb set status = $1 where user_id = $2 and asset_id = $3`, status, alice, fine)
}

// Only a deposit from outside creates an account.
func TestOnlyOutsideDepositsMakeAccounts(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	refused(t, l.Withdraw(t.Context(), call("r", fine, 1)), transfer.SourceAccountNotFound)
	refused(t, l.OutsideWithdrawal(t.Context(), call("r", fine, 1)), transfer.SourceAccountNotFound)
	refused(t, l.Deposit(t.Context(), call("r", fine, 1)), transfer.TargetAccountNotFound)
	_, _, err := l.account(alice, fine)
	check.Err(t, "account", pgx.ErrNoRows)(err)
	l.fund(alice, fine, 5)
	l.has(alice, fine, "0.00000005")
}

// A credit that would exceed 2^64 - 1 units is refused, unless it is a refund.
func TestOverflowingCreditIsRefused(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.fund(alice, middle, math.MaxUint64)
	refused(t, l.Deposit(t.Context(), call("d", middle, 1)), transfer.Overflow)
	refused(t, l.OutsideDeposit(t.Context(), call("d", middle, 1)), transfer.Overflow)
	succeeds(t, l.Withdraw(t.Context(), call("r", middle, math.MaxUint64)))
	succeeds(t, l.Deposit(t.Context(), call("full again", middle, math.MaxUint64)))
	succeeds(t, l.Refund(t.Context(), call("r", middle, math.MaxUint64)))
	l.has(alice, middle, "36893488147419.10323000")
	refused(t, l.Deposit(t.Context(), call("beyond", middle, 1)), transfer.Overflow)
}

// A key that is used again with other fields gives an unknown answer and changes nothing. The same
// holds for a refund without a withdrawal.
func TestOtherFieldsAreUnknown(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.fund(alice, fine, 100)
	l.fund(bob, fine, 100)
	c := call("r", fine, 10)
	succeeds(t, l.Withdraw(t.Context(), c))
	before := l.rows()
	others := map[string]transfer.Call{
		"units": {ReqID: "r", UserID: alice, AssetID: fine, Units: 11},
		"user":  {ReqID: "r", UserID: bob, AssetID: fine, Units: 10},
		"asset": {ReqID: "r", UserID: alice, AssetID: middle, Units: 10},
	}
	for _, other := range others {
		unknown(t, l.Withdraw(t.Context(), other), funding.ErrOtherFields)
		unknown(t, l.Refund(t.Context(), other), funding.ErrOtherFields)
		unknown(t, l.Resolve(t.Context(), transfer.Withdraw, other), funding.ErrOtherFields)
	}
	refused(t, l.Withdraw(t.Context(), call("short", fine, 1000)), transfer.InsufficientBalance)
	unknown(t, l.Refund(t.Context(), call("never", fine, 10)), funding.ErrNoWithdrawal)
	unknown(t, l.Refund(t.Context(), call("short", fine, 1000)), funding.ErrNoWithdrawal)
	unknown(t, l.Withdraw(t.Context(), call("", fine, 1)), nil)
	check.Same(t, "rows: only the refusal was to be added", len(l.rows()), len(before)+1)
	l.has(alice, fine, "0.00000090")
	l.has(bob, fine, "0.00000100")
}

// A call that cannot be made is unknown, and its error has the cause.
func TestErrorsAreUnknown(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.fund(alice, fine, 100)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	unknown(t, l.Withdraw(ctx, call("r", fine, 1)), context.Canceled)
	unknown(t, l.Resolve(ctx, transfer.Withdraw, call("r", fine, 1)), context.Canceled)
	l.has(alice, fine, "0.00000100")
}

// A resolved operation never applies. An answered one keeps its answer. A refund cannot be refused.
func TestResolvedOperationNeverApplies(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.fund(alice, fine, 100)
	c := call("r", fine, 10)
	refused(t, l.Resolve(t.Context(), transfer.Withdraw, c), transfer.ResolvedByOperator)
	refused(t, l.Withdraw(t.Context(), c), transfer.ResolvedByOperator)
	refused(t, l.Resolve(t.Context(), transfer.Withdraw, c), transfer.ResolvedByOperator)
	unknown(t, l.Resolve(t.Context(), transfer.Refund, c), funding.ErrNoRefusal)
	unknown(t, l.Refund(t.Context(), c), funding.ErrNoWithdrawal)

	done := call("done", fine, 10)
	succeeds(t, l.Withdraw(t.Context(), done))
	succeeds(t, l.Resolve(t.Context(), transfer.Withdraw, done))
	unknown(t, l.Resolve(t.Context(), transfer.Refund, done), funding.ErrNoRefusal)
	succeeds(t, l.Refund(t.Context(), done))
	succeeds(t, l.Resolve(t.Context(), transfer.Refund, done))
	l.has(alice, fine, "0.00000100")
}

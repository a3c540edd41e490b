package funding_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/funding"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/transfer"
)

// together makes n calls at once.
func together(n int, one func(i int) transfer.Outcome) []transfer.Outcome {
	all := make([]transfer.Outcome, n)
	begin := make(chan struct{})
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			<-begin
			all[i] = one(i)
		})
	}
	close(begin)
	group.Wait()
	return all
}

// A hundred calls with one key have one effect and return one answer.
func TestHundredCallsWithOneKeyApplyOnce(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.fund(alice, fine, 1000)
	for _, step := range []struct {
		op    transfer.Op
		after string
	}{
		{transfer.Withdraw, "0.00000999"}, {transfer.Refund, "0.00001000"}, {transfer.Deposit, "0.00001001"},
		{transfer.OutsideDeposit, "0.00001002"}, {transfer.OutsideWithdrawal, "0.00001001"},
	} {
		for _, o := range together(100, func(int) transfer.Outcome { return l.of(step.op)(t.Context(), call("r", fine, 1)) }) {
			succeeds(t, o)
		}
		l.has(alice, fine, step.after)
	}
}

// Two users use one key at once. One of them gets the answer; the other's call is unknown and
// changes nothing.
func TestOneKeyUsedByTwoUsersAppliesToOne(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for round := range 20 {
		req := fmt.Sprintf("r%d", round)
		got := together(2, func(i int) transfer.Outcome {
			c := call(req, whole, 1)
			c.UserID = 100*int64(round+1) + int64(i)
			return l.OutsideDeposit(t.Context(), c)
		})
		won := 0
		if got[1].Verdict == transfer.Success {
			won = 1
		}
		succeeds(t, got[won])
		unknown(t, got[1-won], funding.ErrOtherFields)
	}
	var accounts int
	if err := l.db.DB.QueryRow(t.Context(), `select count(*) from balances_tb`).Scan(&accounts); err != nil || accounts != 20 {
		t.Errorf("accounts: got %d, error %v; want 20, none of the loser's", accounts, err)
	}
}

// First deposits at once create one account that holds all of them.
func TestConcurrentFirstDepositsMakeOneAccount(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for _, o := range together(30, func(i int) transfer.Outcome {
		return l.OutsideDeposit(t.Context(), call(fmt.Sprintf("o%d", i), whole, 1))
	}) {
		succeeds(t, o)
	}
	l.has(alice, whole, "30.00000000")
}

// First deposits at once never exceed the account's limit. The deposit that was evaluated without
// the other is unknown, and is refused when it is repeated.
func TestConcurrentFirstDepositsDoNotOverflow(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	rival := l.rival()
	do(t, rival, "begin")
	do(t, rival, "select funding_apply('first', 'outside_deposit', 7, 3, 18446744073709551614)")
	second := call("second", whole, 2)
	judged := make(chan transfer.Outcome, 1)
	go func() { judged <- l.OutsideDeposit(t.Context(), second) }()
	l.awaitLock()
	do(t, rival, "commit")
	unknown(t, <-judged, nil)
	refused(t, l.OutsideDeposit(t.Context(), second), transfer.Overflow)
	l.has(alice, whole, "18446744073709551614.00000000")
}

// A late duplicate returns the stored answer.
func TestLateDuplicateReturnsTheStoredAnswer(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.fund(alice, fine, 100)
	old := call("r", fine, 10)
	old.CreatedAt = time.Now().AddDate(-30, 0, 0)
	succeeds(t, l.Withdraw(t.Context(), old))
	l.exec(`alter table transfer_operations disable trigger guard_operations`)
	l.exec(`update transfer_operations set at = at - interval '30 years', tx = '3' where req_id = 'r'`)
	l.exec(`alter table transfer_operations enable trigger guard_operations`)
	before := l.rows()
	succeeds(t, l.Withdraw(t.Context(), old))
	check.Same(t, "rows after the duplicate", l.rows(), before)
}

// While one user's account is locked, and another call for the same asset is not committed, other
// users' calls succeed.
func TestCallsWaitOnlyForTheirAccount(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.fund(alice, fine, 100)
	l.fund(bob, fine, 100)
	holder := l.rival()
	do(t, holder, `begin`)
	do(t, holder, fmt.Sprintf(`select * from funding_apply('held', 'withdraw', %d, %d, 1)`, alice, fine))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	theirs := call("r", fine, 1)
	theirs.UserID = bob
	succeeds(t, l.Withdraw(ctx, theirs))
	succeeds(t, l.Refund(ctx, theirs))
	first := call("first", fine, 1)
	first.UserID = 9
	succeeds(t, l.OutsideDeposit(ctx, first))

	waits := make(chan transfer.Outcome, 1)
	go func() { waits <- l.Withdraw(t.Context(), call("behind", fine, 99)) }()
	l.awaitLock()
	do(t, holder, `commit`)
	succeeds(t, <-waits)
	l.has(alice, fine, "0.00000000")
}

// Each call is one round trip and one commit.
func TestACallIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.fund(alice, fine, 100)
	cfg := check.Value(pgxpool.ParseConfig(l.db.URL))(t)
	cfg.ConnConfig.Tracer = store.Tracer{}
	db := check.Value(pgxpool.NewWithConfig(t.Context(), cfg))(t)
	t.Cleanup(db.Close)
	counted := funding.New(db)
	ctx := telemetry.WithMeter(t.Context())
	succeeds(t, counted.Withdraw(ctx, call("r", fine, 1)))
	succeeds(t, counted.Refund(ctx, call("r", fine, 1)))
	succeeds(t, counted.Refund(ctx, call("r", fine, 1)))
	refused(t, counted.Resolve(ctx, transfer.Deposit, call("r", fine, 1)), transfer.ResolvedByOperator)
	want := telemetry.Cost{SQLRoundTrips: 4, SQLStatements: 4, Commits: 4}
	check.Same(t, "cost of four calls", telemetry.MeterFrom(ctx).Cost(), want)
}

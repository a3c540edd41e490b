package funding_test

import (
	"slices"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/funding"
	"github.com/fencepost/fencepost/shared/transfer"
)

// H2: a withdrawal is refused and its answer is lost. A repeat must return the refusal, and must
// not count as a success because the key is known. A refund must not match the withdrawal's answer,
// although both share the req_id.
func TestH02ARepeatHearsItsOwnAnswer(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.fund(alice, fine, 100)
	short := call("short", fine, 101)
	refused(t, l.Withdraw(t.Context(), short), transfer.InsufficientBalance)
	refused(t, l.Withdraw(t.Context(), short), transfer.InsufficientBalance)
	unknown(t, l.Refund(t.Context(), short), funding.ErrNoWithdrawal)
	l.has(alice, fine, "0.00000100")

	r := call("r", fine, 40)
	succeeds(t, l.Withdraw(t.Context(), r))
	l.has(alice, fine, "0.00000060")
	succeeds(t, l.Refund(t.Context(), r))
	l.has(alice, fine, "0.00000100")
	succeeds(t, l.Refund(t.Context(), r))
	succeeds(t, l.Withdraw(t.Context(), r))
	l.has(alice, fine, "0.00000100")
}

// H3 (a): the account is frozen or disabled before the refund. The refund is credited all the same;
// a stored refusal would be permanent.
func TestH03RefundsAreNeverRefused(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"FROZEN", "DISABLED"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			l.fund(alice, fine, 100)
			r := call("r", fine, 40)
			unknown(t, l.Refund(t.Context(), r), funding.ErrNoWithdrawal)
			succeeds(t, l.Withdraw(t.Context(), r))
			setStatus(l, status)
			succeeds(t, l.Refund(t.Context(), r))
			succeeds(t, l.Refund(t.Context(), r))
			l.has(alice, fine, "0.00000100")
		})
	}
}

// H3 (b): each refusal is stored, whether its cause is the call, the account or the balance. A late
// duplicate does not apply, even if it could by then.
func TestH03RefusalsAreForEver(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	const later = int32(99) // an asset that does not exist yet
	nobody := transfer.Call{ReqID: "nobody", UserID: 0, AssetID: fine, Units: 1}
	noAsset := transfer.Call{ReqID: "no asset", UserID: alice, AssetID: -1, Units: 1}
	type refusal struct {
		op  transfer.Op
		c   transfer.Call
		why transfer.Reason
	}
	l.fund(alice, fine, 100)
	l.fund(bob, fine, 100)
	refusals := []refusal{
		{transfer.Withdraw, call("none", fine, 0), transfer.InvalidAmount},
		{transfer.Deposit, call("none", fine, 0), transfer.InvalidAmount},
		{transfer.Withdraw, nobody, transfer.InvalidUser},
		{transfer.Deposit, noAsset, transfer.InvalidAsset},
		{transfer.Withdraw, call("later", later, 1<<63), transfer.InvalidAsset},
		{transfer.Deposit, call("later", later, 1), transfer.InvalidAsset},
		{transfer.OutsideDeposit, call("later", later, 1), transfer.InvalidAsset},
		{transfer.Deposit, call("missing", middle, 1), transfer.TargetAccountNotFound},
		{transfer.Withdraw, call("missing", middle, 1), transfer.SourceAccountNotFound},
		{transfer.Withdraw, call("short", fine, 200), transfer.InsufficientBalance},
		{transfer.OutsideWithdrawal, call("short", fine, 200), transfer.InsufficientBalance},
	}
	for _, r := range refusals {
		refused(t, l.of(r.op)(t.Context(), r.c), r.why)
	}
	setStatus(l, "FROZEN")
	refusals = append(refusals, refusal{transfer.Withdraw, call("frozen", fine, 1), transfer.AccountFrozen})
	refused(t, l.Withdraw(t.Context(), call("frozen", fine, 1)), transfer.AccountFrozen)
	setStatus(l, "DISABLED")
	refusals = append(refusals, refusal{transfer.Deposit, call("disabled", fine, 1), transfer.AccountDisabled})
	refused(t, l.Deposit(t.Context(), call("disabled", fine, 1)), transfer.AccountDisabled)

	setStatus(l, "ACTIVE")
	l.asset(later, "LATER", 8)
	l.fund(alice, middle, 1)
	l.fund(alice, later, 1<<40)
	succeeds(t, l.OutsideDeposit(t.Context(), call("enough", fine, 10000)))
	before := l.rows()
	for _, r := range slices.Backward(refusals) {
		refused(t, l.of(r.op)(t.Context(), r.c), r.why)
	}
	check.Same(t, "rows after late duplicates", l.rows(), before)
}

// H7: the unique keys that prevent a second effect cover all rows, permanently.
func TestH07KeysOfFundingLiveForEver(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for table, columns := range map[string][]string{
		"transfer_operations": {"op_type", "req_id"},
		"balances_tb":         {"account_type", "asset_id", "user_id"},
	} {
		var n int
		err := l.db.DB.QueryRow(t.Context(), `
select count(*)
  from pg_constraint k
  join pg_class c on c.oid = k.conrelid
  join pg_index i on i.indexrelid = k.conindid
 where c.oid = $1::regclass and k.contype in ('p', 'u') and not k.condeferrable
   and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null
   and c.relkind = 'r' and c.relpersistence = 'p' and not c.relispartition
   and not exists (select from pg_inherits h where c.oid in (h.inhrelid, h.inhparent))
   and array(select a.attname::text from pg_attribute a
              where a.attrelid = c.oid and a.attnum = any (k.conkey) order by 1) = $2`, table, columns).Scan(&n)
		if err != nil || n != 1 {
			t.Errorf("%s %v: got %d unique constraints over all rows of one ordinary table, error %v; want 1", table, columns, n, err)
		}
	}
}

// H8: in a restored database that no operator has accepted, Funding moves nothing and proves
// nothing. Money that moved after the backup would move again.
func TestH08RestoredCopyMovesNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.fund(alice, fine, 10)
	succeeds(t, l.Withdraw(t.Context(), call("before", fine, 1)))
	l.exec(`update database_identity set timeline_id = timeline_id + 1`)
	rows := l.rows()
	c := call("r", fine, 1)
	for _, op := range []transfer.Op{transfer.Withdraw, transfer.Deposit, transfer.Refund, transfer.OutsideDeposit} {
		unknown(t, l.of(op)(t.Context(), c), transfer.ErrForeign)
	}
	for _, asked := range []transfer.Call{c, call("before", fine, 1)} {
		unknown(t, l.Resolve(t.Context(), transfer.Withdraw, asked), transfer.ErrForeign)
	}
	check.Same(t, "changed", l.rows(), rows)
	check.OK(t)(l.db.Store.AcceptDatabase(t.Context(), "carol", "reconciled"))
	succeeds(t, l.Resolve(t.Context(), transfer.Withdraw, call("before", fine, 1)))
	succeeds(t, l.OutsideDeposit(t.Context(), c))
	l.has(alice, fine, "0.00000010")
}

// A late invocation has read a transfer that the restored copy lacks. It moves nothing in the copy, also beside calls of
// transfers that the copy has.
func TestACallOfALostTransferMovesNothingInARestoredCopy(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.fund(alice, fine, 10)
	l.exec(`update database_identity set timeline_id = timeline_id + 1`)
	check.OK(t)(l.db.Store.AcceptDatabase(t.Context(), "carol", "reconciled"))
	kept := call("01ARZ3NDEKTSV4RRFFQ69G5FAV", fine, 2)
	l.exec(`insert into transfers_tb (req_id, user_id, asset_id, amount, precision, transfer_type, source_type) values ($1, $2, $3, 0.00000002, 8, 1, 1)`, kept.ReqID, alice, fine)
	for _, op := range []transfer.Op{transfer.Withdraw, transfer.Deposit, transfer.Refund} {
		unknown(t, l.of(op)(t.Context(), call("lost", fine, 1)), transfer.ErrForeign)
	}
	all := check.Value(l.Together(t.Context(), []funding.Request{{Op: transfer.Withdraw, Call: call("lost", fine, 1)}, {Op: transfer.Withdraw, Call: kept}}))(t)
	unknown(t, all[0], transfer.ErrForeign)
	succeeds(t, all[1])
	l.has(alice, fine, "0.00000008")
	check.Equal(t, "rows of the journal and of balances", len(l.rows()), 3)
}

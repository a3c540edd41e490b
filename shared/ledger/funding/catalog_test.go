package funding_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/check"
)

const (
	newOp      = `insert into transfer_operations (req_id, op_type, result, reason, user_id, asset_id, units, amount) values `
	newBalance = `insert into balances_tb (user_id, asset_id, precision, available, status, account_type) values `
)

// forbidden maps each constraint or trigger to the statements that it must reject.
var forbidden = map[string][]string{
	"one_balance_per_account": {newBalance + `(7, 1, 8, 5, 'ACTIVE', 'FUNDING')`},
	"balance_of_an_asset":     {newBalance + `(9, 99, 8, 5, 'ACTIVE', 'FUNDING')`, newBalance + `(9, 1, 7, 5, 'ACTIVE', 'FUNDING')`},
	"balance_of_a_user":       {newBalance + `(0, 1, 8, 5, 'ACTIVE', 'FUNDING')`},
	"balance_is_funding":      {newBalance + `(9, 1, 8, 5, 'ACTIVE', 'MARGIN')`},
	"balance_is_not_negative": {`update balances_tb set available = -0.00000001`, `update balances_tb set available = 'NaN'`},
	"balance_is_whole_units":  {newBalance + `(9, 2, 6, 0.0000001, 'ACTIVE', 'FUNDING')`},
	"status_is_known":         {`update balances_tb set status = 'GONE'`},
	"accounts_stay":           {`delete from balances_tb`, `update balances_tb set user_id = 9`, `update balances_tb set asset_id = 2, precision = 6, available = 1`},

	"one_operation_per_request": {newOp + `('o', 'outside_deposit', 'SUCCESS', null, 7, 1, 5, 0.00000005)`},
	"operation_has_a_request":   {newOp + `('', 'deposit', 'SUCCESS', null, 7, 1, 5, 5)`, newOp + `(repeat('r', 129), 'deposit', 'SUCCESS', null, 7, 1, 5, 5)`},
	"operation_is_known":        {newOp + `('r', 'burn', 'SUCCESS', null, 7, 1, 5, 5)`},
	"result_is_known":           {newOp + `('r', 'deposit', 'PENDING', null, 7, 1, 5, 5)`},
	"refused_for_a_reason": {newOp + `('r', 'deposit', 'REFUSED', null, 7, 1, 5, 5)`, newOp + `('r', 'deposit', 'REFUSED', '', 7, 1, 5, 5)`,
		newOp + `('r', 'deposit', 'SUCCESS', 'OVERFLOW', 7, 1, 5, 5)`},
	"refund_is_never_refused": {newOp + `('r', 'refund', 'REFUSED', 'ACCOUNT_FROZEN', 7, 1, 5, 5)`},
	"units_are_64_bits":       {newOp + `('r', 'deposit', 'REFUSED', 'OVERFLOW', 7, 1, -1, 5)`, newOp + `('r', 'deposit', 'REFUSED', 'OVERFLOW', 7, 1, 18446744073709551616, 5)`},
	"applied_moves_something": {newOp + `('r', 'deposit', 'SUCCESS', null, 7, 1, 0, 5)`, newOp + `('r', 'deposit', 'SUCCESS', null, 0, 1, 5, 5)`,
		newOp + `('r', 'deposit', 'SUCCESS', null, 7, 0, 5, 5)`, newOp + `('r', 'deposit', 'SUCCESS', null, 7, 1, 5, 0)`,
		newOp + `('r', 'deposit', 'SUCCESS', null, 7, 1, 5, null)`, newOp + `('r', 'deposit', 'SUCCESS', null, 7, 1, 5, 'NaN')`},
	"history_never_changes": {`delete from transfer_operations`, `update transfer_operations set result = 'SUCCESS'`, `truncate transfer_operations`, `truncate balances_tb`},
}

// Each constraint of the two tables, and each trigger, rejects its forbidden statements.
func TestEveryConstraintRejectsItsForbiddenRows(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	succeeds(t, l.OutsideDeposit(t.Context(), call("o", fine, 5)))
	for constraint, statements := range forbidden {
		for _, statement := range statements {
			if err := l.attempt(statement); violated(err) != constraint {
				t.Errorf("%s: got refused by %s, want by %s", statement, violated(err), constraint)
			}
		}
	}
	rows := check.Value(l.db.DB.Query(t.Context(), `select conname::text from pg_constraint
		where conrelid in ('balances_tb'::regclass, 'transfer_operations'::regclass) and contype in ('c', 'f', 'p', 'u', 'x')`))(t)
	want := append(check.Value(pgx.CollectRows(rows, pgx.RowTo[string]))(t), "accounts_stay", "history_never_changes") // the last two are of triggers
	slices.Sort(want)
	check.Same(t, "constraints with statements that they reject, beside those of the schema", slices.Sorted(maps.Keys(forbidden)), want)
}

// attempt runs a statement in a transaction that is rolled back.
func (l ledger) attempt(statement string) error {
	l.t.Helper()
	tx := check.Value(l.db.DB.Begin(l.t.Context()))(l.t)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err := tx.Exec(l.t.Context(), statement)
	return err
}

// Each table has three guards. Without one of them its forbidden statements succeed.
func TestEveryTriggerDoesItsDuty(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	succeeds(t, l.OutsideDeposit(t.Context(), call("o", fine, 5)))
	const operations, balances = "transfer_operations", "balances_tb"
	for trigger, c := range map[string]struct{ table, statement string }{
		"guard_operations": {operations, `delete from transfer_operations`}, "guard_operations_truncate": {operations, `truncate transfer_operations`},
		"guard_balance": {balances, `delete from balances_tb`}, "guard_balance_key": {balances, `update balances_tb set user_id = 9`},
		"guard_balances_truncate": {balances, `truncate balances_tb`},
	} {
		if err := l.attempt(c.statement); err == nil {
			t.Errorf("%s: got no error", c.statement)
		}
		check.Err(t, c.statement+" with "+trigger+" off", nil)(l.attempt(`alter table ` + c.table + ` disable trigger ` + trigger + `; ` + c.statement))
	}
}

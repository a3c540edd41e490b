package funding_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/funding"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/transfer"
)

// The assets of the tests, by their number of decimals.
const (
	fine   = int32(1) // 8
	middle = int32(2) // 6
	whole  = int32(3) // 0
)

const alice, bob = int64(7), int64(8)

// ledger is a Funding ledger on a separate database.
type ledger struct {
	*funding.Ledger
	db storetest.Bundle
	t  testing.TB
}

func newLedger(t testing.TB) ledger {
	t.Helper()
	db := storetest.New(t)
	l := ledger{Ledger: funding.New(db.DB), db: db, t: t}
	l.asset(fine, "FINE", 8)
	l.asset(middle, "MIDDLE", 6)
	l.asset(whole, "WHOLE", 0)
	return l
}

func (l ledger) asset(id int32, name string, precision int) {
	l.t.Helper()
	l.exec(`insert into assets_tb (asset_id, asset, precision, min_transfer_amount, max_transfer_amount, status, internal_transfer_enabled)
		values ($1, $2, $3, 1, 1000000, 'ACTIVE', true)`, id, name, precision)
}

// exec changes at least one row by SQL, without the ledger.
func (l ledger) exec(statement string, args ...any) {
	l.t.Helper()
	tag, err := l.db.DB.Exec(l.t.Context(), statement, args...)
	if err != nil || ((tag.Update() || tag.Insert() || tag.Delete()) && tag.RowsAffected() == 0) {
		l.t.Fatalf("%s: got %v, error %v; want rows changed", statement, tag, err)
	}
}

// call returns a call for alice's account.
func call(req string, asset int32, units uint64) transfer.Call {
	return transfer.Call{ReqID: req, UserID: alice, AssetID: asset, Units: units}
}

// fund credits a user by an outside deposit.
func (l ledger) fund(user int64, asset int32, units uint64) {
	l.t.Helper()
	c := call(fmt.Sprintf("funds of %d in %d", user, asset), asset, units)
	c.UserID = user
	succeeds(l.t, l.OutsideDeposit(l.t.Context(), c))
}

// account reads an account in the table.
func (l ledger) account(user int64, asset int32) (available, status string, err error) {
	err = l.db.DB.QueryRow(l.t.Context(), `select available::text, status from balances_tb where user_id = $1 and asset_id = $2`,
		user, asset).Scan(&available, &status)
	return available, status, err
}

// has checks a balance in the table.
func (l ledger) has(user int64, asset int32, want string) {
	l.t.Helper()
	if got, _, err := l.account(user, asset); err != nil || got != want {
		l.t.Errorf("balance of %d in %d: got %s, error %v; want %s", user, asset, got, err, want)
	}
}

// rows returns the journal and the balances as text.
func (l ledger) rows() (all []string) {
	l.t.Helper()
	for _, table := range []string{"transfer_operations", "balances_tb"} {
		var some []string
		check.OK(l.t)(l.db.DB.QueryRow(l.t.Context(), `select array(select to_jsonb(r)::text from `+table+` r order by 1)`).Scan(&some))
		all = append(all, some...)
	}
	return all
}

func succeeds(t testing.TB, o transfer.Outcome) {
	t.Helper()
	check.Equal(t, "outcome", o, transfer.Outcome{Verdict: transfer.Success})
}

func refused(t testing.TB, o transfer.Outcome, why transfer.Reason) {
	t.Helper()
	check.Equal(t, "outcome", o, transfer.Outcome{Verdict: transfer.Refused, Reason: why})
}

func unknown(t testing.TB, o transfer.Outcome, cause error) {
	t.Helper()
	if o.Verdict != transfer.Unknown || o.Reason != "" || o.Err == nil || cause != nil && !errors.Is(o.Err, cause) {
		t.Errorf("got %+v, want Unknown because of %v", o, cause)
	}
}

// rival opens the connection of another process.
func (l ledger) rival() *pgx.Conn {
	l.t.Helper()
	conn := check.Value(pgx.Connect(l.t.Context(), l.db.URL))(l.t)
	l.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// awaitLock waits until a call waits for a lock.
func (l ledger) awaitLock() {
	l.t.Helper()
	for blocked := false; !blocked; {
		check.OK(l.t)(l.db.DB.QueryRow(l.t.Context(), `select exists (select from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock')`).Scan(&blocked))
	}
}

func do(t testing.TB, conn *pgx.Conn, statement string) {
	t.Helper()
	check.OK(t)(conn.Exec(t.Context(), statement))
}

// violated returns the constraint that an error names.
func violated(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.ConstraintName
	}
	return fmt.Sprint(err)
}

package conservation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/transfer"
)

// The errors of an adjustment. No money was moved.
var (
	ErrNoFinding  = errors.New("no open finding BALANCE_DIFFERS has this number")
	ErrAdjusted   = errors.New("the finding was adjusted before")
	ErrMoved      = errors.New("the account's balance has changed since the last check; run a check first")
	ErrOutOfRange = errors.New("the account cannot be adjusted by that: its balance would be below zero or above 2^64-1, or there is no account")
)

// AdjustmentOrder is an operator's order to adjust a finding. If a second operator must approve, the
// approval belongs here and is recorded with it.
type AdjustmentOrder struct {
	FindingID int64
	Journal   bool // true: move the journal's sum to the balance; false: move the balance to the journal's sum
	By        string
	Reason    string
}

// Adjustment is one that was made.
type Adjustment struct {
	FindingID int64
	Side      conservation.Side
	Op        transfer.Op
	Account   conservation.Account
	Units     uint64
	At        time.Time // time of the order
}

// CoreAdjust makes an adjustment in the trading core, if the account's balance is found. It applies
// once for the call's ReqID. The error wraps [ErrMoved] or [ErrOutOfRange] if it did nothing; after any
// other error the result is unknown.
type CoreAdjust func(ctx context.Context, op transfer.Op, c transfer.Call, found uint64) error

// standingFinding reads the open finding. Its lock makes a second operator wait.
const standingFinding = `
select f.side, f.user_id, f.asset_id, coalesce(s.expected, f.expected), coalesce(s.got, f.got),
       exists (select from conservation_adjustment a where a.finding_id = f.finding_id and a.applied_at is not null), is_accepted_database(), f.at
  from conservation_finding f
  join conservation_standing s using (finding_id)
 where f.finding_id = $1 and f.kind = 'BALANCE_DIFFERS'
   for update of s`

// Adjust makes the ordered adjustment, by exactly the difference of the last check. In Funding one
// commit has the order, the journal's line and the balance. In Trading the order is recorded before the
// core is called. The core is called by a transaction that holds the proposal, if one is carried out. If the
// core's answer is lost the same order can be repeated, and is applied once.
func (b *Book) Adjust(ctx context.Context, o AdjustmentOrder, core CoreAdjust) (Adjustment, error) {
	var d due
	err := pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) (err error) {
		if d, err = orderAdjustment(ctx, tx, o); err != nil || d.Side != transfer.Funding {
			return err
		}
		if err := store.CarryOut(ctx, tx); err != nil {
			return err
		}
		if err := adjustFunding(ctx, tx, d); err != nil {
			return err
		}
		return applied(ctx, tx, d.number)
	})
	if err == nil && d.Side != transfer.Funding {
		err = store.BeginCarrying(ctx, b.db, func(tx pgx.Tx) error { return adjustCore(ctx, tx, d, core) })
	}
	return d.Adjustment, results.Wrap(err, "adjust finding %d", o.FindingID)
}

// adjustCore makes a recorded adjustment in the trading core.
func adjustCore(ctx context.Context, tx pgx.Tx, d due, core CoreAdjust) error {
	call := transfer.Call{ReqID: d.key(), UserID: d.Account.UserID, AssetID: d.Account.AssetID, Units: d.Units, CreatedAt: d.first}
	if err := store.AwaitLedger(ctx, tx, func(ctx context.Context) error { return core(ctx, d.Op, call, d.found) }); err != nil {
		return err
	}
	return applied(ctx, tx, d.number)
}

// due is a recorded adjustment.
type due struct {
	Adjustment
	number int64
	found  uint64    // the balance in the last check
	first  time.Time // the time of the first order for the finding, the same at each attempt
	when   time.Time // when the finding was first found
}

// key returns the core's key for the finding. It is unique even after a restore of this database, which
// reuses the numbers of findings.
func (d due) key() string { return fmt.Sprintf("finding-%d-%d", d.FindingID, d.when.UnixMicro()) }

const putAdjustment = `
insert into conservation_adjustment (finding_id, side, op, user_id, asset_id, units, by, reason)
values ($1, $2, $3, $4, $5, $6, $7, $8)
returning id, at, least(at, (select min(at) from conservation_adjustment where finding_id = $1))`

// orderAdjustment records the order, and returns the adjustment to make.
func orderAdjustment(ctx context.Context, tx pgx.Tx, o AdjustmentOrder) (d due, err error) {
	var expected, got string
	var adjusted, ours bool
	err = tx.QueryRow(ctx, standingFinding, o.FindingID).Scan(&d.Side, &d.Account.UserID, &d.Account.AssetID, &expected, &got, &adjusted, &ours, &d.when)
	switch {
	case err != nil:
		return d, results.Missing(err, ErrNoFinding)
	case !ours:
		return d, transfer.ErrForeign
	case adjusted:
		return d, ErrAdjusted
	}
	d.FindingID = o.FindingID
	if d.Op, d.Units, d.found, err = difference(expected, got, o.Journal); err != nil {
		return d, err
	}
	err = tx.QueryRow(ctx, putAdjustment, o.FindingID, d.Side, d.Op, d.Account.UserID, d.Account.AssetID,
		strconv.FormatUint(d.Units, 10), o.By, o.Reason).Scan(&d.number, &d.At, &d.first)
	return d, err
}

// difference returns the operation that makes both equal, and its amount.
func difference(expected, got string, journal bool) (op transfer.Op, units, found uint64, err error) {
	sum, err := conservation.ParseSum(expected)
	balance, errGot := conservation.ParseSum(got)
	if err = cmp.Or(err, errGot); err != nil {
		return "", 0, 0, err
	}
	if found, err = strconv.ParseUint(got, 10, 64); err != nil {
		return "", 0, 0, ErrOutOfRange
	}
	text, less := strings.CutPrefix(balance.Minus(sum).String(), "-")
	if units, err = strconv.ParseUint(text, 10, 64); err != nil || units == 0 {
		return "", 0, 0, ErrOutOfRange
	}
	switch {
	case journal && less:
		return transfer.JournalDebit, units, found, nil
	case journal:
		return transfer.JournalCredit, units, found, nil
	case less:
		return transfer.BalanceCredit, units, found, nil
	case units > found: // the journal's sum is below zero
		return "", 0, 0, ErrOutOfRange
	}
	return transfer.BalanceDebit, units, found, nil
}

func adjustFunding(ctx context.Context, tx pgx.Tx, a due) error {
	var problem *string
	err := tx.QueryRow(ctx, `select funding_adjust($1, $2, $3, $4, $5, $6)`, a.FindingID, a.Op, a.Account.UserID, a.Account.AssetID,
		strconv.FormatUint(a.Units, 10), strconv.FormatUint(a.found, 10)).Scan(&problem)
	switch {
	case err != nil:
		return err
	case problem == nil:
		return nil
	case *problem == "ACCOUNT_MOVED":
		return ErrMoved
	}
	return ErrOutOfRange
}

// applied records that the ledger made the adjustment. [ErrAdjusted] means that it made it for another,
// equal order.
func applied(ctx context.Context, db results.DB, number int64) error {
	_, err := db.Exec(ctx, `update conservation_adjustment set applied_at = clock_timestamp() where id = $1`, number)
	if results.Refusal(err).ConstraintName == "one_adjustment_per_finding" {
		return ErrAdjusted
	}
	return err
}

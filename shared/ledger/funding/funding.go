// Package funding is the ledger of Funding accounts, in Postgres: balances_tb, and
// transfer_operations, which is the journal and remembers every answer for ever.
//
// A call is one transaction in one round trip. It locks its account's row, judges,
// writes the answer under its key, and changes the balance: all of it is committed
// or none. A call that was answered before is answered from the journal and locks
// nothing. No two calls wait for each other but for one account, or for one key.
package funding

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/shared/transfer"
)

// Ledger keeps the balances of Funding accounts. It is a [transfer.Ledger], and
// any number of them, in any number of processes, may use one database.
//
// An account is made by its first outside deposit. A deposit by a transfer, or by
// the outside, is refused with OVERFLOW where the balance would exceed 2^64 - 1
// units; a refund is not, and may exceed it.
type Ledger struct{ db *pgxpool.Pool }

var _ transfer.Ledger = (*Ledger)(nil)

// New is the ledger in the database that db leads to. It closes nothing.
func New(db *pgxpool.Pool) *Ledger { return &Ledger{db: db} }

// Causes of an Unknown that no further try will change.
var (
	// ErrOtherFields reports a call whose user, asset or units are not those that
	// are stored under its key.
	ErrOtherFields = errors.New("the key was used with other fields")
	// ErrNoWithdrawal reports a refund of what was not withdrawn: never asked for,
	// refused, or not yet known.
	ErrNoWithdrawal = errors.New("no withdrawal of this request succeeded")
	// ErrNoRefusal reports that a refund was to be resolved that is not stored.
	ErrNoRefusal = errors.New("a refund is never refused")
)

// Withdraw takes the units. It refuses an account that is missing, FROZEN, DISABLED
// or short.
func (l *Ledger) Withdraw(ctx context.Context, c transfer.Call) transfer.Outcome {
	return l.call(ctx, apply, transfer.Withdraw, c)
}

// Deposit puts in the units. It refuses an account that is missing or DISABLED, or
// would overflow.
func (l *Ledger) Deposit(ctx context.Context, c transfer.Call) transfer.Outcome {
	return l.call(ctx, apply, transfer.Deposit, c)
}

// Refund gives back what the withdrawal of the same req_id took. Where there is
// none that succeeded it is Unknown with [ErrNoWithdrawal], and stores nothing.
func (l *Ledger) Refund(ctx context.Context, c transfer.Call) transfer.Outcome {
	return l.call(ctx, apply, transfer.Refund, c)
}

// Resolve answers what is stored, or stores that op is refused for ever. A refund
// that is not stored is Unknown with [ErrNoRefusal].
func (l *Ledger) Resolve(ctx context.Context, op transfer.Op, c transfer.Call) transfer.Outcome {
	return l.call(ctx, resolve, op, c)
}

// OutsideDeposit puts in units that come from outside, under the name that the
// outside has for them, and makes the account if there is none.
func (l *Ledger) OutsideDeposit(ctx context.Context, c transfer.Call) transfer.Outcome {
	return l.call(ctx, apply, transfer.OutsideDeposit, c)
}

// OutsideWithdrawal takes units that leave to the outside. It refuses what Withdraw
// refuses.
func (l *Ledger) OutsideWithdrawal(ctx context.Context, c transfer.Call) transfer.Outcome {
	return l.call(ctx, apply, transfer.OutsideWithdrawal, c)
}

// act is one of the database's two functions, and what it means that there is no
// answer.
type act struct {
	statement string
	missing   error
}

var (
	apply   = act{`select result, reason, same, foreign_copy from funding_apply($1, $2, $3, $4, $5)`, ErrNoWithdrawal}
	resolve = act{`select result, reason, same, foreign_copy from funding_resolve($1, $2, $3, $4, $5)`, ErrNoRefusal}
)

// call does it in one round trip that ends in its commit.
func (l *Ledger) call(ctx context.Context, do act, op transfer.Op, c transfer.Call) transfer.Outcome {
	var a answer
	b := new(pgx.Batch)
	b.Queue("begin")
	b.Queue(do.statement, c.ReqID, string(op), c.UserID, c.AssetID, strconv.FormatUint(c.Units, 10)).
		QueryRow(func(row pgx.Row) error { return row.Scan(&a.result, &a.reason, &a.same, &a.foreign) })
	b.Queue("commit")
	if err := l.db.SendBatch(ctx, b).Close(); err != nil {
		return unknown(op, c, err)
	}
	if a.foreign {
		return unknown(op, c, transfer.ErrForeign)
	}
	if !a.result.Valid && (!a.same.Valid || a.same.Bool) {
		return unknown(op, c, do.missing)
	}
	return a.outcome(op, c)
}

// answer is what the database's functions say: no result is unknown, and same
// tells why.
type answer struct {
	result, reason pgtype.Text
	same           pgtype.Bool
	foreign        bool // the database is not the one written last: nothing was done
}

func (a answer) outcome(op transfer.Op, c transfer.Call) transfer.Outcome {
	switch {
	case a.same.Valid && !a.same.Bool:
		return unknown(op, c, ErrOtherFields)
	case a.result.String == "SUCCESS":
		return transfer.Outcome{Verdict: transfer.Success}
	case a.result.String == "REFUSED" && a.reason.String != "":
		return transfer.Outcome{Verdict: transfer.Refused, Reason: transfer.Reason(a.reason.String)}
	default:
		return unknown(op, c, fmt.Errorf("the journal says %q, for %q", a.result.String, a.reason.String))
	}
}

func unknown(op transfer.Op, c transfer.Call, err error) transfer.Outcome {
	return transfer.Outcome{Err: fmt.Errorf("%s of %s in Funding: %w", op, c.ReqID, err)}
}

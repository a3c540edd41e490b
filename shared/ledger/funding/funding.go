// Package funding is the ledger of Funding accounts in Postgres: balances_tb, and
// transfer_operations, the journal that keeps every answer permanently.
//
// A call is one transaction in one round trip. It locks its account's row, evaluates the call,
// writes the answer under its key, and changes the balance; all or nothing is committed. A repeated
// call is answered from the journal without a lock. Two calls wait for each other only if they
// share an account or a key.
package funding

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/shared/batch"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Ledger keeps the balances of Funding accounts. It is a [transfer.Ledger], and its own journal. Any number of ledgers,
// in any number of processes, can use one database.
//
// The first outside deposit creates an account. A deposit, by a transfer or from outside, is
// refused with OVERFLOW if the balance would exceed 2^64 - 1 units. A refund is never refused and
// can exceed that limit. An account that is FROZEN accepts deposits and refunds, one that is DISABLED
// only refunds.
type Ledger struct {
	db    *pgxpool.Pool
	calls *batch.Group[request, answer] // that share round trips and commits
}

var _ transfer.Ledger = (*Ledger)(nil)

// New returns the ledger in the database of db. The caller closes db.
func New(db *pgxpool.Pool) *Ledger { return NewInLane(db, nil) }

// NewInLane is [New] with calls that take turns with the other round trips of the lane. nil: there are none.
func NewInLane(db *pgxpool.Pool, lane *batch.Lane) *Ledger {
	l := &Ledger{db: db}
	l.calls = batch.New(batch.Options[request, answer]{
		Send: l.answerAll, Lane: lane, MaxCalls: maxBatchCalls, Timeout: batchTimeout, SlowAfter: slowCallAfter, Alone: maxAlone,
		Key: func(r request) string { return r.call.ReqID }, // the second call of a request may depend on the first
	})
	return l
}

// Causes of an Unknown that no repetition will change.
var (
	// ErrOtherFields reports a call whose user, asset or units differ from those stored under its
	// key.
	ErrOtherFields = errors.New("the key was used with other fields")
	// ErrNoWithdrawal reports a refund without a successful withdrawal: it was never called, was
	// refused, or is not known yet.
	ErrNoWithdrawal = errors.New("no withdrawal of this request succeeded")
	// ErrNoRefusal reports a resolve of a refund that is not stored.
	ErrNoRefusal = errors.New("a refund is never refused")
)

// Withdraw takes the units. It refuses an account that is missing, FROZEN, DISABLED, or has too
// little.
func (l *Ledger) Withdraw(ctx context.Context, c transfer.Call) transfer.Outcome {
	return l.apply(ctx, transfer.Withdraw, c)
}

// Deposit adds the units. It refuses an account that is missing, DISABLED, or would overflow.
func (l *Ledger) Deposit(ctx context.Context, c transfer.Call) transfer.Outcome {
	return l.apply(ctx, transfer.Deposit, c)
}

// Refund returns the units of the withdrawal with the same req_id. Without a successful withdrawal
// it is Unknown with [ErrNoWithdrawal] and stores nothing.
func (l *Ledger) Refund(ctx context.Context, c transfer.Call) transfer.Outcome {
	return l.apply(ctx, transfer.Refund, c)
}

// Resolve returns the stored answer, or stores a permanent refusal of op. A refund that is not
// stored is Unknown with [ErrNoRefusal].
func (l *Ledger) Resolve(ctx context.Context, op transfer.Op, c transfer.Call) transfer.Outcome {
	return l.alone(ctx, resolve, op, c)
}

// OutsideDeposit adds units that come from outside, under the outside system's req_id. It creates
// the account if there is none.
func (l *Ledger) OutsideDeposit(ctx context.Context, c transfer.Call) transfer.Outcome {
	return l.alone(ctx, deposit, transfer.OutsideDeposit, c)
}

// OutsideWithdrawal takes units that leave to the outside. It refuses in the same cases as
// Withdraw.
func (l *Ledger) OutsideWithdrawal(ctx context.Context, c transfer.Call) transfer.Outcome {
	return l.apply(ctx, transfer.OutsideWithdrawal, c)
}

// apply makes the call beside those of concurrent callers, in one round trip that ends in its commit.
func (l *Ledger) apply(ctx context.Context, op transfer.Op, c transfer.Call) transfer.Outcome {
	a, err := l.calls.Do(ctx, request{op, c})
	if err != nil {
		return unknown(op, c, err)
	}
	return a.outcome(op, c, ErrNoWithdrawal)
}

// The statements of calls that are made alone.
const (
	deposit = `select 1, result, reason, same, not_accepted from funding_apply($1, $2, $3, $4, $5)`
	resolve = `select 1, result, reason, same, not_accepted from funding_resolve($1, $2, $3, $4, $5)`
)

// alone makes one call in one round trip that ends in its commit.
func (l *Ledger) alone(ctx context.Context, statement string, op transfer.Op, c transfer.Call) transfer.Outcome {
	var a [1]answer
	b := new(pgx.Batch)
	b.Queue("begin")
	b.Queue(statement, c.ReqID, string(op), c.UserID, c.AssetID, strconv.FormatUint(c.Units, 10)).Query(scanInto(a[:]))
	b.Queue("commit")
	if err := l.db.SendBatch(ctx, b).Close(); err != nil {
		return unknown(op, c, err)
	}
	return a[0].outcome(op, c, ErrNoRefusal)
}

// answer is the result of the database's functions. Without a result the call is unknown, and same
// shows the cause.
type answer struct {
	result, reason pgtype.Text
	same           pgtype.Bool
	foreign        bool // the database is not the one written last, and the function did nothing
}

// outcome is the answer to the call. A missing result means the error given.
func (a answer) outcome(op transfer.Op, c transfer.Call, missing error) transfer.Outcome {
	switch {
	case a.foreign:
		return unknown(op, c, transfer.ErrForeign)
	case !a.result.Valid && (!a.same.Valid || a.same.Bool):
		return unknown(op, c, missing)
	case a.same.Valid && !a.same.Bool:
		return unknown(op, c, ErrOtherFields)
	case a.result.String == "SUCCESS":
		return transfer.Outcome{Verdict: transfer.Success}
	case a.result.String == "REFUSED" && a.reason.String != "":
		return transfer.Outcome{Verdict: transfer.Refused, Reason: transfer.Reason(a.reason.String)}
	default:
		return unknown(op, c, fmt.Errorf("the journal has the result %q with reason %q, want applied or refused", a.result.String, a.reason.String))
	}
}

func unknown(op transfer.Op, c transfer.Call, err error) transfer.Outcome {
	return transfer.Outcome{Err: fmt.Errorf("%s of %s in Funding: %w", op, c.ReqID, err)}
}

const (
	// maxBatchCalls limits the calls of one transaction.
	maxBatchCalls = 200

	// slowCallAfter is when a transaction counts as slow and the next may start beside it. It may have
	// met an account that another session has locked.
	slowCallAfter = 250 * time.Millisecond

	// maxAlone is how many calls go alone at once after a transaction of many was refused, without slow ones.
	maxAlone = 4

	// batchTimeout limits a transaction of many callers, because no single caller's context may end it.
	batchTimeout = 15 * time.Second
)

// request is one call of the ledger.
type request struct {
	op   transfer.Op
	call transfer.Call
}

// answerAll makes all calls in one round trip and one commit. The answers are those to calls that are made
// one after another.
func (l *Ledger) answerAll(ctx context.Context, all []request) []batch.Result[answer] {
	var reqs, ops, units []string
	var users []int64
	var assets []int32
	for _, r := range all {
		reqs, ops, units = append(reqs, r.call.ReqID), append(ops, string(r.op)), append(units, strconv.FormatUint(r.call.Units, 10))
		users, assets = append(users, r.call.UserID), append(assets, r.call.AssetID)
	}
	answers := make([]answer, len(all))
	b := new(pgx.Batch)
	b.Queue("begin")
	if len(all) > 1 {
		// After a longer wait for one lock each call is made alone, and waits for as long as its session may.
		b.Queue(`set local lock_timeout = '500ms'`)
	}
	b.Queue(`select place, result, reason, same, not_accepted from funding_apply_all($1, $2, $3, $4, $5)`, reqs, ops, users, assets, units).Query(scanInto(answers))
	b.Queue("commit")
	err := l.db.SendBatch(ctx, b).Close()
	if isRepeatable(err, len(all)) {
		err = batch.AloneError{Cause: err}
	}
	results := make([]batch.Result[answer], len(all))
	for i := range all {
		results[i] = batch.Result[answer]{Value: answers[i], Err: err}
	}
	return results
}

// isRepeatable reports whether nothing was stored because of one of n calls, or of a call that was
// stored meanwhile.
func isRepeatable(err error, n int) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return n > 1 && store.IsRolledBack(err) || ok && pg.Code == "40001"
}

// scanInto keeps each answer at its place.
func scanInto(answers []answer) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var place int
		var a answer
		_, err := pgx.ForEachRow(rows, []any{&place, &a.result, &a.reason, &a.same, &a.foreign}, func() error {
			answers[place-1] = a
			return nil
		})
		return err
	}
}

package funding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/batch"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/transfer"
)

const (
	// maxBatchCalls limits the calls of one transaction.
	maxBatchCalls = 200

	// slowCallAfter is when a transaction counts as slow and the next may start beside it. It may have
	// met an account that another session has locked.
	slowCallAfter = 250 * time.Millisecond

	// batchTimeout limits a transaction of many callers, because no single caller's context may end it.
	batchTimeout = 15 * time.Second
)

// request is one call of the ledger.
type request struct {
	op   transfer.Op
	call transfer.Call
}

// aloneError reports a call of several whose transaction was rolled back because of one of them. It
// must be made again, alone.
type aloneError struct{ cause error }

func (e aloneError) Error() string { return fmt.Sprintf("the call must be made alone: %v", e.cause) }

func (e aloneError) Unwrap() error { return e.cause }

// newCalls is the group of calls that share round trips and commits.
func (l *Ledger) newCalls() *batch.Group[request, answer] {
	return batch.New(batch.Options[request, answer]{
		Send:      l.answerAll,
		MaxCalls:  maxBatchCalls,
		Timeout:   batchTimeout,
		SlowAfter: slowCallAfter,
	})
}

// share makes one call, beside those of concurrent callers or alone. After an error the call may have
// been carried out.
func (l *Ledger) share(ctx context.Context, r request) (answer, error) {
	a, err := l.calls.Do(ctx, r)
	if _, ok := errors.AsType[aloneError](err); ok {
		alone := l.answerAll(ctx, []request{r})
		return alone[0].Value, alone[0].Err
	}
	return a, err
}

// lockWait limits how long the transaction of several callers waits for one lock. Then each call is
// made alone, and waits for as long as its session may.
const lockWait = `set local lock_timeout = '500ms'`

// applyAll makes the calls one after another, in the order of the arrays.
const applyAll = `
select c.place::integer, a.result, a.reason, a.same, a.not_accepted
  from unnest($1::text[], $2::text[], $3::bigint[], $4::integer[], $5::numeric[]) with ordinality as c (req, op, of_user, of_asset, of_units, place)
 cross join lateral funding_apply(c.req, c.op, c.of_user, c.of_asset, c.of_units) as a`

// answerAll makes all calls in one round trip and one commit. The calls of an account are made in the
// order of their arrival, each on the balance that the one before it left. The accounts are locked in
// one order, so that no two transactions wait for each other.
func (l *Ledger) answerAll(ctx context.Context, all []request) []batch.Result[answer] {
	places := make([]int, len(all))
	for i := range places {
		places[i] = i
	}
	slices.SortStableFunc(places, func(a, b int) int { return compareAccounts(all[a].call, all[b].call) })
	var reqs, ops, units []string
	var users []int64
	var assets []int32
	for _, i := range places {
		c := all[i].call
		reqs, ops, units = append(reqs, c.ReqID), append(ops, string(all[i].op)), append(units, strconv.FormatUint(c.Units, 10))
		users, assets = append(users, c.UserID), append(assets, c.AssetID)
	}
	answers := make([]answer, len(all))
	b := new(pgx.Batch)
	b.Queue("begin")
	if len(all) > 1 {
		b.Queue(lockWait)
	}
	b.Queue(applyAll, reqs, ops, users, assets, units).Query(scanInto(answers))
	b.Queue("commit")
	err := l.db.SendBatch(ctx, b).Close()
	if err != nil && len(all) > 1 && store.IsRolledBack(err) {
		err = aloneError{err}
	}
	results := make([]batch.Result[answer], len(all))
	for n, i := range places {
		results[i] = batch.Result[answer]{Value: answers[n], Err: err}
	}
	return results
}

func compareAccounts(a, b transfer.Call) int {
	return cmp.Or(cmp.Compare(a.UserID, b.UserID), cmp.Compare(a.AssetID, b.AssetID))
}

// scanInto keeps each answer at its place.
func scanInto(answers []answer) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var place int
			var a answer
			if err := rows.Scan(&place, &a.result, &a.reason, &a.same, &a.foreign); err != nil {
				return err
			}
			answers[place-1] = a
		}
		return rows.Err()
	}
}

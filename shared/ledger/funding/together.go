package funding

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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

// lockWait limits how long the transaction of several callers waits for one lock. Then each call is
// made alone, and waits for as long as its session may.
const lockWait = `set local lock_timeout = '500ms'`

// applyAll answers the calls as if they were made one after another.
const applyAll = `select place, result, reason, same, not_accepted from funding_apply_all($1, $2, $3, $4, $5)`

// answerAll makes all calls in one round trip and one commit.
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
		b.Queue(lockWait)
	}
	b.Queue(applyAll, reqs, ops, users, assets, units).Query(scanInto(answers))
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

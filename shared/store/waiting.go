package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// loadWaiting reads the first intents of a queue, with what keeps each from being posted now.
var loadWaiting = `
select ` + selectList(txExtras{
	payload: payloadOf, raw: "null::bytea", versions: "'{}'::text[]", quiet: "false", barred: barred,
	caller: `(select ` + presentCaller("m") + ` from submitter s where s.submitter = $1)`, value: callersValue,
}.columns()) + `
  from managed_tx m
 where m.submitter = $1 and ` + waits + `
 order by m.seq
 limit $2`

// Waiting loads a submitter's state with the first limit intents of its queue, to evaluate
// them against its present policy and callers. It takes no lease and writes nothing.
func (s *Store) Waiting(ctx context.Context, sub txmanager.Submitter, limit int) (w txmanager.SubmitterState, err error) {
	b := new(pgx.Batch)
	s.queueLoad(b, sub, false, &w)
	b.Queue(loadWaiting, sub, limit, s.anyCaller).Query(func(rows pgx.Rows) error {
		w.Queue, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (txmanager.Tx, error) { return scanTx(sub, w.Now, row) })
		return err
	})
	if err := s.db.SendBatch(ctx, b).Close(); err != nil {
		return w, fmt.Errorf("read the queue of %s: %w", sub, err)
	}
	return w, nil
}

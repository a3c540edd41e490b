package store

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// loadWaiting reads the first intents of a queue, with what keeps each from being posted now.
var loadWaiting = `
select ` + txExtras{
	payload: payloadOf, raw: "null::bytea", versions: "'{}'::text[]", quiet: "false", barred: barred,
	caller: presentOf("m", "u.submitter"), value: callersValue,
}.columns() + `
  from ` + members + `
  join managed_tx m on m.submitter = u.submitter
 where ` + waits + `
 order by m.seq
 limit $2`

// Waiting loads a submitter's state with the first limit intents of its queue, to evaluate
// them against its present policy and callers. It takes no lease and writes nothing.
func (s *Store) Waiting(ctx context.Context, sub txmanager.Submitter, limit int) (txmanager.SubmitterState, error) {
	one := []pendingLoad{{submitter: sub}}
	b := new(pgx.Batch)
	s.queueLoads(b, one)
	b.Queue(loadWaiting, []txmanager.Submitter{sub}, limit, s.opts.AnyCaller).Query(func(rows pgx.Rows) error {
		one[0].state.Queue = nil
		return scanTxs(rows, one, nil, inQueue)
	})
	err := s.db.SendBatch(ctx, b).Close()
	err = cmp.Or(err, one[0].err) // the batch sets it
	return one[0].state, results.Wrap(err, "read the queue of %s", sub)
}

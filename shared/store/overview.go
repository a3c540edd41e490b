package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Overview is the state of the whole deployment.
type Overview struct {
	At        time.Time        `json:"at"`        // of the database
	States    []StateCount     `json:"states"`    // of what has not ended
	Rates     []Rate           `json:"rates"`     // of 1, 5 and 60 minutes
	RatesUpTo *time.Time       `json:"ratesUpTo"` // the end of the last counted minute; nil: none was counted in the last hour
	Oldest    *OldestTx        `json:"oldest"`    // the oldest one that has not ended; nil: none
	Attention []AttentionCount `json:"attention"`
}

// StateCount is a number of transactions.
type StateCount struct {
	State txmanager.State `json:"state"`
	Count int             `json:"count"`
	Held  int             `json:"held"` // of them, how many are held
}

// OldestTx is the transaction that has not ended for longest.
type OldestTx struct {
	TxID      string              `json:"txId"`
	Submitter txmanager.Submitter `json:"submitter"`
	State     txmanager.State     `json:"state"`
	CreatedAt time.Time           `json:"createdAt"`
}

// These statements read rows that have not ended, by their indexes. The oldest queued row of a submitter
// is the first of its queue, or of its held intents.
var (
	stateCounts = `
select state, count(*), 0 from managed_tx where open group by state
union all
select 'QUEUED', count(*), count(*) filter (where held) from managed_tx where queued`

	oldestTx = `
with recursive ` + queueing("") + `
select x.tx_id, x.submitter, x.state, x.created_at
  from (select m.tx_id, m.submitter, m.state, m.created_at from managed_tx m where m.open
        union all
        select f.tx_id, f.submitter, f.state, f.created_at
          from waiting w
         cross join (values (false), (true)) as h (held)
         cross join lateral (
               select * from managed_tx q where q.submitter = w.submitter and q.queued and q.held = h.held order by q.seq limit 1) as f) as x
 order by x.created_at, x.tx_id
 limit 1`
)

// Overview reads the state of the deployment, in one round trip.
func (s *Store) Overview(ctx context.Context, l AttentionLimits) (o Overview, err error) {
	var minutes []minute
	b := new(pgx.Batch)
	b.Queue(`select clock_timestamp()`).QueryRow(results.Scan(&o.At))
	b.Queue(stateCounts).Query(results.Into(&o.States, pgx.RowToStructByPos[StateCount]))
	b.Queue(oldestTx).Query(results.First(&o.Oldest, pgx.RowToStructByPos[OldestTx]))
	b.Queue(lastMinutes).Query(results.Into(&minutes, pgx.RowToStructByPos[minute]))
	b.Queue(attentionCounts, s.attentionArgs(l)).Query(results.Into(&o.Attention, pgx.RowToStructByPos[AttentionCount]))
	if err := s.send(ctx, b); err != nil {
		return o, results.Wrap(err, "read the overview")
	}
	if o.Rates = ratesOf(minutes); len(minutes) > 0 {
		o.RatesUpTo = new(minutes[0].Minute.Add(time.Minute))
	}
	return o, nil
}

package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// LaneNonce is one nonce of a submitter.
type LaneNonce struct {
	Nonce     int64                `json:"nonce"`
	Kind      string               `json:"kind"` // OURS, LOST (a foreign transaction consumed it), or GAP (nothing is on record)
	TxID      *string              `json:"txId,omitempty"`
	RequestID *string              `json:"requestId,omitempty"`
	State     *txmanager.State     `json:"state,omitempty"`
	SubState  *string              `json:"subState,omitempty"`
	TxHash    *string              `json:"txHash,omitempty"`
	Cause     *txmanager.WaitCause `json:"cause,omitempty"`       // of an open transaction
	Since     *time.Time           `json:"since,omitempty"`       // of a stored cause
	ForeignTx *string              `json:"foreignHash,omitempty"` // the foreign transaction that consumed it
}

// Lane is a range of a submitter's nonces.
type Lane struct {
	StartNonce int64       `json:"startNonce"`
	NextNonce  int64       `json:"nextNonce"`  // the next that is allocated
	LowestOpen *int64      `json:"lowestOpen"` // the lowest nonce of an open transaction; nil: none is open
	Nonces     []LaneNonce `json:"nonces"`

	Beyond int64 `json:"-"` // above every nonce on record
}

var (
	// The bounds of the lane of $1, and the first nonce of a page of $3 that is asked for from $2 on. Without
	// $2 the page has the open nonces, or the newest if they are fewer.
	laneBounds = `
select s.start_nonce, c.next_nonce, o.nonce, b.beyond,
       greatest(s.start_nonce, least(coalesce($2, least(o.nonce, b.beyond - $3)), b.beyond)) as first
  from submitter s
  join submitter_nonce_cursor c using (submitter)
  left join lateral (select u.nonce from managed_tx u where u.submitter = s.submitter and u.open order by u.nonce limit 1) as o on true
 cross join lateral (
       select greatest(c.next_nonce, (select f.nonce + 1 from foreign_transaction f where f.submitter = s.submitter order by f.nonce desc limit 1)) as beyond
       offset 0) as b
 where s.submitter = $1`

	laneNonces = `
select n.nonce, case when f.tx_hash is not null or m.sub_state = 'DISPLACED' then 'LOST' when m.tx_id is not null then 'OURS' else 'GAP' end,
       m.tx_id, m.request_id, m.state, ` + shownSubState + `, m.tx_hash, case when m.open then ` + openCause("m") + ` end,
       case when m.open then m.waiting_since end, f.tx_hash
  from (` + laneBounds + `) as b
 cross join lateral generate_series(b.first, least(b.first + $3::bigint, b.beyond) - 1) as n (nonce)
  left join lateral (select * from managed_tx m where m.submitter = $1 and m.nonce = n.nonce limit 1) as m on true
  left join lateral (select f.tx_hash from foreign_transaction f where f.submitter = $1 and f.nonce = n.nonce limit 1) as f on true
 order by n.nonce`
)

// Lane returns up to size nonces of the submitter, the lowest first, from the nonce from on. If that is
// nil, the page begins at the lowest open nonce, or before it if the page has room for the newest
// nonces. The error wraps [ErrUnknownSubmitter].
func (s *Store) Lane(ctx context.Context, sub txmanager.Submitter, from *int64, size int) (lane Lane, err error) {
	b := new(pgx.Batch)
	var first int64
	b.Queue(laneBounds, sub, from, size).QueryRow(results.Scan(&lane.StartNonce, &lane.NextNonce, &lane.LowestOpen, &lane.Beyond, &first))
	b.Queue(laneNonces, sub, from, size).Query(results.Into(&lane.Nonces, pgx.RowToStructByPos[LaneNonce]))
	err = s.send(ctx, b)
	if errors.Is(err, pgx.ErrNoRows) {
		return lane, fmt.Errorf("%s: %w", sub, ErrUnknownSubmitter)
	}
	return lane, results.Wrap(err, "read the nonces of %s", sub)
}

// QueuedTx is an intent that waits for its nonce.
type QueuedTx struct {
	Seq       int64               `json:"-"` // its place in the queue's order
	Ahead     int                 `json:"-"` // intents before it, up to MaxPosition
	TxID      string              `json:"txId"`
	RequestID string              `json:"requestId"`
	Caller    string              `json:"caller"`
	State     txmanager.State     `json:"state"`
	Cause     txmanager.WaitCause `json:"cause"`
	Since     time.Time           `json:"since"`
}

// queuePage lists the queue of $1 after the seq $3, in the order in which it is served, up to $4
// intents. $2 is as in [allocationBlock]. Causes are as in [explainWait].
var queuePage = `
select q.seq, least((select count(*) from (select from managed_tx a where a.submitter = $1 and a.queued and not a.held and a.seq <= $3
                      order by a.seq limit ` + strconv.Itoa(MaxPosition) + `) as a) + row_number() over (order by q.seq) - 1, ` + strconv.Itoa(MaxPosition) + `)::integer,
       q.tx_id, q.request_id, q.caller, q.state, d.cause,
       coalesce(case when d.cause = q.wait_cause then q.waiting_since
            when d.cause = k.cause then greatest(q.created_at, k.since)
            when d.cause = 'EARLIER_INTENT' then q.created_at end, q.updated_at)
  from submitter s
  join ` + allocationBlock("$2::boolean") + ` as k on true
  left join lateral (` + firstInQueue("$1", isTurn) + `) as h on true
 cross join lateral (
       select * from managed_tx q where q.submitter = s.submitter and q.queued and not q.held and q.seq > $3
        order by q.seq limit $4) as q
 cross join lateral (
       select case when k.cause in ('PROTECT', 'SUSPENDED') then k.cause
                   when q.tx_id = h.tx_id then coalesce(k.cause, nullif(q.wait_cause, 'DEFERRED'), 'NEXT')
                   else coalesce(case when not ` + isPastDeferral("q") + ` then q.wait_cause end, 'EARLIER_INTENT') end as cause
       offset 0) as d
 where s.submitter = $1
 order by q.seq`

// Queue lists up to limit intents of the submitter's queue after the place after (0: all), in the order
// in which they are served. Held intents are not in it. The error wraps [ErrUnknownSubmitter].
func (s *Store) Queue(ctx context.Context, sub txmanager.Submitter, after int64, limit int) ([]QueuedTx, error) {
	return rowsOfSubmitter[QueuedTx](ctx, s, "read the queue", sub, queuePage, s.opts.Strict, after, limit)
}

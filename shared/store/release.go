package store

import (
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/nonce"
)

// fillDisplaced gives each nonce that the chain has from the cursor on, up to
// the count accepted, a row of its own, and moves the cursor there. The row of a
// nonce whose request is named takes that request's place, so that it cannot run a
// second time: it is the request's own row where it waits in the queue.
const fillDisplaced = `
with lost as (
  select n as nonce, nullif(n, s.start_nonce) - 1 as prev_nonce, r.name,
         'the chain has this nonce, and nothing here does; ' || coalesce('it was request ' || r.name, 'its request is not known') as why,
         row_number() over (partition by r.name order by n) = 1 as first
    from submitter s
    join submitter_nonce_cursor c using (submitter), generate_series(c.next_nonce, $3::bigint - 1) as n,
         lateral (select $5::jsonb ->> n::text) as r (name)
   where s.submitter = $1
), queued as (
  update managed_tx m
     set state = 'FAILED', sub_state = 'DISPLACED', nonce = l.nonce, prev_nonce = l.prev_nonce, last_error = l.why,
         event_sequence = m.event_sequence + 1, fencing_token = $2, next_check_at = null, updated_at = clock_timestamp()
    from lost l
   where m.request_id = l.name and m.submitter = $1 and m.state = 'QUEUED' and l.first
  returning m.nonce
), filled as (
  insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, nonce, prev_nonce,
                          state, sub_state, last_error, fencing_token)
  select gen_random_uuid(), $1,
         case when l.first and l.name is not null and not exists (select from managed_tx m where m.request_id = l.name and m.submitter = $1)
              then l.name else 'displaced:' || l.nonce || ':' || gen_random_uuid() end,
         $4, sha256('displaced'), l.nonce, l.prev_nonce, 'FAILED', 'DISPLACED', l.why, $2
    from lost l
   where not exists (select from queued q where q.nonce = l.nonce)
   order by l.nonce
)
update submitter_nonce_cursor
   set next_nonce = next_nonce + (select count(*) from lost)
 where submitter = $1`

// queueLeave adds the end of an episode to a fenced batch.
func queueLeave(b *pgx.Batch, l lease.Lease, leave nonce.Leave) {
	released, _ := json.Marshal(map[string]any{ // plain: cannot fail
		"count": leave.Count, "requests": leave.Requests, "takers": leave.Takers, "notOnChain": leave.Fallen,
	})
	requests, _ := json.Marshal(leave.Requests)
	b.Queue(`select close_episode($1, $2, $3, $4, $5, $6)`, l.Submitter, leave.Episode, leave.Mode, leave.By, leave.Reason, released)
	if leave.Mode == nonce.Resync {
		b.Queue(fillDisplaced, l.Submitter, l.Token, bigint(leave.Count), leave.By, requests)
		queueHolds(b, l, leave)
	}
}

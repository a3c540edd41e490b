package store

import (
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/nonce"
)

// fillDisplaced gives each nonce that the chain has from the cursor on, up to
// the count accepted, a row of its own, and moves the cursor there.
const fillDisplaced = `
with lost as (
  select n as nonce, s.start_nonce
    from submitter s
    join submitter_nonce_cursor c using (submitter), generate_series(c.next_nonce, $3::bigint - 1) as n
   where s.submitter = $1
), filled as (
  insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, nonce, prev_nonce,
                          state, sub_state, last_error, fencing_token)
  select gen_random_uuid(), $1, 'displaced:' || nonce || ':' || gen_random_uuid(), $4, sha256('displaced'),
         nonce, nullif(nonce, start_nonce) - 1, 'FAILED', 'DISPLACED',
         'the chain has this nonce, and nothing here does; ' || coalesce('it was request ' || ($5::jsonb ->> nonce::text), 'its request is not known'),
         $2
    from lost
   order by nonce
  returning nonce
)
update submitter_nonce_cursor
   set next_nonce = next_nonce + (select count(*) from filled)
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
	}
}

package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// lastChange is the number of the last change of the database's identity; 0 if there was none. A release
// stores it, to detect a later restore.
const lastChange = `(select coalesce(max(c.id), 0) from identity_change c)`

// insertFills binds each nonce from the cursor up to, not including, $3 to a placeholder-only
// row. The operator who releases requests its signature.
const insertFills = `
with filled as (
  insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, nonce, prev_nonce,
                          state, requested_action, fills, last_error, next_check_at, fencing_token)
  select gen_random_uuid(), s.submitter, 'placeholder:' || n || ':' || gen_random_uuid(), $4, sha256('placeholder'), n, nullif(n, s.start_nonce) - 1,
         'IN_FLIGHT', 'PLACEHOLDER', true, 'a release fills this nonce: what a lost database has signed for it can then not be mined', clock_timestamp(), $2
    from submitter s
    join submitter_nonce_cursor c using (submitter), generate_series(c.next_nonce, $3::bigint - 1) as n
   where s.submitter = $1
   order by n
  returning tx_id
), documented as (
  insert into tx_document (tx_id, name, body)
  select tx_id, 'payload', '{"placeholder": true}'::json from filled -- of which no transaction can be made
), decided as (
  insert into tx_decision (tx_id, action, by, reason)
  select tx_id, 'PLACEHOLDER', $4, $5 from filled
)
update submitter_nonce_cursor
   set next_nonce = next_nonce + (select count(*) from filled)
 where submitter = $1`

// lostBytes depends on no clock: changes of the database's identity are numbered.
const lostBytes = `
select s.callers = array[$2::text],
       ` + lastChange + ` > coalesce((select max((e.released ->> 'change')::bigint) from protect_incident e
                                where e.submitter = s.submitter and e.released ? 'filling'), 0),
       s.max_in_flight, ` + lastChange + `,
       coalesce((select max(n.nonces_below) from payout_statement n join transfers_tb t using (req_id)
                  where t.open and t.payout_submitter = s.submitter and not n.paid and n.acted_at is null and n.withdrawn_at is null), 0)
  from submitter s
 where s.submitter = $1`

// LostNonces implements [txmanager.Store].
func (s *Store) LostNonces(ctx context.Context, sub txmanager.Submitter) (l txmanager.LostNonces, err error) {
	err = s.db.QueryRow(ctx, lostBytes, sub, PayoutCaller).Scan(&l.Payer, &l.Restored, &l.Window, &l.Change, &l.StatedBelow)
	if err != nil {
		return l, fmt.Errorf("read what %s may have lost: %w", sub, err)
	}
	return l, nil
}

const filledCount = `
select (e.released ->> 'count')::bigint
  from protect_incident e
 where e.submitter = $1 and e.released ? 'filling' and (e.released ->> 'change')::bigint = ` + lastChange + `
 order by e.incident
 limit 1`

// FilledCount is the final count accepted by the first release that filled nonces since the
// last change of the authority. A lost transaction cannot have a nonce beyond that count and
// the window of that time. ok is false if no release has filled any.
func (s *Store) FilledCount(ctx context.Context, sub txmanager.Submitter) (count uint64, ok bool, err error) {
	err = s.db.QueryRow(ctx, filledCount, sub).Scan(&count)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("read what releases of %s have filled: %w", sub, err)
	}
	return count, true, nil
}

package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// ErrNotMatching reports an intent that is not held for the foreign transaction, or whose call
// differs. Nothing was changed.
var ErrNotMatching = errors.New("the intent is not held for that foreign transaction, or its call is another")

// matchHold ends the hold of nonce $4 and its intent $5, as the foreign transaction ended:
// CONFIRMED/RECORDED or FAILED/REVERTED. An intent with an unknown call may be matched in
// place of the one that is held for the nonce. That one is then held for another free foreign
// transaction with its call; if there is none it proceeds. If the transaction already proves
// another request's payout, $5 is left as it is.
const matchHold = `
with chosen as (
  select h.tx_id as held, h.call_digest,
         exists (select from payout_proof p
                  where p.chain_id = split_part(h.submitter, ':', 2)::bigint and p.tx_hash = f.tx_hash
                    and p.req_id is distinct from (select m.request_id from managed_tx m where m.tx_id = $5)) as proves, f.succeeded, f.tx_hash, f.receipt, f.block_hash,
         jsonb_build_object('txHash', f.tx_hash, 'blockNumber', f.block_number, 'blockHash', f.block_hash, 'succeeded', f.succeeded) as facts,
         jsonb_build_array(jsonb_build_object('number', f.block_number, 'hash', f.block_hash)) as confirmations
    from foreign_hold h
    join foreign_transaction f using (submitter, nonce)
   where h.submitter = $3 and h.nonce = $4 and h.ended_at is null and is_accepted_database()
), ended as (
  update managed_tx m
     set state = case when c.succeeded then 'CONFIRMED' else 'FAILED' end, sub_state = case when c.succeeded then 'RECORDED' else 'REVERTED' end,
         recorded_nonce = $4, tx_hash = c.tx_hash, receipt = c.facts, confirmations = c.confirmations, confirmed_at = clock_timestamp(),
         last_error = 'an operator matched this request with a foreign transaction' || case when c.succeeded then '' else ', and it reverted' end,
         event_sequence = m.event_sequence + case when c.succeeded then 2 else 3 end,
         held = false, held_for = null, next_check_at = null, deferred_until_nonce = null, updated_at = clock_timestamp()
    from chosen c
   where m.tx_id = $5 and m.submitter is not distinct from $3 and m.state = 'QUEUED' and m.held and not c.proves
     and (m.tx_id = c.held or m.held_for = 'HANDLER')
  returning m.tx_id
), documented as (
  insert into tx_document (tx_id, name, body)
  select e.tx_id, 'receipt:' || c.block_hash, c.receipt from ended e, chosen c
      on conflict do nothing
), matched as (
  update foreign_hold h
     set tx_id = e.tx_id, ended_at = clock_timestamp(), outcome = 'MATCHED', by = $1, reason = $2
    from ended e
   where h.submitter = $3 and h.nonce = $4
  returning h.tx_id
), kept as (
  update foreign_hold h
     set tx_id = c.held
    from chosen c, matched
   where c.held <> matched.tx_id and h.submitter = $3
     and h.nonce = (select min(o.nonce) from foreign_hold o
                     where o.submitter = $3 and o.nonce <> $4 and o.ended_at is null and o.tx_id is null and o.call_digest = c.call_digest)
     and exists (select from managed_tx m where m.tx_id = c.held and m.state = 'QUEUED' and m.held)
  returning h.tx_id
), spared as (
  update managed_tx m
     set ` + endOfHold + `
    from chosen c, ended e
   where m.tx_id = c.held and m.tx_id <> e.tx_id and m.state = 'QUEUED' and m.held and not exists (select from kept)
  returning m.tx_id, m.held
), recorded as (
  insert into tx_decision (tx_id, action, by, reason)
  select tx_id, 'PROCEED', $1, $2 from spared where not held
)
select exists (select from chosen), exists (select from ended), exists (select from chosen where proves)`

// MatchHold records that the foreign transaction which consumed the nonce was the request
// of the held intent. The error wraps [ErrNotFound], [ErrForeign], [ErrNoHold],
// [ErrNotMatching], or [ErrProofUsed] where the transaction proves another payout.
func (s *Store) MatchHold(ctx context.Context, d HoldDecision, txID string) (p Proceeded, err error) {
	if err := s.recordMatch(ctx, d, txID); err != nil {
		return p, err
	}
	var ours, open, ended, proves bool
	var names string
	b := new(pgx.Batch)
	b.Queue("begin")
	b.Queue(lockHolds, []string{string(d.Submitter)})
	queueCarryOut(ctx, b)
	b.Queue(matchHold, d.By, PrintableText(d.Reason), d.Submitter, optional(d.Nonce), txID).QueryRow(func(row pgx.Row) error {
		return row.Scan(&open, &ended, &proves)
	})
	b.Queue(proceedUnknown, d.By, PrintableText(d.Reason), d.Submitter)
	b.Queue("commit")
	b.Queue(findProceeded, txID).QueryRow(func(row pgx.Row) error {
		var ignored bool
		return row.Scan(&p.Submitter, &p.State, &p.SubState, &p.Token, &ours, &ignored, &ignored, &ignored, &ignored, &p.Trace, &names)
	})
	if err = s.send(ctx, b); err == nil {
		s.names.note(d.Submitter, names)
	}
	switch {
	case err != nil:
		return p, fmt.Errorf("match %s with nonce %d of %s: %w", txID, *d.Nonce, d.Submitter, err)
	case !ours:
		return p, fmt.Errorf("match %s: %w", txID, ErrForeign)
	case !open:
		return p, fmt.Errorf("nonce %d of %s: %w", *d.Nonce, d.Submitter, ErrNoHold)
	case proves:
		return p, fmt.Errorf("match %s with nonce %d of %s: %w", txID, *d.Nonce, d.Submitter, ErrProofUsed)
	case !ended:
		return p, fmt.Errorf("match %s with nonce %d of %s: %w", txID, *d.Nonce, d.Submitter, ErrNotMatching)
	}
	p.Recorded = true
	return p, nil
}

const findMatch = `
select m.submitter, coalesce(m.handler, ''), coalesce(d.body::text, ''), h.call_digest
  from managed_tx m
  left join tx_document d on d.tx_id = m.tx_id and d.name = 'payload'
  left join foreign_hold h on h.submitter = $2 and h.nonce = $3 and h.ended_at is null
 where m.tx_id = $1`

// recordMatch compares the intent's call, if it is known, with the foreign transaction's.
// Neither ever changes.
func (s *Store) recordMatch(ctx context.Context, d HoldDecision, txID string) error {
	var in Intent
	var sub txmanager.Submitter
	var payload string
	var digest []byte
	err := s.db.QueryRow(ctx, findMatch, txID, d.Submitter, optional(d.Nonce)).Scan(&sub, &in.Handler, &payload, &digest)
	switch {
	case errors.Is(err, pgx.ErrNoRows) || err == nil && sub != d.Submitter:
		return ErrNotFound
	case err != nil:
		return fmt.Errorf("read %s: %w", txID, err)
	case digest == nil:
		return fmt.Errorf("nonce %d of %s: %w", *d.Nonce, d.Submitter, ErrNoHold)
	}
	in.Payload = []byte(payload)
	if call := callDigest(in); call != nil && !bytes.Equal(call, digest) {
		return fmt.Errorf("match %s with nonce %d of %s: %w", txID, *d.Nonce, d.Submitter, ErrNotMatching)
	}
	return nil
}

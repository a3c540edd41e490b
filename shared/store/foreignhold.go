package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// holdCause is why an intent i of submitter s must be held beside a foreign transaction; null if
// it must not. An intent whose call is unknown may be any of them. A payout is exempt once an
// operator's statement that it was not paid has taken effect. It is evaluated once a row.
const holdCause = `lateral (
       select case when not exists (select from foreign_hold h where h.submitter = s.submitter and h.ended_at is null) then null
                   when i.digest is null then 'HANDLER'
                   when exists (select from foreign_hold h
                                 where h.submitter = s.submitter and h.ended_at is null and h.tx_id is null and h.call_digest = i.digest)
                        and not (i.caller = '` + PayoutCaller + `' and exists (select from payout_statement n
                                 where n.req_id = i.request_id and n.acted_at is not null and not n.of_confirmed and ` + ofThisChange + `)) then 'CALL'
              end as held_for
       offset 0) as f`

// heldColumns are the values of held, held_for and last_error. The text has no nonce, because
// callers read it.
const heldColumns = `f.held_for is not null, f.held_for,
       case f.held_for
         when 'CALL' then 'held: the chain has a transaction of the submitter that does the same, and which request it was is not known; an operator decides whether it was this one'
         when 'HANDLER' then 'held: the chain has a transaction of the submitter of which the request is not known; what this request calls is not known either, so it waits until an operator has decided'
       end`

// lockHolds makes creates wait for decisions about foreign transactions of the submitters
// ($1), and the reverse, in one order. It comes before the statements that read them, because
// a snapshot is taken when its statement starts.
const lockHolds = `
select from foreign_hold where submitter = any($1::text[]) and ended_at is null order by submitter, nonce for update`

// claimHolds assigns a separate foreign transaction to each intent that is held for its call
// ($1, with their digests). An intent for which none is left proceeds.
const claimHolds = `
with fresh as (
  select m.tx_id, m.submitter, i.digest, row_number() over (partition by m.submitter, i.digest order by m.seq) as number
    from unnest($1::uuid[], $2::bytea[]) as i (tx_id, digest)
    join managed_tx m on m.tx_id = i.tx_id
   where m.held_for = 'CALL'
), free as (
  select h.submitter, h.nonce, h.call_digest, row_number() over (partition by h.submitter, h.call_digest order by h.nonce) as number
    from foreign_hold h
   where h.submitter in (select submitter from fresh) and h.ended_at is null and h.tx_id is null
), claimed as (
  update foreign_hold h
     set tx_id = i.tx_id
    from free
    join fresh i on i.submitter = free.submitter and i.digest = free.call_digest and i.number = free.number
   where h.submitter = free.submitter and h.nonce = free.nonce
  returning h.tx_id
)
update managed_tx m
   set held = false, held_for = null, last_error = null, updated_at = clock_timestamp()
  from fresh i
 where m.tx_id = i.tx_id and not exists (select from claimed c where c.tx_id = m.tx_id)`

// callDigest is the [txmanager.Call.Digest] of the intent's call; nil if its
// handler makes the call.
func callDigest(in Intent) []byte {
	_, call, err := readPayload(in)
	if in.Handler != "" || err != nil {
		return nil
	}
	digest := call.Digest()
	return digest[:]
}

// insertHolds opens a hold for each foreign transaction that the release accepts and for which
// no release has named a request.
const insertHolds = `
insert into foreign_hold (submitter, nonce, call_digest)
select f.submitter, f.nonce, f.call_digest
  from foreign_transaction f
 where f.submitter = $1 and f.nonce < $2 and coalesce($3::jsonb ->> f.nonce::text, 'none') = 'none'
   and not exists (select from protect_incident e
                    where e.submitter = f.submitter and e.incident >= f.incident and e.mode = 'resync'
                      and coalesce(e.released -> 'requests' ->> f.nonce::text, 'none') <> 'none')
 order by f.nonce
    on conflict do nothing`

// OpenHold is a nonce consumed by a foreign transaction whose request is unknown.
type OpenHold struct {
	Nonce       int64     `json:"nonce"`
	TxHash      string    `json:"txHash"`
	BlockNumber int64     `json:"blockNumber"`
	To          *string   `json:"to"` // null: it made a contract
	ValueWei    string    `json:"valueWei"`
	Succeeded   bool      `json:"succeeded"`
	TxID        *string   `json:"txId"` // the intent that is held for it; null: none
	RequestID   *string   `json:"requestId"`
	Since       time.Time `json:"since"`
}

const openHolds = `
select h.nonce, f.tx_hash, f.block_number, f.to_address, f.value_wei::text, f.succeeded, h.tx_id::text, m.request_id, h.created_at
  from foreign_hold h
  join foreign_transaction f using (submitter, nonce)
  left join managed_tx m on m.tx_id = h.tx_id
 where h.submitter = $1 and h.ended_at is null and h.nonce > $2
 order by h.nonce
 limit $3`

// OpenHolds lists up to limit of the submitter's foreign transactions whose request is
// unknown, with nonces above the one given, by nonce.
func (s *Store) OpenHolds(ctx context.Context, sub txmanager.Submitter, above int64, limit int) ([]OpenHold, error) {
	all, err := results.All(ctx, s.db, pgx.RowToStructByPos[OpenHold], openHolds, sub, above, limit)
	return all, results.Wrap(err, "list the foreign transactions of %s", sub)
}

// HoldDecision is an operator's decision about foreign transactions whose request is unknown.
type HoldDecision struct {
	Submitter txmanager.Submitter
	Nonce     *uint64 // nil: all of the submitter, Limit of them a call, the lowest first
	Through   *uint64 // where Nonce is nil: the highest nonce that is meant; nil: all
	Limit     int
	By        string
	Reason    string
}

// WriteOffResult has the counts of one [Store.WriteOff] and of what remains.
type WriteOffResult struct {
	WrittenOff int   // by this call
	Proceeded  int   // intents that were held for them, or for their sake, and go on
	Remaining  int   // foreign transactions whose request is not known; call again
	Token      int64 // in force after the commit
}

// ErrNoHold reports a nonce with no foreign transaction that waits for a decision.
var ErrNoHold = errors.New("no foreign transaction with that nonce waits for a decision")

// isFromCopy is true of a held m that existed when the database was last accepted. What the lost
// database did with it is unknown. It stays held with the rest of the restored queue, even if
// it was also held for another cause: see [Store.Proceed]. A payout proceeds if an operator's
// statement that it was not paid and is to be paid has taken effect.
const isFromCopy = `(exists (select from identity_change c where coalesce(c.intents_upto >= m.seq, c.at >= m.created_at))
       and not (m.caller = '` + PayoutCaller + `' and exists (select from payout_statement n
                 where n.req_id = m.request_id and n.acted_at is not null and not n.refund and not n.of_confirmed and ` + ofThisChange + `)))`

// endOfHold are the values of an intent m whose foreign transaction is decided. It proceeds,
// unless isFromCopy is true.
const endOfHold = `(held, held_for, last_error, updated_at) = (
       select o.copied, null, case when o.copied then '` + heldByRestore + `' end, clock_timestamp() from (select ` + isFromCopy + ` as copied offset 0) as o)`

// writeOff ends holds whose foreign transactions were no requests of this deployment. An
// intent that was held for one may be another foreign transaction with the same call: it is
// then held for a free one of those. The other intents proceed.
const writeOff = `
with chosen as (
  select h.nonce
    from foreign_hold h
   where h.submitter = $3 and h.ended_at is null and ($4::bigint is null or h.nonce = $4) and ($6::bigint is null or h.nonce <= $6) and is_accepted_database()
   order by h.nonce
   limit $5
), ended as (
  update foreign_hold h
     set ended_at = clock_timestamp(), outcome = 'WRITTEN_OFF', by = $1, reason = $2
    from chosen
   where h.submitter = $3 and h.nonce = chosen.nonce
  returning h.tx_id, h.call_digest
), loose as (
  select m.tx_id, e.call_digest, row_number() over (partition by e.call_digest order by m.seq) as number
    from ended e
    join managed_tx m on m.tx_id = e.tx_id
   where m.state = 'QUEUED' and m.held
), free as (
  select h.nonce, h.call_digest, row_number() over (partition by h.call_digest order by h.nonce) as number
    from foreign_hold h
   where h.submitter = $3 and h.ended_at is null and h.tx_id is null and h.nonce not in (select nonce from chosen)
), kept as (
  update foreign_hold h
     set tx_id = l.tx_id
    from free
    join loose l using (call_digest, number)
   where h.submitter = $3 and h.nonce = free.nonce
  returning h.tx_id
), gone as (
  update managed_tx m
     set ` + endOfHold + `
    from loose
   where m.tx_id = loose.tx_id and m.state = 'QUEUED' and m.held and not exists (select from kept k where k.tx_id = m.tx_id)
  returning m.tx_id, m.held
), recorded as (
  insert into tx_decision (tx_id, action, by, reason, operator)
  select tx_id, 'PROCEED', $1, $2, true from gone where not held
)
select (select count(*) from ended), (select count(*) from gone where not held)`

// proceedUnknown lets intents with an unknown call proceed once no open foreign transaction of
// the submitter is left that they may be.
const proceedUnknown = `
with gone as (
  update managed_tx m
     set ` + endOfHold + `
   where m.submitter = $3 and m.queued and m.held and m.held_for = 'HANDLER'
     and not exists (select from foreign_hold h where h.submitter = $3 and h.ended_at is null)
  returning m.tx_id, m.held
)
insert into tx_decision (tx_id, action, by, reason, operator)
select tx_id, 'PROCEED', $1, $2, true from gone where not held`

const findHolds = `
select coalesce(l.fencing_token, 0), is_accepted_database(),
       (select count(*) from foreign_hold h where h.submitter = s.submitter and h.ended_at is null), coalesce(l.name_epoch, '')
  from submitter s
  left join submitter_lease l using (submitter)
 where s.submitter = $1`

// WriteOff records that foreign transactions were no requests of this deployment, and lets the
// intents held for them proceed. The error wraps [ErrUnknownSubmitter], [ErrForeign] or, for a
// single nonce, [ErrNoHold].
func (s *Store) WriteOff(ctx context.Context, d HoldDecision) (out WriteOffResult, err error) {
	var ours bool
	b := new(pgx.Batch)
	b.Queue("begin")
	b.Queue(lockHolds, []string{string(d.Submitter)})
	queueCarryOut(ctx, b)
	b.Queue(writeOff, d.By, PrintableText(d.Reason), d.Submitter, bigintOrNull(d.Nonce), d.Limit, bigintOrNull(d.Through)).QueryRow(results.Scan(&out.WrittenOff, &out.Proceeded))
	b.Queue(proceedUnknown, d.By, PrintableText(d.Reason), d.Submitter).Exec(func(tag pgconn.CommandTag) error {
		out.Proceeded += int(tag.RowsAffected())
		return nil
	})
	b.Queue("commit")
	b.Queue(findHolds, d.Submitter).QueryRow(results.Scan(&out.Token, &ours, &out.Remaining, s.nameEpochOf(&d.Submitter)))
	switch err = s.send(ctx, b); {
	case errors.Is(err, pgx.ErrNoRows):
		return out, fmt.Errorf("%s: %w", d.Submitter, ErrUnknownSubmitter)
	case err == nil && !ours:
		err = ErrForeign
	case err == nil && d.Nonce != nil && out.WrittenOff == 0:
		return out, fmt.Errorf("nonce %d of %s: %w", *d.Nonce, d.Submitter, ErrNoHold)
	}
	return out, results.Wrap(err, "write off foreign transactions of %s", d.Submitter)
}

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
  insert into tx_decision (tx_id, action, by, reason, operator)
  select tx_id, 'PROCEED', $1, $2, true from spared where not held
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
	b := new(pgx.Batch)
	b.Queue("begin")
	b.Queue(lockHolds, []string{string(d.Submitter)})
	queueCarryOut(ctx, b)
	b.Queue(matchHold, d.By, PrintableText(d.Reason), d.Submitter, bigintOrNull(d.Nonce), txID).QueryRow(results.Scan(&open, &ended, &proves))
	b.Queue(proceedUnknown, d.By, PrintableText(d.Reason), d.Submitter)
	b.Queue("commit")
	b.Queue(findProceeded, txID).QueryRow(results.Scan(&p.Submitter, &p.State, &p.SubState, &p.Token, &ours, nil, nil, nil, nil, &p.Trace, s.nameEpochOf(&p.Submitter)))
	switch err = s.send(ctx, b); {
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
	var digest []byte
	err := s.db.QueryRow(ctx, findMatch, txID, d.Submitter, bigintOrNull(d.Nonce)).Scan(&sub, &in.Handler, &in.Payload, &digest)
	switch {
	case errors.Is(err, pgx.ErrNoRows) || err == nil && sub != d.Submitter:
		return ErrNotFound
	case err != nil:
		return fmt.Errorf("read %s: %w", txID, err)
	case digest == nil:
		return fmt.Errorf("nonce %d of %s: %w", *d.Nonce, d.Submitter, ErrNoHold)
	}
	if call := callDigest(in); call != nil && !bytes.Equal(call, digest) {
		return fmt.Errorf("match %s with nonce %d of %s: %w", txID, *d.Nonce, d.Submitter, ErrNotMatching)
	}
	return nil
}

package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// newTxID is a new UUIDv7 of the present time, so that lists by time show the row in its place.
const newTxID = `overlay(tx_id_at(clock_timestamp())::text placing '7' || right(gen_random_uuid()::text, 21) from 15)::uuid`

// insertNamed records the requests that a release names and that were lost with the database.
// They have no caller: every caller that may post for the submitter sees them.
const insertNamed = `
insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, fencing_token)
select ` + newTxID + `, $1, r.name, '', sha256('recorded'), $2
  from unnest($3::text[]) as r (name)
    on conflict (submitter, request_id) do nothing`

// fillDisplaced ends the queued requests that the release names, as their foreign transactions
// ended. A request whose nonce the cursor has not passed gets that nonce. Each other nonce
// that the chain has consumed, from the cursor up to the accepted count, gets a separate row.
// The cursor moves to that count.
const fillDisplaced = `
with named as (
  select nonce, "requestId" as request from jsonb_to_recordset($5::jsonb) as r (nonce bigint, "requestId" text)
), gap as (
  select n as nonce, nullif(n, s.start_nonce) - 1 as prev_nonce
    from submitter s
    join submitter_nonce_cursor c using (submitter), generate_series(c.next_nonce, $3::bigint - 1) as n
   where s.submitter = $1
), ended as (
  update managed_tx m
     set state = case when f.succeeded is false then 'FAILED' else 'CONFIRMED' end,
         sub_state = case when f.succeeded is false then 'REVERTED' else 'RECORDED' end,
         nonce = g.nonce, prev_nonce = g.prev_nonce, recorded_nonce = r.nonce, tx_hash = f.tx_hash,
         receipt = f.receipt, confirmations = f.confirmations, confirmed_at = case when f.receipt is not null then clock_timestamp() end,
         last_error = case when f.receipt is null then '` + txmanager.StatedAsExecuted + `'
                           else 'a release recorded that a foreign transaction was this request' || case when f.succeeded is false then ', and it reverted' else '' end end,
         event_sequence = m.event_sequence + case when f.receipt is null then 1 when f.succeeded then 2 else 3 end,
         fencing_token = $2, next_check_at = null, deferred_until_nonce = null, ` + waitOver + `updated_at = clock_timestamp()
    from named r
    left join gap g on g.nonce = r.nonce
    left join (
      select nonce, succeeded, tx_hash,
             jsonb_build_object('txHash', tx_hash, 'blockNumber', block_number, 'blockHash', block_hash, 'succeeded', succeeded) as receipt,
             jsonb_build_array(jsonb_build_object('number', block_number, 'hash', block_hash)) as confirmations
        from foreign_transaction
       where submitter = $1) as f on f.nonce = r.nonce
   where m.request_id = r.request and m.submitter = $1 and m.state = 'QUEUED'
  returning m.tx_id, m.nonce, m.recorded_nonce
), freed as (
  update foreign_hold h -- which the named request was not
     set tx_id = null
    from ended e
   where h.tx_id = e.tx_id and h.ended_at is null
), documented as (
  insert into tx_document (tx_id, name, body)
  select e.tx_id, 'receipt:' || f.block_hash, f.receipt
    from ended e
    join foreign_transaction f on f.submitter = $1 and f.nonce = e.recorded_nonce
      on conflict do nothing
), filled as (
  insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, nonce, prev_nonce,
                          state, sub_state, last_error, fencing_token)
  select ` + newTxID + `, $1, 'displaced:' || g.nonce || ':' || gen_random_uuid(),
         $4, sha256('displaced'), g.nonce, g.prev_nonce, 'FAILED', 'DISPLACED',
         'the chain has this nonce, and nothing here does; its request is not known', $2
    from gap g
   where not exists (select from ended e where e.nonce = g.nonce)
   order by g.nonce
)
update submitter_nonce_cursor
   set next_nonce = next_nonce + (select count(*) from gap)
 where submitter = $1`

// checkNamedRequests refuses the whole release, by a division by zero, if a request that it names has
// left the queue meanwhile, or was matched with another nonce.
const checkNamedRequests = `
select 1 / (case when count(*) = jsonb_array_length($2::jsonb) then 1 else 0 end)
  from jsonb_to_recordset($2::jsonb) as r (nonce bigint, "requestId" text)
  join managed_tx m on m.submitter = $1 and m.request_id = r."requestId" and m.recorded_nonce = r.nonce and not m.queued`

// holdIdentity keeps the database from being distrusted, and so from being accepted anew,
// before the commit. sameIdentity refuses the whole release, by a division by zero, if the
// database is not the accepted database, or not the one that the release was evaluated in.
//
// Both come after the fence. An acceptance locks the queue and then the authority, but only if
// the database is not the accepted database. A release stops here in that case, so that the two
// cannot deadlock.
const (
	holdIdentity = `select from database_identity for share`
	sameIdentity = `select 1 / (case when is_accepted_database() and ` + lastChange + ` = $1 then 1 else 0 end)`
)

// drawNameEpoch draws a new name epoch, so that used task names do not recur. This process needs
// it for the release's own task, because it does not load again before that task.
const drawNameEpoch = `
update submitter_lease
   set name_epoch = left(gen_random_uuid()::text, 8)
 where submitter = $1
returning name_epoch`

// queueCloseIncident adds the end of a PROTECT incident to a fenced batch.
func (s *Store) queueCloseIncident(b *pgx.Batch, l lease.Lease, leave txmanager.ReleaseRequest) {
	what := map[string]any{"count": leave.Count, "requests": leave.Requests, "takers": leave.ConsumedBy, "notOnChain": leave.ReorgedFinals}
	if leave.Filling != nil {
		what["filling"] = leave.Filling
	}
	if leave.Matching {
		what["others"] = "matching"
	}
	if len(leave.Executed) > 0 {
		what["executed"] = leave.Executed
	}
	b.Queue(`select close_incident($1, $2, $3, $4, $5, $6::jsonb || jsonb_build_object('change', `+lastChange+`))`,
		l.Submitter, leave.Incident, leave.Mode, leave.By, leave.Reason, what)
	if leave.Mode != txmanager.Resync {
		return
	}
	var lost []string
	for _, n := range leave.EndedRequests {
		if n.TxID == "" {
			lost = append(lost, n.RequestID)
		}
	}
	if len(lost) > 0 {
		b.Queue(insertNamed, l.Submitter, l.Token, lost)
	}
	b.Queue(fillDisplaced, l.Submitter, l.Token, Bigint(leave.Count), leave.By, leave.EndedRequests)
	if len(leave.EndedRequests) > 0 {
		b.Queue(checkNamedRequests, l.Submitter, leave.EndedRequests)
	}
	if f := leave.Filling; f != nil {
		b.Queue(insertFills, l.Submitter, l.Token, Bigint(f.Below), leave.By, PrintableText(leave.Reason))
	}
	b.Queue(insertHolds, l.Submitter, Bigint(leave.Count), leave.Requests)
	b.Queue(drawNameEpoch, l.Submitter).QueryRow(results.Scan(s.nameEpochOf(new(txmanager.Submitter(l.Submitter)))))
}

// openRequests are queued intents, and open payouts that are not stored.
const openRequests = `
select m.request_id, m.tx_id::text as tx_id, d.body::text as payload, m.handler is not null or d.body is null as unknown
  from managed_tx m
  left join tx_document d on d.tx_id = m.tx_id and d.name = 'payload'
 where m.submitter = $1 and m.queued
 union all
select t.req_id, '', t.payout_payload::text, false
  from transfers_tb t
 where t.open and t.payout_submitter = $1
   and not exists (select from managed_tx m where m.submitter = t.payout_submitter and m.request_id = t.req_id)`

// OpenRequests implements [txmanager.Store].
func (s *Store) OpenRequests(ctx context.Context, sub txmanager.Submitter) ([]txmanager.OpenRequest, error) {
	all, err := results.All(ctx, s.db, pgx.RowToStructByName[txmanager.OpenRequest], openRequests, sub)
	return all, results.Wrap(err, "read the open requests of %s", sub)
}

// NamedRequests implements [txmanager.Store].
func (s *Store) NamedRequests(ctx context.Context, sub txmanager.Submitter, requestIDs []string) (map[string]txmanager.NamedRequest, error) {
	found := make(map[string]txmanager.NamedRequest)
	var id string
	var r txmanager.NamedRequest
	err := results.ForEach(ctx, s.db, []any{&id, &r.TxID, &r.State, &r.Sub}, func() { found[id] = r }, `
		select request_id, tx_id::text, state, coalesce(sub_state, '')
		  from managed_tx
		 where submitter = $1 and request_id = any($2)`, sub, requestIDs)
	return found, results.Wrap(err, "read named requests of %s", sub)
}

// lastChange is the number of the last change of the database's identity; 0 if there was none. A release
// stores it, to detect a later restore.
const lastChange = `(select coalesce(max(c.id), 0) from identity_change c)`

// insertFills binds each nonce from the cursor up to, not including, $3 to a placeholder-only
// row. The operator who releases requests its signature.
const insertFills = `
with filled as (
  insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, nonce, prev_nonce,
                          state, requested_action, fills, last_error, next_check_at, fencing_token)
  select ` + newTxID + `, s.submitter, 'placeholder:' || n || ':' || gen_random_uuid(), $4, sha256('placeholder'), n, nullif(n, s.start_nonce) - 1,
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
  insert into tx_decision (tx_id, action, by, reason, operator)
  select tx_id, 'PLACEHOLDER', $4, $5, true from filled
)
update submitter_nonce_cursor
   set next_nonce = next_nonce + (select count(*) from filled)
 where submitter = $1`

// widestWindow is the largest window that s has had.
const widestWindow = `greatest(s.max_in_flight, (select max(x.from_max_in_flight) from submitter_change x where x.submitter = s.submitter))`

// lostBytes depends on no clock: changes of the database's identity are numbered. If the submitter is
// retired here, it was retired in the lost database too. Bytes are signed only for rows that are stored
// first, and none is stored for a retired submitter. All nonces before its retirement were final. So no
// lost bytes exist, and no payout of it was open.
const lostBytes = `
select s.callers = array[$2::text], s.status = '` + statusRetired + `',
       s.status <> '` + statusRetired + `' and ` + lastChange + ` > coalesce((select max((e.released ->> 'change')::bigint) from protect_incident e
                                where e.submitter = s.submitter and e.released ? 'filling'), 0),
       ` + widestWindow + `, ` + lastChange + `,
       coalesce((select max(n.nonces_below) from payout_statement n join transfers_tb t using (req_id)
                  where t.open and t.payout_submitter = s.submitter and not n.paid and n.acted_at is null and n.withdrawn_at is null), 0)
  from submitter s
 where s.submitter = $1`

// LostNonces implements [txmanager.Store].
func (s *Store) LostNonces(ctx context.Context, sub txmanager.Submitter) (l txmanager.LostNonces, err error) {
	err = s.db.QueryRow(ctx, lostBytes, sub, PayoutCaller).Scan(&l.Payer, &l.Retired, &l.Restored, &l.Window, &l.Change, &l.StatedBelow)
	return l, results.Wrap(err, "read what %s may have lost", sub)
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
	found, err := results.All(ctx, s.db, pgx.RowTo[uint64], filledCount, sub)
	if len(found) == 0 {
		return 0, false, results.Wrap(err, "read what releases of %s have filled", sub)
	}
	return found[0], true, nil
}

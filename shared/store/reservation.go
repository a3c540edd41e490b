package store

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// recyclable is true of a submitter s that has a recyclable nonce.
const recyclable = `exists (select from managed_tx g
       where g.submitter = s.submitter and g.open and g.reservation = 'RECYCLABLE')`

// given is a reservation r that releases its nonce. Its owner marked it
// recyclable in time, nothing is signed (it is IN_FLIGHT), and no decision was made. The
// statement that binds the nonce to another row also ends this row without a nonce. Two
// constraints guard this: bound_for_ever, if there is a version after all, and
// follows_the_last_nonce, if there is a higher nonce and no other row.
const given = `
  update managed_tx r
     set state = 'FAILED', sub_state = 'CANCELLED', nonce = null, prev_nonce = null, next_check_at = null,
         last_gas_params = null, last_error = r.last_error || '; its nonce was given out again', ` + waitOver + `
         event_sequence = r.event_sequence + 1, fencing_token = @token, updated_at = clock_timestamp()
   where r.tx_id = @from and r.submitter is not distinct from @submitter and r.nonce = @nonce and r.state = 'IN_FLIGHT'
     and r.reservation = 'RECYCLABLE' and r.lock_until > clock_timestamp() and r.requested_action is null
     and not exists (select from protect_incident p where p.submitter = @submitter and p.closed_at is null)`

// takeRecyclable binds a recyclable nonce to a queued transaction. As in [allocateTxs] that
// transaction is locked first. If it has left the queue, or its validUntil has passed, the
// reservation keeps its nonce.
var takeRecyclable = `
with locked as (
  select m.tx_id, m.valid_until
    from managed_tx m
   where m.tx_id = @tx_id and m.submitter is not distinct from @submitter and m.state = 'QUEUED' and not m.held
     for update of m
), given as (` + given + ` and exists (select from locked where valid_until is null or valid_until > clock_timestamp())
  returning r.tx_id
), bound as (
  update managed_tx m
     set nonce = @nonce, prev_nonce = nullif(@nonce, s.start_nonce) - 1,
         ` + setBound("@tx_hash::text", "@tx_hash", "@gas_params::text::jsonb") + `
         fencing_token = @token, updated_at = clock_timestamp()
    from given g, locked, submitter s
   where m.tx_id = locked.tx_id and s.submitter = @submitter
  returning m.tx_id, m.submitter, m.nonce
), ` + keepFirst(firstVersion{"bound", "@tx_hash", "@bytes", "@gas_params::text", "@token", " where @tx_hash is not null"}) + `
select count(*) from bound`

// queueReuse adds the allocation of a recyclable nonce.
func queueReuse(b *pgx.Batch, l lease.Lease, a txmanager.Allocation, done *txmanager.CommitResult) {
	hash, raw := signedOf(&a)
	b.Queue(takeRecyclable, NamedArgs{
		"submitter": l.Submitter, "token": l.Token, "nonce": Bigint(a.Nonce), "from": a.FromReservation,
		"tx_id": a.Tx.ID, "tx_hash": hash, "bytes": raw, "gas_params": gasText(a.Tx.Gas),
	}).QueryRow(results.Scan(&done.Allocated))
}

// These statements reserve a nonce by a separate row that comes from no queue. If the nonce
// slot is taken, the row has no nonce. Its state's constraint then refuses the row and the
// whole commit.
const (
	reserved = `
  insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, nonce, prev_nonce, state, last_gas_params,
                          reservation, lock_owner, lock_until, next_check_at, fencing_token)
  select @tx_id, @submitter, @request_id, @caller, @fingerprint, seat.nonce, nullif(seat.nonce, s.start_nonce) - 1, 'IN_FLIGHT', @gas_params::text::jsonb,
         'RESERVED', @owner, until, until, @token
    from submitter s
    left join seat on true, (select clock_timestamp() + @for::interval as until offset 0) as lock
   where s.submitter = @submitter
  returning nonce`

	reserveNext = `
with seat as (
  select c.next_nonce as nonce
    from submitter_nonce_cursor c
   where c.submitter = @submitter and c.next_nonce = @nonce and @from::uuid is null
     and not exists (select from protect_incident p where p.submitter = @submitter and p.closed_at is null)
), reserved as (` + reserved + `
)
update submitter_nonce_cursor
   set next_nonce = next_nonce + (select count(*) from reserved)
 where submitter = @submitter`

	reserveRecyclable = `
with given as (` + given + `
  returning r.tx_id
), seat as (
  select @nonce::bigint as nonce from given
)` + reserved
)

// notAPayload stands in place of a reservation's payload. No transaction can be made from it.
const notAPayload = `{"reservation": true}`

// permitReserved counts reservations that are made together as so many intents, or fails the
// whole commit. What their owners will sign is not known yet.
var permitReserved = `
with ` + verdict(judging{caller: `@caller`, amount: `null::numeric`, queues: `false`, fees: feesCheckedLater}) + `, ` + countUse(`j.refused = ''`, ``) + `
select refuse_by_policy(v.refused, v.most) from (` + verdictColumns + `) as v (refused, most) where v.refused <> ''`

// queueReservations adds reservations, all or none, each with notAPayload.
func queueReservations(b *pgx.Batch, l lease.Lease, all []txmanager.NewReservation) {
	if len(all) == 0 {
		return
	}
	b.Queue(lockPolicies, []string{l.Submitter})
	b.Queue(permitReserved, NamedArgs{
		"submitter": l.Submitter, "tx_id": all[0].Tx.ID, "value": nil, "targets": nil, "counts": len(all), "caller": all[0].Caller,
	})
	for _, k := range all {
		statement := reserveNext
		if k.From != "" {
			statement = reserveRecyclable
		}
		print := sha256.Sum256([]byte("reservation\x00" + k.Tx.Reservation.Owner))
		b.Queue(statement, NamedArgs{
			"submitter": l.Submitter, "token": l.Token, "nonce": Bigint(*k.Tx.Nonce), "from": textOrNull(k.From),
			"tx_id": k.Tx.ID, "request_id": k.Tx.RequestID, "caller": k.Caller, "fingerprint": print[:],
			"gas_params": gasText(k.Tx.Gas), "owner": k.Tx.Reservation.Owner, "for": k.For,
		})
		b.Queue(insertPayloads, []string{k.Tx.ID}, []string{notAPayload})
	}
}

// mine is a reservation that its owner may still mark: in time, unsigned, without a decision,
// in the database that was written last.
const mine = ` and submitter is not distinct from @submitter and reservation = 'RESERVED'
     and lock_until > clock_timestamp() and state = 'IN_FLIGHT' and requested_action is null and (select is_accepted_database())`

// markUsed stores the owner's bytes and claims their first broadcast, if the submitter's
// policy allows them. Then their value counts.
var markUsed = `
with ` + verdict(judging{caller: ofTheRow, amount: `@amount::numeric`, queues: `false`, fees: feesCheckedLater}) + `, marked as (
  update managed_tx
     set reservation = 'USED', state = 'SUBMITTED', tx_hash = @tx_hash, last_gas_params = @gas_params::text::jsonb,
         submit_attempts = 1, first_submit_at = statement_timestamp(), last_submit_at = statement_timestamp(),
         next_resubmit_at = statement_timestamp(), next_check_at = clock_timestamp(), last_error = null, ` + waitOver + `
         event_sequence = event_sequence + 1, fencing_token = @token, updated_at = clock_timestamp()
   where tx_id = @tx_id and lock_owner = @owner` + mine + `
     and (select refused from evaluated) = ''
  returning tx_id, submitter, nonce
), ` + keepFirst(firstVersion{"marked", "@tx_hash", "@bytes", "@gas_params::text", "@token", ""}) + `, ` + countUse(`exists (select from marked)`, ` and j.added_wei > 0`) + `
select exists (select from marked), v.* from (` + verdictColumns + `) as v`

// markRecyclable makes the submitter's check due now, so that another intent or reservation
// gets the nonce.
const markRecyclable = `
update managed_tx
   set reservation = 'RECYCLABLE', last_error = 'given back unsigned: ' || @reason, next_check_at = clock_timestamp(),
       fencing_token = @token, updated_at = clock_timestamp()
 where tx_id = @tx_id and lock_owner = @owner` + mine

func queueMark(b *pgx.Batch, l lease.Lease, m *txmanager.ReservationMark, done *txmanager.CommitResult) {
	if m == nil {
		return
	}
	if m.To == txmanager.Recyclable {
		b.Queue(markRecyclable, NamedArgs{
			"submitter": l.Submitter, "token": l.Token, "tx_id": m.TxID, "owner": m.Owner, "reason": PrintableText(m.Reason),
		}).Exec(results.Any(&done.Marked))
		return
	}
	b.Queue(lockPolicies, []string{l.Submitter})
	b.Queue(markUsed, NamedArgs{
		"submitter": l.Submitter, "tx_id": m.TxID, "value": weiOf(m.Call), "targets": targetsOf(m.Call), "counts": 0, "amount": decimalOrNull(m.Call.TokenAmount()),
		"token": l.Token, "owner": m.Owner, "tx_hash": m.Signed.Hash.String(), "bytes": m.Signed.Raw, "gas_params": gasText(m.Gas),
	}).QueryRow(func(row pgx.Row) error {
		var refused PolicyError
		err := row.Scan(&done.Marked, &refused.Rule, &refused.Limit)
		if refused.Rule != "" {
			done.Refused = refused
		}
		return err
	})
}

// Reservation is the stored state of a reservation.
type Reservation struct {
	TxID      string
	RequestID string
	Submitter txmanager.Submitter
	Nonce     *uint64                    // nil: it was released and allocated again
	State     txmanager.ReservationState // "": the request is an intent's
	Owner     string
	Until     time.Time // by the database's clock; of an intent it says nothing
	Over      bool      // its owner may mark it no more
	FirstHash string    // of the bytes that its owner marked it used by; "": none
}

const findReservations = `
select m.tx_id, m.request_id, m.submitter, m.nonce, coalesce(m.reservation, ''), coalesce(m.lock_owner, ''),
       coalesce(m.lock_until, m.created_at),
       coalesce(m.reservation <> 'RESERVED' or m.state <> 'IN_FLIGHT' or m.requested_action is not null or m.lock_until <= clock_timestamp(), true),
       coalesce((select v.tx_hash from tx_version v where v.tx_id = m.tx_id and v.version = 1 and m.reservation = 'USED'), '')
  from managed_tx m`

// Reservations are the submitter's stored rows for the requests, in the order of the requests.
// Rows of intents are among them.
func (s *Store) Reservations(ctx context.Context, sub txmanager.Submitter, requests []string) ([]Reservation, error) {
	return s.reservations(ctx, `
  join unnest($1::text[]) with ordinality as r (request_id, place) using (request_id)
 where m.submitter = $2
 order by r.place`, requests, sub)
}

// Reservation is the reservation with this txId. The error is [ErrNotFound] if there is none.
func (s *Store) Reservation(ctx context.Context, txID string) (Reservation, error) {
	all, err := s.reservations(ctx, ` where m.tx_id = $1 and m.reservation is not null`, txID)
	if err == nil && len(all) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Reservation{}, err
	}
	return all[0], nil
}

func (s *Store) reservations(ctx context.Context, which string, args ...any) ([]Reservation, error) {
	all, err := results.All(ctx, s.db, pgx.RowToStructByPos[Reservation], findReservations+which, args...)
	return all, results.Wrap(err, "read reservations")
}

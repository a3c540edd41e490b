package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/store/snapshot"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// PayoutCaller is the caller name under which the transfer coordinator makes and cancels
// payouts. No token may have that name. A submitter pays out if this is its only caller: see
// [Registration].
const PayoutCaller = txmanager.PayoutCaller

// Payout is the stored state of a payer's request.
type Payout struct {
	TxID      string // "": there is none
	TxHash    string // of its transaction, or of the foreign one that it was matched with; "": none
	Caller    string // who made it
	State     txmanager.State
	SubState  txmanager.SubState
	LastError string
	Payload   []byte // of what is CONFIRMED: what was to be done, for ever …
	Receipt   []byte // … and the final receipt as the node gave it; nil: it came with none
	Token     int64  // in force; 0 before the first lease session

	Pays      bool    // the submitter is registered, for [PayoutCaller] alone
	Foreign   bool    // the database is not the one written last: nothing in it is believed
	Protected bool    // a PROTECT incident is open: a missing request proves nothing
	Taken     bool    // a release recorded that a transaction which is not on record was this request
	TakenAt   *uint64 // the nonce of that transaction, or of the one that an operator matched it with; nil: neither
	TakenBy   string  // its hash, as it was read before the release; "": it was not

	Older     bool             // its transfer was created before the last change of the database's identity
	Unbound   bool             // it has no nonce
	Ended     bool             // it changed last after that change of the database's identity
	Statement *PayoutStatement // what an operator says, and has not withdrawn; nil: nothing
	ProvedBy  string           // the hash of the transaction that proves it paid; "": none does
}

// InDoubt is true if a lost part of the database may have paid the payout, and no operator's
// statement to the contrary has taken effect. Such a payout was created before the last change
// of the authority and has no nonce. A payout that had failed before that change is not in
// doubt.
func (p Payout) InDoubt() bool {
	if !p.Older || p.Statement != nil && p.Statement.Acted {
		return false
	}
	return p.TxID == "" || p.Unbound && (p.State == txmanager.Queued || p.Ended)
}

// These conditions keep "request $2 of submitter $1 is not stored" from proving anything.
const (
	isProtected = `exists (select from protect_incident e where e.submitter = $1 and e.closed_at is null)`
	isTaken     = `exists (select` + namedIn + `)`
	isOlder     = `exists (select from transfers_tb t, identity_change c
         where t.req_id = $2 and (c.at >= t.created_at or c.transfers_upto >= t.transfer_id))`
	// A request that a release names is ignored once an operator's statement that it was not
	// paid has taken effect.
	namedIn = ` from protect_incident e
         where e.submitter = $1 and jsonb_path_exists(e.released, '$.requests.* ? (@ == $of)', jsonb_build_object('of', $2::text))
           and not exists (select from payout_statement n where n.req_id = $2 and not n.of_confirmed and n.acted_at >= e.closed_at and ` + ofThisChange + `)`
	isNotPaid = `exists (select from payout_statement n where n.req_id = $2 and not n.of_confirmed and n.acted_at is not null and ` + ofThisChange + `)`
	// ofThisChange is true of a statement n that still counts. A statement about lost
	// transactions covers no transaction that a later restore lost. A statement about a
	// CONFIRMED transaction (change 0) counts for ever.
	ofThisChange = `(n.of_confirmed or n.change = ` + lastChange + `)`
)

// findPayout always returns one row. findIntents describes how it finds the request.
const findPayout = `
select coalesce(m.tx_id::text, '') as tx_id, coalesce(m.tx_hash, '') as tx_hash, coalesce(m.caller, '') as caller,
       coalesce(m.state, '') as state, coalesce(m.sub_state, '') as sub_state, coalesce(m.last_error, '') as last_error,
       c.payload, c.receipt, coalesce(l.fencing_token, 0) as token,
       coalesce(s.callers = array[$3::text], false) as pays, not (select is_accepted_database()) as "foreign",
       ` + isProtected + ` as protected, ` + isTaken + ` as taken, taken.nonce as taken_at,
       coalesce((select f.tx_hash from foreign_transaction f where f.submitter = i.submitter and f.nonce = taken.nonce), '') as taken_by,
       ` + isOlder + ` as older, m.tx_id is not null and m.nonce is null as unbound,
       coalesce(m.updated_at >= (select max(c.at) from identity_change c), false) as ended,
       (select ` + statementOf + ` from payout_statement n where n.req_id = $2 and n.withdrawn_at is null and ` + ofThisChange + ` order by n.id desc limit 1) as statement,
       coalesce((select p.tx_hash from payout_proof p where p.req_id = $2), '') as proved_by
  from (select $1::submitter_id as submitter) as i
  left join submitter s on s.submitter = i.submitter
  left join submitter_lease l on l.submitter = i.submitter
  left join lateral (
       select submitter, tx_id, tx_hash, caller, state, sub_state, last_error, nonce, recorded_nonce, updated_at
         from managed_tx
        where request_id = $2 and submitter >= i.submitter
        order by submitter
        limit 1) as m on m.submitter = i.submitter
  left join payout_confirmed c on c.tx_id = m.tx_id
 cross join lateral (
       select max(r.key::numeric)::bigint as nonce
         from (select e.released` + namedIn + `) as e, jsonb_each_text(e.released -> 'requests') as r
        where r.value = $2) as named
 cross join lateral (select coalesce(named.nonce, m.recorded_nonce) as nonce) as taken`

// Payout reads the stored state of the submitter's request in one round trip. A missing
// request or an unregistered submitter is no error.
func (s *Store) Payout(ctx context.Context, sub txmanager.Submitter, requestID string) (Payout, error) {
	p, err := results.One(ctx, s.db, pgx.RowToStructByName[Payout], findPayout, sub, requestID, PayoutCaller)
	return p, results.Wrap(err, "find payout %s of %s", requestID, sub)
}

// tombstone takes the request's unique key by a FAILED row, if nothing is stored and the conditions
// hold. A concurrent create then finds the key taken and the request final. The later of the two
// waits for the other's commit. why is the row's last error, and reason that of the cancel on record.
func tombstone(conditions, why, reason string) string {
	return `
with stone as (
  insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, state, sub_state, last_error)
  select $4::uuid, s.submitter, $2::text, $3::text, $5::bytea, 'FAILED', 'CANCELLED', ` + why + `
    from submitter s
   where s.submitter = $1 and s.callers = array[$3::text] and (select is_accepted_database())` + conditions + `
      on conflict (submitter, request_id) do nothing
  returning tx_id
), document as (
  insert into tx_document (tx_id, name, body)
  select tx_id, 'payload', $7::text::json from stone
)
insert into tx_decision (tx_id, action, by, reason)
select tx_id, 'CANCEL', $3, ` + reason + ` from stone`
}

// insertTombstone requires that a missing request proves something.
var insertTombstone = tombstone(`
     and not `+isProtected+` and not `+isTaken+`
     and (not `+isOlder+` or `+isNotPaid+`)`, `'cancelled before it was made: ' || $6::text`, `$6::text`)

// CancelPayout cancels the request for ever, if that is still possible. A request that is not
// stored is stored as FAILED/CANCELLED with the TxID of in; a concurrent create finds it and
// cannot run. A queued request is cancelled at once, unless the payer is in PROTECT. For a
// request with a nonce, the lease holder gets a requested cancel. A repeated call is harmless.
//
// It returns the state before that action. Nothing is stored if [Payout] shows that a missing
// request would prove nothing.
func (s *Store) CancelPayout(ctx context.Context, in Intent, reason string) (p Payout, err error) {
	b := new(pgx.Batch)
	b.Queue("begin")
	b.Queue(insertTombstone, in.Submitter, in.RequestID, PayoutCaller, in.TxID, in.Fingerprint[:], reason, string(in.Payload))
	b.Queue("commit")
	b.Queue(findPayout, in.Submitter, in.RequestID, PayoutCaller).Query(results.Only(&p, pgx.RowToStructByName[Payout]))
	if err := s.send(ctx, b); err != nil {
		return Payout{}, fmt.Errorf("cancel payout %s of %s: %w", in.RequestID, in.Submitter, err)
	}
	if p.TxID == "" || p.Caller != PayoutCaller || p.State.Terminal() {
		return p, nil
	}
	_, err = s.RecordDecision(ctx, Decision{TxID: p.TxID, By: Viewer{Caller: PayoutCaller}, Action: txmanager.ActionCancel, Reason: reason})
	return p, err
}

// ConfirmedPayout is a payout whose transaction is CONFIRMED, with its transfer's row.
type ConfirmedPayout struct {
	Number  int64 // in the order of the journal, but not of commits
	ReqID   string
	Proof   bool   // it is a row of payout_proof: another transaction paid, or an operator has decided
	Payload []byte // as in [Payout]
	Receipt []byte
	At      time.Time

	UserID  int64 // 0: no transfer of that req_id is on record
	AssetID int32
	Units   uint64
	Terms   transfer.Payout
}

const confirmedPayouts = `
select c.number, c.request_id, c.proof, c.payload, c.receipt, c.at, c.tx, coalesce(t.user_id, 0), coalesce(t.asset_id, 0), coalesce(t.units, 0),
       coalesce(t.payout_submitter, ''), coalesce(t.payout_chain_id, 0), coalesce(t.payout_token, ''),
       coalesce(t.payout_address, ''), coalesce(t.payout_base_units, 0)::text, coalesce(t.payout_payload::text, '')
  from (select *
          from (select number, request_id, payload, receipt, at, tx, submitter::text, false as proof
                  from (select * from payout_confirmed c where ` + snapshot.Unseen + `
                           and not exists (select from managed_tx m where m.tx_id = c.tx_id and m.sub_state = 'RECORDED') -- its proof is read in its place
                         order by tx fetch first $2 rows with ties) as confirmed
                 union all
                select number, req_id, null, receipt, at, tx, null, true
                  from (select * from payout_proof where ` + snapshot.Unseen + ` order by tx fetch first $2 rows with ties) as proved) as both_kinds
         order by tx
         fetch first $2 rows with ties) as c
  left join transfers_tb t on t.req_id = c.request_id and (c.proof or t.payout_submitter = c.submitter)
 order by c.tx, c.number`

// ConfirmedPayouts reads about limit payouts after a cursor: see [snapshot.ReadPage].
func (s *Store) ConfirmedPayouts(ctx context.Context, after conservation.Cursor, limit int) (all []ConfirmedPayout, next conservation.Cursor, more bool, err error) {
	all, next, more, err = snapshot.ReadPage(ctx, s.db, after, limit, confirmedPayouts, scanConfirmedPayout)
	return all, next, more, results.Wrap(err, "read confirmed payouts")
}

func scanConfirmedPayout(row pgx.CollectableRow, tx *uint64) (c ConfirmedPayout, err error) {
	t := &c.Terms
	err = row.Scan(&c.Number, &c.ReqID, &c.Proof, &c.Payload, &c.Receipt, &c.At, tx, &c.UserID, &c.AssetID, &c.Units,
		&t.Submitter, &t.ChainID, &t.Token, &t.Address, &t.BaseUnits, &t.Payload)
	return c, err
}

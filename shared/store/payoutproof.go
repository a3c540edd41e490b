package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// actOnStatement applies a statement that a payout was not paid. If the database may have lost
// transactions ($3), every nonce that they can have must be consumed. That holds once the
// cursor is beyond, no transaction below is open, and all foreign transactions were read.
const actOnStatement = `
update payout_statement n
   set acted_at = clock_timestamp()
 where n.id = $1 and not n.paid and n.acted_at is null and n.withdrawn_at is null and ` + ofThisChange + ` and (select is_accepted_database())
   and not exists (select from payout_proof p where p.req_id = n.req_id)
   and not exists (select` + samePayment + `)
   and (not $3::boolean or ` + noncesClosed + `)`

// lockTransfer comes first when a payout is proved or a statement takes effect. Only one of
// the two happens, and the second sees the first.
const lockTransfer = `select from transfers_tb where req_id = $1 for no key update`

// lockHoldOf comes before a proof by transaction $1 (a hash), which an operator may be
// matching with another request. Only one of the two happens, and the second sees the first.
const lockHoldOf = `
select from foreign_hold h join foreign_transaction f using (submitter, nonce)
 where f.tx_hash = $1 and h.ended_at is null
   for no key update of h`

const (
	// samePayment are foreign transactions with the call of statement n's payout ($4 is its
	// digest) that are not stored as another request's.
	samePayment = ` from foreign_transaction f
         where f.submitter = $2 and f.call_digest = $4 and f.succeeded and f.tx_hash <> all (n.other_payments) and not n.of_confirmed
           and not exists (select from payout_proof p where p.tx_hash = f.tx_hash)
           and not exists (select from managed_tx o where o.submitter = f.submitter and o.nonce = f.nonce and o.tx_hash = f.tx_hash and o.request_id <> n.req_id)`
	findSamePayment = `select f.tx_hash from payout_statement n, lateral (select f.tx_hash` + samePayment + `) as f where n.id = $1 and $3::boolean is not null limit 1`
)

const noncesClosed = `
       exists (select from submitter_nonce_cursor k where k.submitter = $2 and k.next_nonce >= n.nonces_below)
   and not exists (select from managed_tx m
         where m.submitter = $2 and m.nonce < n.nonces_below and m.open)
   and not exists (select from managed_tx m
         where m.submitter = $2 and m.nonce < n.nonces_below and m.sub_state = 'DISPLACED' and m.updated_at >= (select max(at) from identity_change)
           and not exists (select from foreign_transaction f where f.submitter = $2 and f.nonce = m.nonce))`

// ActOnStatement applies the statement. With lostBytes it first requires that no lost
// transaction can be mined any more; until then the error wraps [ErrNoncesOpen]. The error
// wraps [ErrPaymentFound] while a foreign transaction of the payer has the digest of the
// payout's call and belongs to no other request. A repeated call is harmless.
func (s *Store) ActOnStatement(ctx context.Context, sub txmanager.Submitter, reqID string, st PayoutStatement, call [32]byte, lostBytes bool) error {
	var acted bool
	var same []string
	b := new(pgx.Batch)
	b.Queue("begin")
	b.Queue(lockTransfer, reqID)
	b.Queue(actOnStatement, st.ID, sub, lostBytes, call[:]).Exec(func(tag pgconn.CommandTag) error {
		acted = tag.RowsAffected() == 1
		return nil
	})
	b.Queue(proceedPayout, st.ID, sub, reqID)
	b.Queue("commit")
	b.Queue(findSamePayment, st.ID, sub, lostBytes, call[:]).Query(func(rows pgx.Rows) (err error) {
		same, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	switch err := s.send(ctx, b); {
	case err != nil:
		return fmt.Errorf("act on statement %d: %w", st.ID, err)
	case !acted && len(same) > 0:
		return fmt.Errorf("act on statement %d: transaction %s: %w", st.ID, same[0], ErrPaymentFound)
	case !acted:
		return fmt.Errorf("act on statement %d: every nonce of %s below %d must be consumed and final: %w", st.ID, sub, st.NoncesBelow, ErrNoncesOpen)
	}
	return nil
}

// PayoutProof is a final transaction that paid a payout.
type PayoutProof struct {
	ChainID     uint64
	TxHash      string
	LogIndex    int // of the token's Transfer event; [CoinMoved] or [OperatorDecided]
	BlockNumber uint64
	Receipt     []byte // as the node gave it
	Statement   int64  // that named it; 0: a release named the request
}

// Values of [PayoutProof].LogIndex without an event.
const (
	CoinMoved       = -1 // the chain's own coin moved
	OperatorDecided = -2 // an operator decided, and the receipt proves nothing
)

// insertProvedTombstone is insertTombstone for a proved payout: nothing more is sent for it. It
// may run during PROTECT, because a proof stays true.
const insertProvedTombstone = `
with stone as (
  insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, state, sub_state, last_error)
  select $4::uuid, s.submitter, $2::text, $3::text, $5::bytea, 'FAILED', 'CANCELLED', 'not sent: transaction ' || $6::text || ' paid it'
    from submitter s
   where s.submitter = $1 and s.callers = array[$3::text] and (select is_accepted_database())
      on conflict (submitter, request_id) do nothing
  returning tx_id
), document as (
  insert into tx_document (tx_id, name, body)
  select tx_id, 'payload', $7::text::json from stone
)
insert into tx_decision (tx_id, action, by, reason)
select tx_id, 'CANCEL', $3, 'transaction ' || $6::text || ' paid it' from stone`

// insertProof stores a proof if the request can no longer be sent, the transaction is no
// stored version of another request, and the statement is still in force.
const insertProof = `
insert into payout_proof (chain_id, tx_hash, log_index, req_id, block_number, receipt, statement_id)
select $3::bigint, $4::text, $5::integer, m.request_id, $6::bigint, $7::text::json, nullif($8::bigint, 0)
  from managed_tx m
 where m.submitter = $1 and m.request_id = $2 and m.state in ('CONFIRMED', 'FAILED')
   and (select is_accepted_database())
   and not exists (select from tx_version v join managed_tx o using (tx_id)
         where v.tx_hash = $4 and (o.submitter, o.request_id) is distinct from (m.submitter, m.request_id))
   and not exists (select from managed_tx o where o.submitter = $1 and o.tx_hash = $4 and o.request_id <> $2)
   and not exists (select from payout_statement n where n.req_id = $2 and n.acted_at is not null and ` + ofThisChange + `)
   and ($8 = 0 or exists (select from payout_statement n where n.id = $8 and n.paid and n.withdrawn_at is null for update))
    on conflict do nothing`

// noProofCode is Postgres's code of a division by zero: the batch ends without a proof and
// without a tombstone.
const (
	noProofCode = "22012"
	demandProof = `select 1 / count(*) from payout_proof where req_id = $1 and tx_hash = $2`
)

// ProvePayout records that the transaction paid the request, and that nothing is sent for it.
// The error wraps [ErrProofUsed] if the transaction belongs to another request, or if the
// request can still be carried out. A repeated call is harmless.
func (s *Store) ProvePayout(ctx context.Context, in Intent, proof PayoutProof) error {
	b := new(pgx.Batch)
	b.Queue("begin")
	b.Queue(lockTransfer, in.RequestID)
	b.Queue(lockHoldOf, proof.TxHash)
	b.Queue(insertProvedTombstone, in.Submitter, in.RequestID, PayoutCaller, in.TxID, in.Fingerprint[:], proof.TxHash, string(in.Payload))
	b.Queue(insertProof, in.Submitter, in.RequestID, int64(proof.ChainID), proof.TxHash, proof.LogIndex, int64(proof.BlockNumber), string(proof.Receipt), proof.Statement)
	b.Queue(demandProof, in.RequestID, proof.TxHash)
	b.Queue("commit")
	err := s.send(ctx, b)
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == noProofCode {
		return fmt.Errorf("payout %s, transaction %s: %w", in.RequestID, proof.TxHash, ErrProofUsed)
	}
	if err != nil {
		return fmt.Errorf("record that transaction %s paid %s: %w", proof.TxHash, in.RequestID, err)
	}
	return nil
}

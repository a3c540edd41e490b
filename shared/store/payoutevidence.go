package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// PayoutStatement is an operator's statement about a payout whose stored state proves nothing.
type PayoutStatement struct {
	ID            int64
	OfConfirmed   bool `json:"of_confirmed"` // it is about the payout's own transaction, which is CONFIRMED without proof
	Paid          bool
	TxHash        string   `json:"tx_hash"` // of the transaction that paid; "" where it was not paid
	Refund        bool     // where it was not paid: the money goes back; otherwise it is paid again
	NoncesBelow   uint64   `json:"nonces_below"`   // where it was not paid: the payer may have signed lost bytes for each nonce below
	OtherPayments []string `json:"other_payments"` // where it was not paid: transactions that do the same, and paid something else
	By            string
	Reason        string
	At            time.Time
	Acted         bool // where it was not paid: it took effect, and cannot be withdrawn any more
}

// statementOf is a row n of payout_statement, as [PayoutStatement] has it.
const statementOf = `to_jsonb(n) || jsonb_build_object('acted', n.acted_at is not null)`

// Errors of statements and proofs. After each, nothing was changed.
var (
	// ErrStatementStands reports that an operator's earlier statement is in force and must be
	// withdrawn first.
	ErrStatementStands = errors.New("an operator has made a statement about the payout, and has not withdrawn it")
	// ErrNoStatement reports that there is no statement, or that it has taken effect and
	// cannot be withdrawn.
	ErrNoStatement = errors.New("there is no statement that can still be withdrawn")
	// ErrProofUsed reports a transaction that proves another payout, or that is a stored
	// version of another request. One transaction proves one payout.
	ErrProofUsed = errors.New("the transaction is another request's: one transaction proves one payout")
	// ErrPaymentFound reports a foreign transaction of the payer with the call of a payout
	// that was stated not to be paid.
	ErrPaymentFound = errors.New("a transaction of the payer that is on no record does what the payout wants: state that it paid, or name it as another's payment (other_payments)")
	// ErrNoncesOpen reports that transactions which the database has lost may still be mined.
	ErrNoncesOpen = errors.New("bytes that the database has lost may still be mined: not every nonce that they can have is consumed")
)

const insertStatement = `
insert into payout_statement (req_id, of_confirmed, paid, tx_hash, refund, nonces_below, other_payments, by, reason, change)
select t.req_id, c.confirmed, $2, nullif($3, ''), case when not $2 then $4::boolean end, case when not $2 then $5::bigint end, case when not $2 then coalesce($8::text[], '{}') end, $6, $7,
       case when c.confirmed then 0 else ` + lastChange + ` end
  from transfers_tb t,
       lateral (select exists (select from managed_tx m where m.submitter = t.payout_submitter and m.request_id = t.req_id and m.state = 'CONFIRMED') as confirmed) as c
 where t.req_id = $1 and t.open and (select is_accepted_database())
    on conflict (req_id, of_confirmed, change) where withdrawn_at is null do nothing`

// StatePayout records an operator's statement about the payout. The error wraps
// [ErrStatementStands] if a statement is in force, or [ErrInDoubt] in a foreign database.
func (s *Store) StatePayout(ctx context.Context, reqID string, st PayoutStatement) error {
	tag, err := ExecCarrying(ctx, s.db, insertStatement, reqID, st.Paid, st.TxHash, st.Refund, int64(st.NoncesBelow), st.By, st.Reason, st.OtherPayments)
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrStatementStands
	}
	return results.Wrap(err, "record a statement about payout %s", reqID)
}

const withdrawStatement = `
update payout_statement
   set withdrawn_at = clock_timestamp(), withdrawn_by = $2, withdraw_reason = $3
 where req_id = $1 and withdrawn_at is null and acted_at is null and (select is_accepted_database())
   and not exists (select from payout_proof p where p.req_id = $1)`

// WithdrawStatement withdraws the statement in force, unless it has taken effect. The error
// wraps [ErrNoStatement] if there is none to withdraw.
func (s *Store) WithdrawStatement(ctx context.Context, reqID, by, reason string) error {
	tag, err := s.db.Exec(ctx, withdrawStatement, reqID, by, reason)
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrNoStatement
	}
	return results.Wrap(err, "withdraw the statement about payout %s", reqID)
}

// PastStatement is a statement with its outcome.
type PastStatement struct {
	PayoutStatement
	ActedAt        *time.Time
	WithdrawnAt    *time.Time
	WithdrawnBy    string
	WithdrawReason string
	Counts         bool // it was not withdrawn, and no restore that came after it has made it void
}

const payoutStatements = `
select ` + statementOf + `, n.acted_at, n.withdrawn_at, coalesce(n.withdrawn_by, ''), coalesce(n.withdraw_reason, ''),
       n.withdrawn_at is null and ` + ofThisChange + `
  from payout_statement n
 where n.req_id = $1
 order by n.id`

// PayoutStatements lists the operators' statements about a payout, the oldest first, and the
// hash of the transaction that proves it paid, or "".
func (s *Store) PayoutStatements(ctx context.Context, reqID string) (all []PastStatement, provedBy string, err error) {
	b := new(pgx.Batch)
	b.Queue(payoutStatements, reqID).Query(results.Into(&all, func(row pgx.CollectableRow) (p PastStatement, err error) {
		err = row.Scan(&p.PayoutStatement, &p.ActedAt, &p.WithdrawnAt, &p.WithdrawnBy, &p.WithdrawReason, &p.Counts)
		return p, err
	}))
	b.Queue(`select coalesce((select tx_hash from payout_proof where req_id = $1), '')`, reqID).QueryRow(results.Scan(&provedBy))
	err = s.send(ctx, b)
	return all, provedBy, results.Wrap(err, "read the statements about payout %s", reqID)
}

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
	b.Queue(actOnStatement, st.ID, sub, lostBytes, call[:]).Exec(results.Any(&acted))
	b.Queue(proceedPayout, st.ID, sub, reqID)
	b.Queue("commit")
	b.Queue(findSamePayment, st.ID, sub, lostBytes, call[:]).Query(results.Into(&same, pgx.RowTo[string]))
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
	OperatorDecided = -2 // an operator decided about the request's own transaction, and its receipt proves nothing
)

// insertProvedTombstone is for a proved payout: nothing more is sent for it. It may run during
// PROTECT, because a proof stays true.
var insertProvedTombstone = tombstone(``, `'not sent: transaction ' || $6::text || ' paid it'`, `'transaction ' || $6::text || ' paid it'`)

// insertProof stores a proof if the request can no longer be sent, the transaction is no
// stored version of another request, and the statement is still in force. An operator decides about
// the request's own transaction alone.
const insertProof = `
insert into payout_proof (chain_id, tx_hash, log_index, req_id, block_number, receipt, statement_id)
select $3::bigint, $4::text, $5::integer, m.request_id, $6::bigint, $7::text::json, nullif($8::bigint, 0)
  from managed_tx m
 where m.submitter = $1 and m.request_id = $2 and m.state in ('CONFIRMED', 'FAILED')
   and (select is_accepted_database())
   and not exists (select from tx_version v join managed_tx o using (tx_id)
         where v.tx_hash = $4 and (o.submitter, o.request_id) is distinct from (m.submitter, m.request_id))
   and not exists (select from managed_tx o where o.submitter = $1 and o.tx_hash = $4 and o.request_id <> $2)
   and ($5::integer <> -2 or m.tx_hash = $4 and not exists (select from payout_proof p where p.chain_id = $3 and p.tx_hash = $4 and p.req_id <> $2))
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
	if results.Refusal(err).Code == noProofCode {
		return fmt.Errorf("payout %s, transaction %s: %w", in.RequestID, proof.TxHash, ErrProofUsed)
	}
	return results.Wrap(err, "record that transaction %s paid %s", proof.TxHash, in.RequestID)
}

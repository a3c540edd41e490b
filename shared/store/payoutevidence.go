package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// PayoutStatement is an operator's statement about a payout whose stored state proves nothing.
type PayoutStatement struct {
	ID            int64
	OfConfirmed   bool // it is about the payout's own transaction, which is CONFIRMED without proof
	Paid          bool
	TxHash        string   // of the transaction that paid; "" where it was not paid
	Refund        bool     // where it was not paid: the money goes back; otherwise it is paid again
	NoncesBelow   uint64   // where it was not paid: the payer may have signed lost bytes for each nonce below
	OtherPayments []string // where it was not paid: transactions that do the same, and paid something else
	By            string
	Reason        string
	At            time.Time
	Acted         bool // where it was not paid: it took effect, and cannot be withdrawn any more
}

// UnmarshalJSON reads a row of payout_statement.
func (s *PayoutStatement) UnmarshalJSON(raw []byte) error {
	var row struct {
		ID            int64
		OfConfirmed   bool `json:"of_confirmed"`
		Paid          bool
		TxHash        string `json:"tx_hash"`
		Refund        bool
		NoncesBelow   uint64   `json:"nonces_below"`
		OtherPayments []string `json:"other_payments"`
		By            string
		Reason        string
		At            time.Time
		ActedAt       *string `json:"acted_at"`
	}
	if err := json.Unmarshal(raw, &row); err != nil {
		return fmt.Errorf("read a statement: %w", err)
	}
	*s = PayoutStatement{row.ID, row.OfConfirmed, row.Paid, row.TxHash, row.Refund, row.NoncesBelow, row.OtherPayments, row.By, row.Reason, row.At, row.ActedAt != nil}
	return nil
}

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
	ErrPaymentFound = errors.New("a transaction of the payer that is on no record does what the payout wants: state that it paid, or name it as another's payment (otherPayments)")
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
	switch {
	case err != nil:
		return fmt.Errorf("record a statement about payout %s: %w", reqID, err)
	case tag.RowsAffected() == 0:
		return fmt.Errorf("record a statement about payout %s: %w", reqID, ErrStatementStands)
	}
	return nil
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
	switch {
	case err != nil:
		return fmt.Errorf("withdraw the statement about payout %s: %w", reqID, err)
	case tag.RowsAffected() == 0:
		return fmt.Errorf("withdraw the statement about payout %s: %w", reqID, ErrNoStatement)
	}
	return nil
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
select to_jsonb(n), n.acted_at, n.withdrawn_at, coalesce(n.withdrawn_by, ''), coalesce(n.withdraw_reason, ''),
       n.withdrawn_at is null and ` + ofThisChange + `
  from payout_statement n
 where n.req_id = $1
 order by n.id`

// PayoutStatements lists the operators' statements about a payout, the oldest first, and the
// hash of the transaction that proves it paid, or "".
func (s *Store) PayoutStatements(ctx context.Context, reqID string) (all []PastStatement, provedBy string, err error) {
	b := new(pgx.Batch)
	b.Queue(payoutStatements, reqID).Query(func(rows pgx.Rows) (err error) {
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (p PastStatement, err error) {
			err = row.Scan(&p.PayoutStatement, &p.ActedAt, &p.WithdrawnAt, &p.WithdrawnBy, &p.WithdrawReason, &p.Counts)
			return p, err
		})
		return err
	})
	b.Queue(`select coalesce((select tx_hash from payout_proof where req_id = $1), '')`, reqID).QueryRow(func(row pgx.Row) error { return row.Scan(&provedBy) })
	if err := s.send(ctx, b); err != nil {
		return nil, "", fmt.Errorf("read the statements about payout %s: %w", reqID, err)
	}
	return all, provedBy, nil
}

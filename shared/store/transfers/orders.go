package transfers

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/shared/transfer"
)

// cancel moves and records in one statement, so neither is there without the other.
const cancel = `
with hit as (
  update transfers_tb f
     set state = -10, error_message = 'CANCELLED', state_at = clock_timestamp(), updated_at = clock_timestamp()
   where req_id = $1 and state = 0 and (select is_authority()) and ` + untouched + `
  returning transfer_id
)
insert into transfer_resolution (transfer_id, op, by, reason)
select transfer_id, 'cancel', $2, $3 from hit`

// Cancel implements [transfer.Orders].
func (s *Store) Cancel(ctx context.Context, o transfer.Order) (transfer.Moved, error) {
	return s.moved(ctx, o.ReqID, cancel, o.ReqID, o.By, o.Reason)
}

const record = `
insert into transfer_resolution (transfer_id, op, by, reason)
select transfer_id, $2, $3, $4 from transfers_tb where req_id = $1
returning id`

// Record implements [transfer.Orders].
func (s *Store) Record(ctx context.Context, o transfer.Order, op transfer.Op) (number int64, err error) {
	if err := s.db.QueryRow(ctx, record, o.ReqID, op, o.By, o.Reason).Scan(&number); err != nil {
		return 0, fmt.Errorf("record %s of transfer %s: %w", op, o.ReqID, err)
	}
	return number, nil
}

const answer = `
update transfer_resolution
   set verdict = $2, verdict_reason = nullif($3, ''), answered_at = clock_timestamp()
 where id = $1 and answered_at is null`

// Answer implements [transfer.Orders]. An answer that is on record stays.
func (s *Store) Answer(ctx context.Context, number int64, o transfer.Outcome) error {
	if _, err := s.db.Exec(ctx, answer, number, o.Verdict.String(), string(o.Reason)); err != nil {
		return fmt.Errorf("record the answer to resolution %d: %w", number, err)
	}
	return nil
}

// Resolution is what an operator did about a transfer.
type Resolution struct {
	Op            string // cancel, or what a ledger was asked to resolve
	By            string
	Reason        string
	At            time.Time
	Verdict       string // SUCCESS, REFUSED or UNKNOWN; "": no answer on record, or a cancel
	VerdictReason string
	AnsweredAt    *time.Time
}

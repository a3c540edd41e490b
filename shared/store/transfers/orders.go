package transfers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/transfer"
)

// cancel moves and records in one statement, so that neither exists without the other.
const cancel = `
with hit as (
  update transfers_tb f
     set state = -10, error_message = 'CANCELLED', state_at = clock_timestamp(), updated_at = clock_timestamp()
   where req_id = $1 and state = 0 and (select is_accepted_database()) and ` + untouched + `
  returning transfer_id
)
insert into transfer_resolution (transfer_id, op, by, reason)
select transfer_id, 'cancel', $2, $3 from hit`

// Cancel implements [transfer.ActionStore].
func (s *Store) Cancel(ctx context.Context, o transfer.RequestedAction) (transfer.TransitionResult, error) {
	var m transfer.TransitionResult
	b := new(pgx.Batch)
	b.Queue("begin")
	b.Queue(cancel, o.ReqID, o.By, o.Reason).Exec(results.Any(&m.Done))
	b.Queue("commit")
	b.Queue(byReqID, o.ReqID).Query(results.Only(&m.Now, scanTransfer))
	if err := results.Missing(s.send(ctx, b), transfer.ErrNotFound); err != nil {
		return transfer.TransitionResult{}, fmt.Errorf("move transfer %s: %w", o.ReqID, err)
	}
	return m, nil
}

const record = `
insert into transfer_resolution (transfer_id, op, by, reason, outcome, line)
select transfer_id, $2, $3, $4, nullif($5, ''), nullif($6::numeric, 0) from transfers_tb where req_id = $1
returning id`

// Record implements [transfer.ActionStore]. It also carries out the context's proposal: no ledger is called for
// one that is not approved any more.
func (s *Store) Record(ctx context.Context, o transfer.RequestedAction, op transfer.Op) (number int64, err error) {
	outcome, line := "", "0"
	if o.Word != nil {
		outcome, line = o.Word.Outcome(), strconv.FormatUint(o.Word.Line, 10)
	}
	err = s.carrying(ctx, []any{&number}, record, o.ReqID, op, o.By, o.Reason, outcome, line)
	return number, results.Wrap(err, "record %s of transfer %s", op, o.ReqID)
}

const answer = `
update transfer_resolution
   set verdict = $2, verdict_reason = nullif($3, ''), answered_at = clock_timestamp()
 where id = $1 and answered_at is null`

// Answer implements [transfer.ActionStore]. A recorded answer stays.
func (s *Store) Answer(ctx context.Context, number int64, o transfer.Outcome) error {
	_, err := s.db.Exec(ctx, answer, number, o.Verdict.String(), string(o.Reason))
	return results.Wrap(err, "record the answer to resolution %d", number)
}

// Resolution is an operator's act about a transfer.
type Resolution struct {
	Op            string // cancel, or the operation that a ledger was asked to resolve
	By            string
	Reason        string
	At            time.Time
	Verdict       string // SUCCESS, REFUSED or UNKNOWN; "": no recorded answer, or a cancel
	VerdictReason string
	AnsweredAt    *time.Time
	Outcome       string // applied or not_applied, as the operator stated; "": no statement
	Line          string // of the ledger's journal, that proves it; "": none was named
}

// ErrNothingToAcknowledge reports a transfer whose money is not in flight. Nothing was recorded.
var ErrNothingToAcknowledge = errors.New("only a transfer in TARGET_PENDING or COMPENSATING can be acknowledged")

// ErrUntil reports a time in the past, or more than 30 days ahead. Nothing was recorded.
var ErrUntil = errors.New("until is not in the future, or more than 30 days ahead")

const acknowledge = `
insert into transfer_acknowledgement (transfer_id, state, by, reason, until)
select transfer_id, state, $2, $3, $4
  from transfers_tb
 where req_id = $1 and state in (30, -20) and $4 > clock_timestamp() and $4 <= clock_timestamp() + interval '30 days'`

// Acknowledge silences MON-001 and MON-002 for the transfer until a time of the database's clock, while
// it stays in its state. The error wraps [transfer.ErrNotFound], or is [ErrNothingToAcknowledge] or
// [ErrUntil].
func (s *Store) Acknowledge(ctx context.Context, o transfer.RequestedAction, until time.Time) error {
	var t transfer.Transfer
	var made bool
	b := new(pgx.Batch)
	b.Queue(acknowledge, o.ReqID, o.By, o.Reason, until).Exec(results.Any(&made))
	b.Queue(byReqID, o.ReqID).Query(results.Only(&t, scanTransfer))
	switch err := results.Missing(s.send(ctx, b), transfer.ErrNotFound); {
	case err != nil:
		return fmt.Errorf("acknowledge transfer %s: %w", o.ReqID, err)
	case !made && t.State != transfer.TargetPending && t.State != transfer.Compensating:
		return ErrNothingToAcknowledge
	case !made:
		return ErrUntil
	}
	return nil
}

// Acknowledgement is an operator's acknowledgement of an alert.
type Acknowledgement struct {
	State  transfer.State // in which it counts
	By     string
	Reason string
	At     time.Time
	Until  time.Time
}

// Transition is one line of a transfer's history. The first has no From.
type Transition struct {
	At         time.Time
	From       *transfer.State
	State      transfer.State
	Reason     transfer.Reason
	RetryCount int // at the time of the transition
}

// Story holds all records about a transfer, for operators.
type Story struct {
	Transfer    transfer.Transfer
	History     []Transition // in order
	Resolutions []Resolution // in order

	Acknowledged []Acknowledgement // in order: the newest counts
}

const history = `
select h.at, h.from_state, h.state, coalesce(h.reason, ''), h.retry_count
  from transfer_history h
 where h.transfer_id = (select transfer_id from transfers_tb where req_id = $1)
 order by h.id`

const resolutions = `
select r.op, r.by, r.reason, r.at, coalesce(r.verdict, ''), coalesce(r.verdict_reason, ''), r.answered_at,
       coalesce(r.outcome, ''), coalesce(r.line::text, '')
  from transfer_resolution r
 where r.transfer_id = (select transfer_id from transfers_tb where req_id = $1)
 order by r.id`

const acknowledgements = `
select k.state, k.by, k.reason, k.at, k.until
  from transfer_acknowledgement k
 where k.transfer_id = (select transfer_id from transfers_tb where req_id = $1)
 order by k.id`

// Why returns the records about the transfer, in one round trip. The error wraps [transfer.ErrNotFound]
// if there is none.
func (s *Store) Why(ctx context.Context, reqID string) (Story, error) {
	var story Story
	b := new(pgx.Batch)
	b.Queue(history, reqID).Query(results.Into(&story.History, pgx.RowToStructByPos[Transition]))
	b.Queue(resolutions, reqID).Query(results.Into(&story.Resolutions, pgx.RowToStructByPos[Resolution]))
	b.Queue(acknowledgements, reqID).Query(results.Into(&story.Acknowledged, pgx.RowToStructByPos[Acknowledgement]))
	b.Queue(byReqID, reqID).Query(results.Only(&story.Transfer, scanTransfer))
	err := s.send(ctx, b)
	return story, results.Wrap(results.Missing(err, transfer.ErrNotFound), "read the history of transfer %s", reqID)
}

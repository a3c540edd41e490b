package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Decision is an operator's or caller's decision about a transaction.
type Decision struct {
	TxID   string
	By     Viewer // who; a caller decides about its own transactions, an operator about any
	Action txmanager.Action
	Reason string
}

// DecisionResult is the stored state after a decision.
type DecisionResult struct {
	Submitter       txmanager.Submitter
	State           txmanager.State
	SubState        txmanager.SubState
	RequestedAction txmanager.Action // requested action, carried out by the lease holder
	Token           int64            // in force after the commit
	Recorded        bool             // the decision was new
	Trace           []byte           // of the transaction's request, a [telemetry.Origin]; nil: not traced
	Stated          bool             // it ended on an operator's statement that it was carried out, without a receipt
}

// ErrTooLate reports a decision about a terminal transaction, or about a queued one unless it
// is [txmanager.ActionCancel]. Nothing was recorded.
var ErrTooLate = errors.New("there is nothing to decide about the transaction in its state")

// order is a compare-and-set and takes no lease. A queued transaction is cancelled at once, or
// held if its submitter is in PROTECT. A transaction with a nonce gets a requested action for
// the lease holder, unless it has one.
//
// A cancelled payout is refunded. So only the coordinator may cancel one; its cancel also
// replaces a requested send, since no other process would ask again. Until then no
// operator may send a placeholder for it. A queued payout waits while its payer is in PROTECT,
// since it may have run unknown to this database. It also waits while it is held beside a
// foreign transaction. A payout that the restored copy had in its queue is cancelled, and its
// transfer stays in doubt: see [Payout.InDoubt].
var order = `
with hit as (
  update managed_tx
     set requested_action = case when state = 'QUEUED' then null else $4 end,
         last_error = case when ` + parks + ` then 'held: its cancel is decided once an operator has released the submitter from PROTECT: cancel it again then'
                           when state = 'QUEUED' then 'cancelled: ' || $5 else last_error end,
         wait_cause = case when state <> 'QUEUED' and wait_cause <> 'OPERATOR' then wait_cause end,
         waiting_since = case when state <> 'QUEUED' and wait_cause <> 'OPERATOR' then waiting_since end,
         next_check_at = case when state = 'QUEUED' then null else next_check_at end,
         sub_state = case when state = 'QUEUED' and not ` + parks + ` then 'CANCELLED' else sub_state end,
         held = held or ` + parks + `,
         state = case when state = 'QUEUED' and not ` + parks + ` then 'FAILED' else state end,
         event_sequence = event_sequence + (state = 'QUEUED' and not ` + parks + `)::int,
         updated_at = clock_timestamp()
   where tx_id = $1 and (` + Owned("managed_tx", "$6::text[]") + ` or $3) and (is_accepted_database() or $3)
     and (state in ` + unsettledStates + ` or (state = 'QUEUED' and $4 = 'CANCEL' and ` + cancellable + `))
     and (tx_hash is not null or $4 not in ('REBROADCAST', 'REPLACE'))
     and (handler is null and reservation is null or $4 <> 'REPLACE')
     and (recorded_nonce is null or $4 not in ('REPLACE', 'REBROADCAST'))
     and (requested_action is null or requested_action <> $4)
     and ($4 <> 'CANCEL' or requested_action is null or $2 = '` + PayoutCaller + `' and requested_action in ('REBROADCAST', 'REPLACE'))
     and (caller <> '` + PayoutCaller + `' or ` + coordinates + ` and (state <> 'QUEUED' or not ` + payerInDoubt + `))
  returning tx_id
)
insert into tx_decision (tx_id, action, by, reason, operator)
select tx_id, $4, $2, $5, case when $3 then true end from hit`

const (
	// A held intent may have run. That is unknown until an operator decides about its foreign
	// transaction, or, for a restored queue, until the release from PROTECT. A caller who
	// cancels it is asked to retry, because CANCELLED would claim that it never ran. An
	// operator knows the cancels made after the backup.
	//
	// A queued intent may have run too while the submitter is in PROTECT: after a restore, or
	// by hand. A caller's cancel parks it: it is held, and no release lets it proceed.
	parks       = `(state = 'QUEUED' and not held and not $3 and ` + payerInDoubt + `)`
	cancellable = `(not held or held_for is null and ($3 or not ` + payerInDoubt + `))`
	coordinates = `(requested_action is distinct from 'CANCEL' or $4 not in ('REBROADCAST', 'REPLACE')) and ($2 = '` + PayoutCaller + `' or $4 not in ('CANCEL', 'PLACEHOLDER')
         or $4 = 'PLACEHOLDER' and exists (select from tx_decision d where d.tx_id = $1 and d.by = '` + PayoutCaller + `' and d.action = 'CANCEL'))`
	payerInDoubt = `exists (select from protect_incident e where e.submitter = managed_tx.submitter and e.closed_at is null)`
)

// recordDecision stores a decision that requests no action.
var recordDecision = `
insert into tx_decision (tx_id, action, by, reason, operator)
select tx_id, $4, $2, $5, case when $3 then true end
  from managed_tx m
 where tx_id = $1 and (` + Owned("m", "$6::text[]") + ` or $3) and state in ` + unsettledStates

var findDecided = `
select m.submitter, m.state, coalesce(m.sub_state, ''), coalesce(m.requested_action, ''), coalesce(l.fencing_token, 0),
       is_accepted_database() or $3, m.caller = '` + PayoutCaller + `' and $2 <> '` + PayoutCaller + `', m.trace,
       coalesce(m.sub_state = 'RECORDED', false) and m.receipt is null, coalesce(l.name_epoch, '')
  from managed_tx m
  left join submitter_lease l on l.submitter = m.submitter
 where m.tx_id = $1 and (` + Owned("m", "$4::text[]") + ` or $3 or ` + recordedFor("m", "$4::text[]") + `)`

// ErrCoordinators reports an action on a payout that only the transfer coordinator may request. It
// is a cancel, a placeholder before its cancel, or an action that sends it while its cancel waits.
// Nothing was changed.
var ErrCoordinators = errors.New("the payout is the transfer coordinator's to cancel")

// isCoordinatorsAction is true if the action was not recorded because the payout is the
// coordinator's.
func (d DecisionResult) isCoordinatorsAction(action txmanager.Action) bool {
	switch {
	case d.State.Terminal(), d.RequestedAction == action:
		return false
	case action == txmanager.ActionRebroadcast, action == txmanager.ActionReplace:
		return d.RequestedAction == txmanager.ActionCancel
	}
	return action == txmanager.ActionCancel || action == txmanager.ActionPlaceholder
}

// RecordDecision records the decision and the requested action in one round trip, and returns
// the stored state. The same action again changes nothing. The error is [ErrNotFound] if there
// is no such transaction, or if By may not decide about it. It wraps [ErrInDoubt] for a caller
// of a restored database, [ErrCoordinators], or [ErrTooLate] if nothing can be decided any
// more. A cancel never gets [ErrTooLate]; its result may show that the transaction had ended.
func (s *Store) RecordDecision(ctx context.Context, d Decision) (DecisionResult, error) {
	var out DecisionResult
	statement := order
	if d.Action == txmanager.ActionWait {
		statement = recordDecision
	}
	var believed, payout bool
	b := new(pgx.Batch)
	b.Queue("begin")
	b.Queue(statement, d.TxID, d.By.Caller, d.By.Operator, d.Action, d.Reason, d.By.AllNames()).Exec(results.Any(&out.Recorded))
	b.Queue("commit")
	b.Queue(findDecided, d.TxID, d.By.Caller, d.By.Operator, d.By.AllNames()).QueryRow(results.Scan(&out.Submitter, &out.State, &out.SubState, &out.RequestedAction, &out.Token, &believed, &payout, &out.Trace, &out.Stated, s.nameEpochOf(&out.Submitter)))
	switch err := s.send(ctx, b); {
	case errors.Is(err, pgx.ErrNoRows):
		return out, ErrNotFound
	case err != nil:
		return out, fmt.Errorf("decide about %s: %w", d.TxID, err)
	case !believed: // what ran after the backup was made is not known here
		return out, fmt.Errorf("decide about %s: %w", d.TxID, ErrInDoubt)
	case !out.Recorded && payout && out.isCoordinatorsAction(d.Action):
		return out, fmt.Errorf("%s of %s: %w", d.Action, d.TxID, ErrCoordinators)
	case !out.Recorded && d.Action != txmanager.ActionCancel && out.RequestedAction != d.Action:
		return out, fmt.Errorf("%s: %w", out.State, ErrTooLate)
	}
	return out, nil
}

// QueueCancel is an operator's cancellation of a submitter's queued intents.
type QueueCancel struct {
	Submitter txmanager.Submitter
	Caller    string // only intents stored under this full name; "": those of every caller
	By        string
	Reason    string
	Limit     int // of intents
}

// QueueCancelResult has the counts of one call and of what remains.
type QueueCancelResult struct {
	Cancelled int   // by this call
	Remaining int   // in the queue still: call again
	Bound     int   // have a nonce, and are not touched
	Payouts   int   // in the queue, and their transfers' to decide about
	Beside    int   // held for foreign transactions, and decided about by them
	Token     int64 // in force after the commit
}

// askedFor is true of m if it belongs to submitter $1 and is stored under one of the names $2;
// null is any name.
const askedFor = `m.submitter = $1 and ($2::text[] is null or m.caller = any($2::text[]))`

// cancelQueued does to many intents what [order] does to one when an operator cancels it.
const cancelQueued = `
with page as (
  select m.tx_id
    from managed_tx m
   where ` + askedFor + ` and m.queued and m.caller <> '` + PayoutCaller + `' and m.held_for is null
   order by m.seq
   limit $3
     for update
), hit as (
  update managed_tx m
     set state = 'FAILED', sub_state = 'CANCELLED', requested_action = null, last_error = 'cancelled: ' || $5, ` + waitOver + `next_check_at = null,
         event_sequence = event_sequence + 1, updated_at = clock_timestamp()
    from page
   where m.tx_id = page.tx_id
  returning m.tx_id
)
insert into tx_decision (tx_id, action, by, reason, operator)
select tx_id, 'CANCEL', $4, $5, true from hit`

const countAskedFor = `
select s.fencing_token, s.name_epoch,
       (select count(*) from managed_tx m where ` + askedFor + ` and m.queued and m.caller <> '` + PayoutCaller + `' and m.held_for is null),
       (select count(*) from managed_tx m where ` + askedFor + ` and m.open),
       (select count(*) from managed_tx m where ` + askedFor + ` and m.queued and m.caller = '` + PayoutCaller + `'),
       (select count(*) from managed_tx m where ` + askedFor + ` and m.queued and m.caller <> '` + PayoutCaller + `' and m.held_for is not null)
  from (select coalesce(l.fencing_token, 0) as fencing_token, coalesce(l.name_epoch, '') as name_epoch
          from submitter left join submitter_lease l using (submitter) where submitter = $1) as s`

// CancelQueue cancels up to a limit of intents without a nonce, the oldest first, and records
// each decision. A further call continues where it stopped. Like an operator's cancel of one
// intent, it also works while the submitter is suspended or in PROTECT, and never cancels a
// payout. The error wraps [ErrUnknownSubmitter].
func (s *Store) CancelQueue(ctx context.Context, c QueueCancel) (out QueueCancelResult, err error) {
	var of []string
	if c.Caller != "" {
		of = Spellings(c.Caller)
	}
	b := new(pgx.Batch)
	b.Queue("begin")
	b.Queue(cancelQueued, c.Submitter, of, c.Limit, c.By, PrintableText(c.Reason)).Exec(results.Count(&out.Cancelled))
	b.Queue("commit")
	b.Queue(countAskedFor, c.Submitter, of).QueryRow(results.Scan(&out.Token, s.nameEpochOf(&c.Submitter), &out.Remaining, &out.Bound, &out.Payouts, &out.Beside))
	err = s.send(ctx, b)
	return out, results.Wrap(results.Missing(err, ErrUnknownSubmitter), "cancel the queue of %s", c.Submitter)
}

package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/shared/txmanager"
)

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
     set state = 'FAILED', sub_state = 'CANCELLED', requested_action = null, last_error = 'cancelled: ' || $5, next_check_at = null,
         event_sequence = event_sequence + 1, updated_at = clock_timestamp()
    from page
   where m.tx_id = page.tx_id
  returning m.tx_id
)
insert into tx_decision (tx_id, action, by, reason)
select tx_id, 'CANCEL', $4, $5 from hit`

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
	var names string
	b := new(pgx.Batch)
	b.Queue("begin")
	b.Queue(cancelQueued, c.Submitter, of, c.Limit, c.By, PrintableText(c.Reason)).Exec(func(tag pgconn.CommandTag) error {
		out.Cancelled = int(tag.RowsAffected())
		return nil
	})
	b.Queue("commit")
	b.Queue(countAskedFor, c.Submitter, of).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&out.Token, &names, &out.Remaining, &out.Bound, &out.Payouts, &out.Beside)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrUnknownSubmitter
		}
		return err
	})
	if err := s.send(ctx, b); err != nil {
		return out, fmt.Errorf("cancel the queue of %s: %w", c.Submitter, err)
	}
	s.names.note(c.Submitter, names)
	return out, nil
}

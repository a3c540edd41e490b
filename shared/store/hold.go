package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// waits is true of a queued m that may get a nonce. A held intent may not: reads of the queue
// skip it.
const waits = `m.queued and not m.held`

// queueing is the recursive CTE "waiting": each submitter with queued intents that satisfy a further condition, by one
// step of the index each.
func queueing(condition string) string {
	return `waiting as (
  (select min(submitter::text) as submitter from managed_tx where queued` + condition + `)
  union all
  select (select min(q.submitter::text) from managed_tx q where q.queued` + condition + ` and q.submitter > w.submitter)
    from waiting w
   where w.submitter is not null
)`
}

// shownSubState is the sub-state of m as callers see it.
const shownSubState = `case when m.held and m.queued then 'HELD' else m.sub_state end`

// heldByRestore is the text that a caller and an operator read for an intent that was in the
// queue of a restored database. A decision after the backup, such as a cancel, is not in the
// copy.
const heldByRestore = `held: the database was restored from a backup, and what was decided after the backup is not known; ` +
	`post the same request again to have it carried out, or cancel it; an operator may let it proceed`

// holdPage is how many intents one statement holds.
const holdPage = 1000

// holdRest is the limit of the statement in the acceptance's transaction: it holds all that
// the pages have left.
const holdRest = 1 << 30

// holdQueued holds queued intents of a database that was not accepted, for up to $2
// intents of submitters from $1 on. It returns the last of these submitters.
const holdQueued = `
with page as (
  select m.tx_id, m.submitter
    from managed_tx m
   where ` + waits + ` and m.submitter >= $1 and not is_accepted_database()
   order by m.submitter, m.seq
   limit $2
     for update
), kept as (
  update managed_tx m
     set held = true, deferred_until_nonce = null, next_check_at = null, last_error = '` + heldByRestore + `', ` + waitOver + `updated_at = clock_timestamp()
    from page
   where m.tx_id = page.tx_id
  returning m.submitter
)
select count(*), coalesce(max(submitter), '') from kept`

// holdAllQueued holds the queues of a database that was not accepted page by page, each
// page in a separate transaction. If it is interrupted, it may be called again.
func (s *Store) holdAllQueued(ctx context.Context) error {
	for after, n := "", holdPage; n == holdPage; {
		if err := s.db.QueryRow(ctx, holdQueued, after, holdPage).Scan(&n, &after); err != nil {
			return fmt.Errorf("hold the queue: %w", err)
		}
	}
	return nil
}

// Proceeded is the stored state of an intent after it was allowed to proceed.
type Proceeded struct {
	Submitter txmanager.Submitter
	State     txmanager.State
	SubState  txmanager.SubState
	Token     int64  // in force after the commit
	Recorded  bool   // this call let it go on
	Trace     []byte // of the intent's request, a [telemetry.Origin]; nil: not traced
}

// ErrNotHeld reports an intent that is not held, and that neither an operator nor a caller has
// allowed to proceed. Nothing was changed.
var ErrNotHeld = errors.New("the transaction is not held")

// These statements put held intents back into the queue at their old place, and record who did
// it and why ($1, $2). A payout proceeds only by the rules of its transfer. An intent that is
// held beside a foreign transaction proceeds by an operator's decision about that one: see
// [Store.WriteOff]. If its call is unknown, an operator may also let the single intent
// proceed. No intent proceeds before the database is accepted.
var (
	proceedBegin = `
with gone as (
  update managed_tx m
     set held = false, held_for = null, last_error = null, updated_at = clock_timestamp()
   where m.state = 'QUEUED' and m.held and m.caller <> '` + PayoutCaller + `' and is_accepted_database() and `
	proceedEnd = `
  returning m.tx_id
)
insert into tx_decision (tx_id, action, by, reason`
	proceedByOperator = proceedEnd + `, operator)
select tx_id, 'PROCEED', $1, $2, true from gone
returning tx_id::text`
	proceedByCaller = proceedEnd + `)
select tx_id, 'PROCEED', $1, $2 from gone
returning tx_id::text`

	proceedOne      = proceedBegin + `m.tx_id = $3 and m.held_for is distinct from 'CALL'` + proceedByOperator
	proceedRepeated = proceedBegin + `m.tx_id = any($3::uuid[]) and ` + Owned("m", "$4::text::text[]") + ` and m.held_for is null` + proceedByCaller
	proceedOldest   = proceedBegin + `m.tx_id in (
         select o.tx_id from managed_tx o
          where o.submitter = $3 and o.queued and o.held and o.held_for is null and o.caller <> '` + PayoutCaller + `'
            and o.seq <= (select t.seq from managed_tx t where t.tx_id = $5 and t.submitter = $3) and not ` + parked + `
          order by o.seq
          limit $4)` + proceedByOperator
)

// parked is true of a held o whose caller cancelled it and has neither posted it again nor had
// it let proceed since.
const parked = `exists (select from tx_decision d
                 where d.tx_id = o.tx_id and d.action = 'CANCEL' and not exists (select from tx_decision p where p.tx_id = o.tx_id and p.action = 'PROCEED' and p.id > d.id))`

// proceedPayout lets a payout of the restored queue proceed once statement $1, that it was not
// paid and is to be paid, has taken effect. A payout that is to be refunded stays held and is
// cancelled.
const proceedPayout = `
update managed_tx m
   set held = false, last_error = null, updated_at = clock_timestamp()
  from payout_statement n
 where n.id = $1 and n.acted_at is not null and not n.refund and n.req_id = $3
   and m.request_id = n.req_id and m.submitter is not distinct from $2 and m.caller = '` + PayoutCaller + `'
   and m.state = 'QUEUED' and m.held and m.held_for is null`

const findProceeded = `
select m.submitter, m.state, coalesce(` + shownSubState + `, ''), coalesce(l.fencing_token, 0), is_accepted_database(), m.held and m.queued, coalesce(m.held_for = 'CALL', false),
       m.caller = '` + PayoutCaller + `', exists (select from tx_decision d where d.tx_id = m.tx_id and d.action = 'PROCEED'), m.trace, coalesce(l.name_epoch, '')
  from managed_tx m
  left join submitter_lease l on l.submitter = m.submitter
 where m.tx_id = $1`

// Proceed lets one held intent proceed, by an operator's decision. A repeated call changes
// nothing. The error is [ErrNotFound], or wraps [ErrForeign], [ErrCoordinators] (it is a
// payout) or [ErrNotHeld].
func (s *Store) Proceed(ctx context.Context, txID, by, reason string) (p Proceeded, err error) {
	var ours, held, beside, payout, before bool
	b := new(pgx.Batch)
	b.Queue("begin")
	queueCarryOut(ctx, b)
	b.Queue(proceedOne, by, PrintableText(reason), txID).Exec(results.Any(&p.Recorded))
	b.Queue("commit")
	b.Queue(findProceeded, txID).QueryRow(results.Scan(&p.Submitter, &p.State, &p.SubState, &p.Token, &ours, &held, &beside, &payout, &before, &p.Trace, s.nameEpochOf(&p.Submitter)))
	switch err = s.send(ctx, b); {
	case errors.Is(err, pgx.ErrNoRows):
		return p, ErrNotFound
	case err != nil:
	case !ours:
		err = ErrForeign
	case held && beside:
		err = ErrHeldForForeign
	case held && payout:
		err = ErrCoordinators
	case !before:
		err = fmt.Errorf("%s: %w", p.State, ErrNotHeld)
	}
	return p, results.Wrap(err, "let %s proceed", txID)
}

// ErrHeldForForeign reports an intent that is held for a foreign transaction. An operator must decide
// about that one. Nothing was changed.
var ErrHeldForForeign = errors.New("the transaction is held for a foreign transaction")

// ErrForeign reports that the database is not the one written last, and that no
// operator has accepted it. Nothing was changed.
var ErrForeign = errors.New("the database is not the one written last")

// ProceededAll has the counts of one [Store.ProceedAll] and of what remains.
type ProceededAll struct {
	Proceeded int   // let go on by this call
	Remaining int   // of those that were meant, still held; call again
	Newer     int   // held, and not meant
	Cancelled int   // held, and their callers want them cancelled: each is decided about by itself
	Payouts   int   // held, and to be decided about by their transfers
	Beside    int   // held for foreign transactions, and to be decided about by them
	Token     int64 // in force after the commit
}

const findHeld = `
select coalesce(l.fencing_token, 0), is_accepted_database(), t.seq is not null, h.meant, h.newer, h.parked, h.payouts, h.beside, coalesce(l.name_epoch, '')
  from submitter s
  left join submitter_lease l using (submitter)
  left join managed_tx t on t.tx_id = $2 and t.submitter = s.submitter,
       lateral (select count(*) filter (where k.other and not k.parked and o.seq <= t.seq) as meant, count(*) filter (where k.other and not k.parked and o.seq > t.seq) as newer,
                       count(*) filter (where k.other and k.parked) as parked,
                       count(*) filter (where o.held_for is null and not k.other) as payouts, count(o.held_for) as beside
                  from managed_tx o, lateral (select o.held_for is null and o.caller <> '` + PayoutCaller + `' as other, ` + parked + ` as parked offset 0) as k
                 where o.submitter = s.submitter and o.queued and o.held) as h
 where s.submitter = $1`

// ErrNoSuchIntent reports a bound that names no intent of the submitter. Nothing was changed.
var ErrNoSuchIntent = errors.New("the submitter has no such intent")

// ProceedAll lets up to limit held intents of the submitter proceed, by an operator's
// decision, the oldest first. Intents stored after the one named by through stay held, because
// the operator has not seen them. Each is recorded. A further call continues with the rest.
// The error wraps [ErrUnknownSubmitter], [ErrForeign] or [ErrNoSuchIntent].
func (s *Store) ProceedAll(ctx context.Context, sub txmanager.Submitter, through, by, reason string, limit int) (all ProceededAll, err error) {
	var ours, known bool
	b := new(pgx.Batch)
	b.Queue("begin")
	queueCarryOut(ctx, b)
	b.Queue(proceedOldest, by, PrintableText(reason), sub, limit, through).Exec(results.Count(&all.Proceeded))
	b.Queue("commit")
	b.Queue(findHeld, sub, through).QueryRow(results.Scan(&all.Token, &ours, &known, &all.Remaining, &all.Newer, &all.Cancelled, &all.Payouts, &all.Beside, s.nameEpochOf(&sub)))
	switch err = s.send(ctx, b); {
	case errors.Is(err, pgx.ErrNoRows):
		return all, fmt.Errorf("%s: %w", sub, ErrUnknownSubmitter)
	case err == nil && !ours:
		err = ErrForeign
	case err == nil && !known:
		return all, fmt.Errorf("release the held intents of %s up to %s: %w", sub, through, ErrNoSuchIntent)
	}
	return all, results.Wrap(err, "release the held intents of %s", sub)
}

// repeated is the recorded reason if a caller's own post let an intent proceed.
const repeated = "its caller posted the request again"

// proceedRepeats lets the held intents proceed that their caller has posted again, and updates
// created.
func (s *Store) proceedRepeats(ctx context.Context, all []Intent, found []foundIntent, created []Created) error {
	type whose struct{ caller, names string }
	ids := make(map[whose][]string)
	for i, in := range all {
		if found[i].held && created[i].Err == nil && !created[i].New {
			by := whose{in.Caller, arrayText(namesOf(in.Caller, in.Names))}
			ids[by] = append(ids[by], found[i].txID)
		}
	}
	for by, of := range ids {
		gone, err := results.All(ctx, s.db, pgx.RowTo[string], proceedRepeated, by.caller, repeated, of, by.names)
		if err != nil {
			return fmt.Errorf("release the intents that %s posted again: %w", by.caller, err)
		}
		for i := range created {
			created[i].Queued = created[i].Queued || slices.Contains(gone, created[i].TxID)
		}
	}
	return nil
}

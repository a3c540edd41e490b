package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

var _ mark.Moves = (*Store)(nil)

// IsMoving reports whether the database refused a write because it is about to be moved to
// another server. Nothing was stored.
func IsMoving(err error) bool { return results.Refusal(err).Code == movingCode }

// lockWrites waits until every transaction that has written has ended, and blocks other writes
// until the commit. Each writer then checks whether a move is expected.
const lockWrites = `
lock table submitter_lease, submitter_nonce_cursor, managed_tx, tx_version, tx_decision, transfers_tb, transfer_operations, balances_tb,
           submitter, submitter_policy, submitter_change, payout_statement, payout_confirmed, payout_proof,
           transfer_resolution, transfer_halt, payout_address, payout_address_block, foreign_hold, event_counter, conservation_adjustment, database_mark
        in share row exclusive mode`

const allowMove = `select set_config('fencepost.move', 'on', true)`

// expectMove records the move under a new mark, or gives the open move a new mark, and adds
// who did so and why. If the open move has mark $3 it changes nothing.
const expectMove = `
insert into database_move as v (mark, from_system, from_timeline, by, reason)
select replace(gen_random_uuid()::text, '-', ''), a.system_identifier, a.timeline_id, $1, $2
  from database_identity a
 where is_accepted_database()
    on conflict ((ended_at is null)) where ended_at is null do update
   set mark = case when v.mark = $3 then v.mark else excluded.mark end,
       by = case when v.mark = $3 or right(', ' || v.by, length(', ' || excluded.by)) = ', ' || excluded.by then v.by else v.by || ', ' || excluded.by end,
       reason = case when v.mark = $3 or right(', ' || v.by, length(', ' || excluded.by)) = ', ' || excluded.by then v.reason
                     else v.reason || '; ' || excluded.by || ': ' || excluded.reason end
returning id, mark, mark = $3`

// These statements write a mark that belongs to a move. endMark writes none if the move has ended.
var (
	markMove = asMark(`values ($1, $2, $3)`)
	endMark  = asMark(`select replace(gen_random_uuid()::text, '-', ''), $2, $3 from database_move where id = $1 and ended_at is null`)
)

func moveReason(what string, id int64) string { return what + " " + strconv.FormatInt(id, 10) }

// Expect implements [mark.Moves]. The error wraps [mark.ErrForeign] where the database
// is not the accepted database.
func (s *Store) Expect(ctx context.Context, current mark.Observed, said mark.OperatorReason) (m mark.Mark, done bool, err error) {
	for range expectAttempts {
		m, done, err = s.expect(ctx, current, said)
		if results.Refusal(err).Code != deadlockCode {
			break
		}
	}
	return m, done, err
}

// expectAttempts is the largest number of attempts to lock for a move. Other transactions take
// these locks in other orders, and Postgres ends one of two that deadlock.
const (
	expectAttempts = 10
	deadlockCode   = "40P01"
)

func (s *Store) expect(ctx context.Context, current mark.Observed, said mark.OperatorReason) (m mark.Mark, done bool, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		for _, before := range []string{allowMove, lockWrites} {
			if _, err := tx.Exec(ctx, before); err != nil {
				return err
			}
		}
		var id int64
		err := tx.QueryRow(ctx, expectMove, said.By, said.Reason, current.ID).Scan(&id, &m.ID, &done)
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("no operator has accepted it: %w", mark.ErrForeign)
		}
		if err != nil || done {
			m = current.Mark
			return err
		}
		m, err = scanMark(tx.QueryRow(ctx, markMove, m.ID, current.Generation, moveReason("expect-move", id)))
		return err
	})
	if err != nil {
		return mark.Mark{}, false, fmt.Errorf("expect a move of the database: %w", err)
	}
	return m, done, nil
}

const expectedMove = `
select v.id, v.mark,
       s.system_identifier <> v.from_system or current_timeline() <> v.from_timeline,
       a.system_identifier = v.from_system and a.timeline_id = v.from_timeline
  from database_move v, database_identity a, pg_control_system() s
 where v.ended_at is null`

// Expected implements [mark.Moves].
func (s *Store) Expected(ctx context.Context) (m mark.Move, err error) {
	err = s.db.QueryRow(ctx, expectedMove).Scan(&m.ID, &m.Mark, &m.Moved, &m.Left)
	if errors.Is(err, pgx.ErrNoRows) {
		return m, mark.ErrNoMove
	} else if err != nil {
		return m, fmt.Errorf("read the move that is expected: %w", err)
	}
	return m, nil
}

// PrepareEnd implements [mark.Moves]. A confirmation that cannot be carried out writes no
// mark: the error may wrap [ErrNumbersAhead].
func (s *Store) PrepareEnd(ctx context.Context, m mark.Move, over int64, w mark.MoveEnd) (next mark.Mark, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if w == mark.Confirms {
			if err := countsOn(ctx, tx); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, allowMove); err != nil {
			return err
		}
		next, err = scanMark(tx.QueryRow(ctx, endMark, m.ID, over, moveReason(string(w), m.ID)))
		return results.Missing(err, mark.ErrNoMove)
	})
	if err != nil {
		return mark.Mark{}, fmt.Errorf("prepare the mark that ends the move: %w", err)
	}
	return next, nil
}

// countsOn refuses a cluster that has not reached the journals' transaction numbers.
func countsOn(ctx context.Context, tx pgx.Tx) error {
	var last *string
	if err := tx.QueryRow(ctx, ahead).Scan(&last); err != nil {
		return err
	}
	if last != nil {
		return fmt.Errorf("rows of transaction %s: %w", *last, ErrNumbersAhead)
	}
	return nil
}

// Ends implements [mark.Moves].
func (s *Store) Ends(ctx context.Context, m mark.Move, id string) (way mark.MoveEnd, err error) {
	err = s.db.QueryRow(ctx, `
select coalesce((select r.way from database_mark k join unnest($2::text[], $3::text[]) as r (way, reason) on r.reason = k.reason where k.id = $1), '')`,
		id, []string{string(mark.Confirms), string(mark.Cancels)},
		[]string{moveReason(string(mark.Confirms), m.ID), moveReason(string(mark.Cancels), m.ID)}).Scan(&way)
	return way, results.Wrap(err, "read how the move ends")
}

// confirmMove adds no row to identity_change: nothing was lost, so no payout is in doubt, no
// intent is held and no transfer is halted.
const confirmMove = `
with accepted as (
  update database_identity a
     set system_identifier = s.system_identifier, timeline_id = current_timeline(),
         epoch = left(md5(gen_random_uuid()::text), 8), accepted_at = clock_timestamp(), accepted_by = $2
    from pg_control_system() s, database_move v
   where v.id = $1 and v.ended_at is null
     and a.system_identifier = v.from_system and a.timeline_id = v.from_timeline
  returning a.system_identifier, a.timeline_id
)
update database_move v
   set outcome = 'CONFIRMED', ended_at = clock_timestamp(), ended_by = $2, ended_reason = $3,
       to_system = a.system_identifier, to_timeline = a.timeline_id,
       after_change = (select coalesce(max(id), 0) from identity_change)
  from accepted a
 where v.id = $1`

// Confirm implements [mark.Moves].
func (s *Store) Confirm(ctx context.Context, m mark.Move, said mark.OperatorReason) error {
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if err := countsOn(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, protectAll); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, confirmMove, m.ID, said.By, said.Reason)
		if err == nil && tag.RowsAffected() != 1 {
			return mark.ErrNotLeft
		}
		return err
	})
	return results.Wrap(err, "confirm the move")
}

// Cancel implements [mark.Moves].
func (s *Store) Cancel(ctx context.Context, m mark.Move, said mark.OperatorReason) error {
	_, err := s.db.Exec(ctx, `
update database_move
   set outcome = 'CANCELLED', ended_at = clock_timestamp(), ended_by = $2, ended_reason = $3
 where id = $1 and ended_at is null`, m.ID, said.By, said.Reason)
	return results.Wrap(err, "cancel the move")
}

// EndedMove is the outcome of the last move: CONFIRMED, CANCELLED, or "" if there was none or
// one is open.
func (s *Store) EndedMove(ctx context.Context) (outcome string, err error) {
	err = s.db.QueryRow(ctx, `select coalesce((select outcome from database_move order by id desc limit 1), '')`).Scan(&outcome)
	return outcome, results.Wrap(err, "read the last move")
}

// ErrNotPlanned reports that the last change of the database's identity was no confirmed move: the
// database may lack committed rows. Nothing was changed.
var ErrNotPlanned = errors.New("the last change of the database's identity was not a planned move that was confirmed")

// lastIsMove is true if only confirmed moves have changed the authority since v was expected.
const lastIsMove = `v.outcome = 'CONFIRMED' and v.after_change = (select coalesce(max(id), 0) from identity_change)`

const byMove = `
  from protect_incident p
 where p.closed_at is null and exists (
       select from database_move v
        where ` + lastIsMove + ` and p.opened_at >= v.at
          and p.evidence ->> 'expectedSystem' = v.from_system::text and p.evidence ->> 'expectedTimeline' = v.from_timeline::text)`

// MovedSubmitter is a submitter in PROTECT because of a planned move.
type MovedSubmitter struct {
	Submitter txmanager.Submitter
	Incident  int
}

// Moved lists up to limit submitters after the one named that are in PROTECT because of a
// planned move, in order. The error wraps [ErrNotPlanned].
func (s *Store) Moved(ctx context.Context, after txmanager.Submitter, limit int) ([]MovedSubmitter, error) {
	planned := subject{`select is_accepted_database() and exists (select from database_move v, database_identity a
        where ` + lastIsMove + ` and v.to_system = a.system_identifier and v.to_timeline = a.timeline_id)`, nil, ErrNotPlanned}
	return rowsOf[MovedSubmitter](ctx, s, "find submitters that a planned move put into PROTECT", planned,
		`select p.submitter, p.incident`+byMove+` and p.submitter > $1 order by p.submitter limit $2`, after, limit)
}

// CountMoved is the number of submitters in PROTECT because of a planned move.
func (s *Store) CountMoved(ctx context.Context) (n int, err error) {
	err = s.db.QueryRow(ctx, `select count(*)`+byMove).Scan(&n)
	return n, results.Wrap(err, "count submitters that a planned move put into PROTECT")
}

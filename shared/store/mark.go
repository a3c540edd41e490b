package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/store/internal/results"
)

var _ mark.Store = (*Store)(nil)

const findMark = `
select exists (select from database_mark where id = $1), exists (select from database_mark where id = $1 and generation = $2),
       coalesce((select max(generation) from database_mark), 0)`

// Evaluate implements [mark.Store]. A mark that was seen before costs one round trip.
func (s *Store) Evaluate(ctx context.Context, seen mark.Observed) (mark.Verdict, error) {
	var held, known bool
	var latest int64
	err := s.db.QueryRow(ctx, findMark, seen.ID, seen.Generation).Scan(&held, &known, &latest)
	switch {
	case err != nil:
		return 0, fmt.Errorf("compare the database with the mark: %w", err)
	case known:
		return mark.Held, nil
	case held:
		_, err = s.db.Exec(ctx, `select record_mark($1, $2)`, seen.ID, seen.Generation)
		return mark.Held, results.Wrap(err, "record the mark as seen")
	case seen.Generation <= latest:
		return mark.Older, nil
	}
	evidence := fmt.Sprintf("id %s, generation %d, epoch %s, sequence %d, position %s, written %s by the database's clock",
		seen.ID, seen.Generation, seen.Epoch, seen.Sequence, seen.Position, seen.At.UTC().Format("2006-01-02 15:04:05Z"))
	_, err = s.db.Exec(ctx, `select distrust_by_mark($1, $2, $3)`, seen.ID, seen.Generation, evidence)
	return mark.Foreign, results.Wrap(err, "distrust a database that does not hold the mark")
}

// Latest implements [mark.Store].
func (s *Store) Latest(ctx context.Context) (generation int64, err error) {
	err = s.db.QueryRow(ctx, `select coalesce(max(generation), 0) from database_mark`).Scan(&generation)
	return generation, results.Wrap(err, "read the last mark seen")
}

// MarkOfSweep is the reason of the marks that each sweep writes.
const MarkOfSweep = "sweep"

// markedNow is true if a mark was prepared in this minute of the database's clock.
const markedNow = `exists (select from database_mark where date_trunc('minute', at) = date_trunc('minute', clock_timestamp()))`

// asMark is a statement that inserts a row of database_mark, and returns it for [scanMark].
func asMark(row string) string {
	return `
with next as (
  insert into database_mark (id, written_over, reason)
  ` + row + `
  returning id, sequence, at, reason
)
select n.id, n.sequence, n.at, n.reason, a.epoch, pg_current_wal_insert_lsn()::text, s.system_identifier::text, current_timeline(),
       z.seal_number, z.seal_hash
  from next n, database_identity a, pg_control_system() s, seal_audit(n.id) z`
}

func scanMark(row pgx.Row) (m mark.Mark, err error) {
	err = row.Scan(&m.ID, &m.Sequence, &m.At, &m.Reason, &m.Epoch, &m.Position, &m.System, &m.Timeline, &m.Audit.Number, &m.Audit.Hash)
	return m, err
}

var prepareMark = asMark(`select replace(gen_random_uuid()::text, '-', ''), $1, $2 where is_accepted_database() and not ($3 and ` + markedNow + `)`)

// Prepare implements [mark.Store]. A database that was not accepted prepares no mark: the
// error wraps [mark.ErrForeign]. Sweeps prepare at most one mark in each minute of the
// database's clock.
func (s *Store) Prepare(ctx context.Context, over int64, reason string) (mark.Mark, error) {
	paced := reason == MarkOfSweep
	m, err := scanMark(s.db.QueryRow(ctx, prepareMark, over, reason, paced))
	foreign := fmt.Errorf("no mark is written by a database that is not accepted: %w", mark.ErrForeign)
	switch {
	case errors.Is(err, pgx.ErrNoRows) && paced:
		return mark.Mark{}, cmp.Or(RequireAccepted(ctx, s.db, foreign), mark.ErrSoon)
	case errors.Is(err, pgx.ErrNoRows):
		return mark.Mark{}, foreign
	case err != nil:
		return mark.Mark{}, fmt.Errorf("prepare a mark: %w", err)
	}
	return m, nil
}

// AdoptMark lets a database that an operator is about to accept adopt another database's mark,
// so that it may write the next one. If the mark object is lost (the zero Seen), it deletes
// the marks it has seen, so that it may write the first one. A database that is the accepted database
// does neither.
func (s *Store) AdoptMark(ctx context.Context, seen mark.Observed, by string) error {
	if seen.ID == "" {
		_, err := s.db.Exec(ctx, `delete from database_mark where not is_accepted_database()`)
		return results.Wrap(err, "forget the marks of an object that is lost")
	}
	_, err := s.db.Exec(ctx, `
insert into database_mark (id, written_over, generation, reason)
select $1, $2::bigint - 1, $2, 'adopted by ' || $3::text where not is_accepted_database()
    on conflict (id) do nothing`, seen.ID, seen.Generation, by)
	return results.Wrap(err, "adopt the mark")
}

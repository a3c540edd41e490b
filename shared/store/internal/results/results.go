// Package results reads the results of statements: rows into values, and numbers of rows.
package results

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DB is a pool, a connection or a transaction.
type DB interface {
	Exec(ctx context.Context, statement string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, statement string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, statement string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Query is the rows of a query. Its error is the rows' error: reading them returns it.
func Query(ctx context.Context, db DB, statement string, args ...any) pgx.Rows {
	rows, _ := db.Query(ctx, statement, args...)
	return rows
}

// All is the rows of a query.
func All[Row any](ctx context.Context, db DB, scan pgx.RowToFunc[Row], statement string, args ...any) ([]Row, error) {
	return pgx.CollectRows(Query(ctx, db, statement, args...), scan)
}

// AllNow is the rows of a query, and the database's time before it, in one round trip.
func AllNow[Row any](ctx context.Context, db DB, scan pgx.RowToFunc[Row], statement string, args ...any) (all []Row, now time.Time, err error) {
	b := new(pgx.Batch)
	b.Queue(`select clock_timestamp()`).QueryRow(Scan(&now))
	b.Queue(statement, args...).Query(Into(&all, scan))
	err = db.SendBatch(ctx, b).Close()
	return all, now, err
}

// One is the only row of a query. The error is [pgx.ErrNoRows] if there is none.
func One[Row any](ctx context.Context, db DB, scan pgx.RowToFunc[Row], statement string, args ...any) (Row, error) {
	return pgx.CollectExactlyOneRow(Query(ctx, db, statement, args...), scan)
}

// Into keeps the rows of a batch's query in all.
func Into[Row any](all *[]Row, scan pgx.RowToFunc[Row]) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*all, err = pgx.CollectRows(rows, scan)
		return err
	}
}

// First keeps the first row of a batch's query in row, which stays as it is if there is none.
func First[Row any](row **Row, scan pgx.RowToFunc[Row]) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, scan)
		if len(found) > 0 {
			*row = &found[0]
		}
		return err
	}
}

// Only keeps the only row of a batch's query in row. The error is [pgx.ErrNoRows] if there is none.
func Only[Row any](row *Row, scan pgx.RowToFunc[Row]) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*row, err = pgx.CollectExactlyOneRow(rows, scan)
		return err
	}
}

// Each scans each row of a batch's query into the targets, and then calls keep.
func Each(targets []any, keep func()) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, targets, func() error {
			keep()
			return nil
		})
		return err
	}
}

// ForEach is [Each] of the rows of a query that is sent now.
func ForEach(ctx context.Context, db DB, targets []any, keep func(), statement string, args ...any) error {
	return Each(targets, keep)(Query(ctx, db, statement, args...))
}

// Scan keeps the values of a batch's row.
func Scan(targets ...any) func(pgx.Row) error {
	return func(row pgx.Row) error { return row.Scan(targets...) }
}

// Maybe is [Scan] of a row that there may not be.
func Maybe(targets ...any) func(pgx.Row) error {
	return func(row pgx.Row) error { return Missing(row.Scan(targets...), nil) }
}

// Count keeps the number of rows that a batch's statement wrote or returned.
func Count(n *int) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		*n = int(tag.RowsAffected())
		return nil
	}
}

// Any keeps whether a batch's statement wrote or returned a row.
func Any(done *bool) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		*done = tag.RowsAffected() > 0
		return nil
	}
}

// Done keeps that a batch's statement was carried out.
func Done(done *bool) func(pgconn.CommandTag) error {
	return func(pgconn.CommandTag) error {
		*done = true
		return nil
	}
}

// Missing is the error none if err is that of a query without a row, and otherwise err.
func Missing(err, none error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return none
	}
	return err
}

// Refusal is the database's refusal of a statement; empty if err is something else.
func Refusal(err error) *pgconn.PgError {
	refused, _ := errors.AsType[*pgconn.PgError](err)
	return cmp.Or(refused, new(pgconn.PgError))
}

// Wrap is err with what failed in front of it; nil if err is nil.
func Wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// Package rows reads the rows of a query. Its functions are [steps]: an error of the query ends the caller's steps.
package rows

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/stack/steps"
)

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Each calls do for each row, with the row's values in the variables.
func Each(ctx context.Context, db Querier, variables []any, do func(), query string, args ...any) {
	rows, _ := db.Query(ctx, query, args...) // the reader has the error
	_, err := pgx.ForEachRow(rows, variables, func() error { do(); return nil })
	steps.OK(err, strings.TrimSpace(query))
}

// All returns all rows, each read by scan.
func All[Row any](ctx context.Context, db Querier, scan pgx.RowToFunc[Row], query string, args ...any) []Row {
	rows, _ := db.Query(ctx, query, args...) // the collector has the error
	all, err := pgx.CollectRows(rows, scan)
	steps.OK(err, strings.TrimSpace(query))
	return all
}

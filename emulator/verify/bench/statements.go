package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/stack/steps"
)

// watchStatements makes the cluster count the statements of all its databases.
func (b *bench) watchStatements(ctx context.Context) {
	db := steps.Value(pgx.Connect(ctx, b.cluster.URL("postgres")))
	defer db.Close(ctx)
	steps.Value(db.Exec(ctx, "alter system set shared_preload_libraries = 'pg_stat_statements'"))
	steps.OK(b.cluster.Restart(ctx, false), "this Postgres has no pg_stat_statements")
}

func (h *environment) resetStatements(ctx context.Context) {
	if h.bench.statements > 0 {
		steps.Value(h.db.Exec(ctx, "create extension if not exists pg_stat_statements; select pg_stat_statements_reset()"))
	}
}

// topStatements has the cost for each 1,000 of the transactions.
const topStatements = `
select calls * per, total_exec_time * per, rows * per, wal_bytes::float8 * per, query
  from pg_stat_statements, (select 1000 / $2::float8) as thousand (per) order by total_exec_time desc limit $1`

// printStatements prints the statements with the highest cost for n transactions.
func (h *environment) printStatements(ctx context.Context, n int) {
	if h.bench.statements == 0 {
		return
	}
	rows, _ := h.db.Query(ctx, topStatements, h.bench.statements, float64(n)) // the reader has the error
	out := h.bench.out
	fmt.Fprintf(out, "\n%10s %10s %10s %12s  statement (per 1,000 transactions)\n", "calls", "ms", "rows", "WAL bytes")
	var calls, ms, count, wal float64
	var query string
	_, err := pgx.ForEachRow(rows, []any{&calls, &ms, &count, &wal, &query}, func() error {
		fmt.Fprintf(out, "%10.1f %10.1f %10.1f %12.0f  %.120s\n", calls, ms, count, wal, strings.Join(strings.Fields(query), " "))
		return nil
	})
	fmt.Fprintln(out)
	steps.OK(err)
}

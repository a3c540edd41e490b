package store

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/telemetry"
)

// Costs counts every round trip to Postgres on the meter of its context.
type Costs struct{}

// TraceQueryStart counts a statement sent by itself, which commits itself.
func (Costs) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	telemetry.MeterFrom(ctx).SQL(1, 1)
	return ctx
}

// TraceQueryEnd counts nothing.
func (Costs) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart counts a pipelined batch: one round trip. It commits where it
// says so, and at its end where it does not.
func (Costs) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	statements, commits := 0, 0
	for _, q := range data.Batch.QueuedQueries {
		switch strings.TrimSpace(q.SQL) {
		case "begin":
		case "commit":
			commits++
		default:
			statements++
		}
	}
	telemetry.MeterFrom(ctx).SQL(statements, max(commits, 1))
	return ctx
}

// TraceBatchQuery counts nothing.
func (Costs) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd counts nothing.
func (Costs) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

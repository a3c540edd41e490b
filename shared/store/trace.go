package store

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"

	"github.com/fencepost/fencepost/shared/telemetry"
)

// Costs counts every round trip to Postgres on the meter of its context, and makes a span of
// it if the context's trace is recorded.
type Costs struct{}

// endKey is the context key of the function that ends a round trip's span.
type endKey struct{}

// TraceQueryStart counts a single statement, which commits itself.
func (Costs) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	telemetry.MeterFrom(ctx).SQL(1, 1)
	if !telemetry.Recorded(ctx) {
		return ctx
	}
	return withQueryTiming(ctx, data.SQL, 1)
}

// TraceQueryEnd counts nothing.
func (Costs) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	recordQuery(ctx, data.Err)
}

// TraceBatchStart counts a pipelined batch as one round trip. It counts explicit commits, or
// one implicit commit at the end.
func (Costs) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	statements, commits, first := 0, 0, ""
	for _, q := range data.Batch.QueuedQueries {
		switch text := strings.TrimSpace(q.SQL); text {
		case "begin":
		case "commit":
			commits++
		default:
			if statements++; statements == 1 {
				first = text
			}
		}
	}
	telemetry.MeterFrom(ctx).SQL(statements, max(commits, 1))
	if !telemetry.Recorded(ctx) {
		return ctx
	}
	return withQueryTiming(ctx, first, statements)
}

// TraceBatchQuery counts nothing.
func (Costs) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd counts nothing.
func (Costs) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	recordQuery(ctx, data.Err)
}

// shownStatementLength is the number of characters of a statement's text that a span shows.
const shownStatementLength = 100

// withQueryTiming starts a span for a round trip. The text of a statement contains no values.
func withQueryTiming(ctx context.Context, statement string, statements int) context.Context {
	shown := strings.Join(strings.Fields(statement[:min(len(statement), 2*shownStatementLength)]), " ")
	shown = strings.ToValidUTF8(shown[:min(len(shown), shownStatementLength)], "")
	ctx, end := telemetry.Begin(ctx, "postgres", attribute.String("db.query.summary", shown),
		attribute.Int("statements", statements))
	return context.WithValue(ctx, endKey{}, end)
}

func recordQuery(ctx context.Context, err error) {
	if end, ok := ctx.Value(endKey{}).(func(error)); ok {
		end(err)
	}
}

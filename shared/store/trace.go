package store

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/attribute"

	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Tracer counts every round trip to Postgres on the meter of its context, and passes on the events that it made.
// It makes a span of each whose context's trace is recorded.
type Tracer struct {
	onEvents func(context.Context, CommittedEvents) // nil: events are dropped
}

// endKey is the context key of the function that ends a round trip's span.
type endKey struct{}

// TraceQueryStart counts a single statement, which commits itself.
func (Tracer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	telemetry.MeterFrom(ctx).SQL(1, 1)
	return begin(ctx, conn, data.SQL, 1)
}

// TraceQueryEnd ends the round trip.
func (t Tracer) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	t.end(ctx, conn, data.Err)
}

// TraceBatchStart counts a pipelined batch as one round trip. It counts explicit commits, or
// one implicit commit at the end.
func (Tracer) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
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
	return begin(ctx, conn, first, statements)
}

// TraceBatchQuery counts nothing.
func (Tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd ends the round trip.
func (t Tracer) TraceBatchEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchEndData) {
	t.end(ctx, conn, data.Err)
}

// begun is the key under which a connection keeps when its round trip began, as a *time.Time that all its
// round trips share.
const begun = "fencepost.begun"

// shownStatementLength is the number of characters of a statement's text that a span shows.
const shownStatementLength = 100

// begin keeps when a round trip began, forgets the notices before it, and starts its span if the context's trace is recorded.
func begin(ctx context.Context, conn *pgx.Conn, statement string, statements int) context.Context {
	kept := conn.PgConn().CustomData()
	delete(kept, noticed)
	at, ok := kept[begun].(*time.Time)
	if !ok {
		at = new(time.Time)
		kept[begun] = at
	}
	*at = time.Now()
	if !telemetry.Recorded(ctx) {
		return ctx
	}
	shown := strings.Join(strings.Fields(statement[:min(len(statement), 2*shownStatementLength)]), " ") // which has no values
	shown = strings.ToValidUTF8(shown[:min(len(shown), shownStatementLength)], "")
	ctx, finish := telemetry.Begin(ctx, "postgres", attribute.String("db.query.summary", shown), attribute.Int("statements", statements))
	return context.WithValue(ctx, endKey{}, finish)
}

// end records the time of a round trip, ends its span, and passes on its events.
func (t Tracer) end(ctx context.Context, conn *pgx.Conn, err error) {
	kept := conn.PgConn().CustomData()
	if at, ok := kept[begun].(*time.Time); ok {
		telemetry.SQLTime.Record(ctx, time.Since(*at).Seconds())
	}
	if finish, ok := ctx.Value(endKey{}).(func(error)); ok {
		finish(err)
	}
	news, _ := kept[noticed].(*CommittedEvents)
	delete(kept, noticed)
	if news != nil && err == nil && t.onEvents != nil {
		t.onEvents(ctx, *news)
	}
}

// EventMode is what a session does with the events that its statements make.
type EventMode string

// The modes. The sequences of a transaction's events continue in each.
const (
	EventsDropped EventMode = ""     // nothing, but for those of transactions accepted while they were kept
	EventsKept    EventMode = "keep" // they are rows, of the same commit
	EventsLogged  EventMode = "log"  // the session that made the statement is notified of each
)

// CommittedEvents has the events of one completed round trip. A round trip that failed, or whose
// answer was lost, has none.
type CommittedEvents struct {
	Of     []txmanager.Submitter // whose events were kept
	Events []txmanager.Event     // in order, with [EventsLogged]
}

// Names that the database uses to notify a session of events.
const (
	eventCode = "FPE01" // one event, in whole
	keptCode  = "FPE02" // a submitter of whom some were kept
)

// noticed is the key under which a connection keeps the Postgres notices since its round trip
// began.
const noticed = "fencepost.noticed"

// notice stores a Postgres notice about events.
func notice(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.Code != eventCode && n.Code != keptCode {
		return
	}
	news, _ := conn.CustomData()[noticed].(*CommittedEvents)
	if news == nil {
		news = new(CommittedEvents)
		conn.CustomData()[noticed] = news
	}
	if n.Code == keptCode {
		news.Of = append(news.Of, txmanager.Submitter(n.Message))
		return
	}
	e := txmanager.Event{Body: json.RawMessage(n.Message)}
	if err := json.Unmarshal(e.Body, &e); err == nil { // its own members, by the names that the body has
		news.Events = append(news.Events, e)
	}
}

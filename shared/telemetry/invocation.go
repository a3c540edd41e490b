package telemetry

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Invocation serves each request by next. Its context has a new [Meter] and a span with the function's
// name, which continues the trace of a valid traceparent header (https://www.w3.org/TR/trace-context/).
// When next ends or panics, it logs one line "invocation": the function's name, the cost, the task
// named in the request, durationMs (milliseconds) and the answer's status. The line is a warning from
// status 500 on.
func Invocation(log *slog.Logger, function string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := tracer.Start(WithMeter(ctx), function, trace.WithSpanKind(trace.SpanKindServer))
		answer := &Answer{ResponseWriter: w}
		unwritten := http.StatusInternalServerError // what the framework answers if next panics before it writes
		defer func() {
			status, level := cmp.Or(answer.Status, unwritten), slog.LevelInfo
			if status >= http.StatusInternalServerError {
				level = slog.LevelWarn
				span.SetStatus(codes.Error, "")
			}
			took := time.Since(start)
			HTTPTime.Record(ctx, took.Seconds(), Invoked(function, status))
			cost := MeterFrom(ctx).Cost()
			span.SetAttributes(attribute.Int("http.response.status_code", status), attribute.Int64("sqlRoundTrips", cost.SQLRoundTrips),
				attribute.Int64("rpcRoundTrips", cost.RPCRoundTrips), attribute.Int64("tasks", cost.Tasks))
			span.End()
			attrs := append([]slog.Attr{slog.String("function", function)}, cost.attrs()...)
			log.LogAttrs(ctx, level, "invocation", append(attrs,
				append(taskOf(r.Header), slog.Float64("durationMs", float64(took.Microseconds())/1000),
					slog.Int("status", status))...)...)
		}()
		next.ServeHTTP(answer, r.WithContext(ctx))
		unwritten = http.StatusOK
	})
}

// Untrusted serves each request by next without the sampling flag of its traceparent header: recording
// costs the deployment money, not the caller. The trace id stays.
func Untrusted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const flags, end = 53, 55 // of the header, in each version
		if text := r.Header.Get("Traceparent"); len(text) >= end {
			r.Header.Set("Traceparent", text[:flags]+"00"+text[end:])
		}
		next.ServeHTTP(w, r)
	})
}

// taskOf returns the task that the headers name. Any caller can set them, so they are only for readers
// of the log.
func taskOf(h http.Header) (attrs []slog.Attr) {
	const limit = 500 // bytes of a task's name in the log
	for name, key := range map[string]string{"X-Cloudtasks-Taskname": "task", "X-Cloudtasks-Taskretrycount": "taskRetryCount"} {
		if text := h.Get(name); text != "" {
			attrs = append(attrs, slog.String(key, text[:min(len(text), limit)]))
		}
	}
	return attrs
}

// Answer records the status of a handler's answer.
type Answer struct {
	http.ResponseWriter
	Status int // 0: nothing is written yet
}

// WriteHeader sends status and records it, unless it is informational: then the final one follows.
func (a *Answer) WriteHeader(status int) {
	if a.Status == 0 && status >= 200 {
		a.Status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write sends body, after the status 200 if none was sent.
func (a *Answer) Write(body []byte) (int, error) {
	if a.Status == 0 {
		a.Status = http.StatusOK
	}
	return a.ResponseWriter.Write(body)
}

// Unwrap is for [http.ResponseController].
func (a *Answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Meter counts the cost of one invocation. Its methods can be called concurrently, and on a nil Meter,
// where they count nothing: callers need not know whether there is a meter.
type Meter struct {
	mu   sync.Mutex
	cost Cost
}

// change calls f with the counts so far.
func (m *Meter) change(f func(*Cost)) {
	if m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		f(&m.cost)
	}
}

// SQL counts one round trip to Postgres with so many statements, of which so many were commits. A
// statement outside a transaction commits itself.
func (m *Meter) SQL(statements, commits int) {
	m.change(func(c *Cost) {
		c.SQLRoundTrips++
		c.SQLStatements += int64(statements)
		c.Commits += int64(commits)
	})
}

// RPC counts one HTTP round trip to a chain's node. A JSON-RPC batch is one.
func (m *Meter) RPC() { m.change(func(c *Cost) { c.RPCRoundTrips++ }) }

// Tasks counts n enqueued tasks.
func (m *Meter) Tasks(n int) { m.change(func(c *Cost) { c.Tasks += int64(n) }) }

// Cost holds the counts of a [Meter].
type Cost struct {
	SQLRoundTrips, SQLStatements, Commits, RPCRoundTrips, Tasks int64
}

// Cost returns the counts so far; the zero Cost for a nil Meter.
func (m *Meter) Cost() (counts Cost) {
	m.change(func(c *Cost) { counts = *c })
	return counts
}

func (c Cost) attrs() []slog.Attr {
	return []slog.Attr{
		slog.Int64("sqlRoundTrips", c.SQLRoundTrips), slog.Int64("sqlStatements", c.SQLStatements),
		slog.Int64("commits", c.Commits), slog.Int64("rpcRoundTrips", c.RPCRoundTrips), slog.Int64("tasks", c.Tasks),
	}
}

type meterKey struct{}

// WithMeter returns ctx with a new [Meter], which replaces any other.
func WithMeter(ctx context.Context) context.Context {
	return context.WithValue(ctx, meterKey{}, new(Meter))
}

// MeterFrom returns the meter in ctx; nil, which can be used, if there is none.
func MeterFrom(ctx context.Context) *Meter {
	m, _ := ctx.Value(meterKey{}).(*Meter)
	return m
}

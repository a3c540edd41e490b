package telemetry

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Scope is the name under which this package counts and traces.
const Scope = "github.com/fencepost/fencepost/shared/telemetry"

// tracer begins the spans of this process, at the provider that is set with
// [otel.SetTracerProvider]; until one is set, nothing is recorded.
var tracer = otel.Tracer(Scope)

// originBytes is the length of an [Origin]: a trace's id, a span's, and the flags.
const originBytes = len(trace.TraceID{}) + len(trace.SpanID{}) + 1

// Origin is the span of ctx in the form in which a row carries it; nil where it is
// not recorded, so that what is not traced costs nothing.
func Origin(ctx context.Context) []byte { return originOf(trace.SpanFromContext(ctx)) }

func originOf(span trace.Span) []byte {
	if !span.IsRecording() {
		return nil
	}
	at := span.SpanContext()
	id, parent := at.TraceID(), at.SpanID()
	return append(slices.Concat(id[:], parent[:]), byte(at.TraceFlags()))
}

// fromOrigin is the place in a trace that a row carries; ok is false where it
// carries none.
func fromOrigin(origin []byte) (at trace.SpanContext, ok bool) {
	if len(origin) != originBytes {
		return at, false
	}
	at = trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(origin[:16]), SpanID: trace.SpanID(origin[16:24]), TraceFlags: trace.TraceFlags(origin[24]), Remote: true,
	})
	return at, at.IsValid()
}

// NewOrigin begins a trace for one of several intents that came in one request, and
// is its first span, which is linked to the request's; nil where it is not recorded.
func NewOrigin(ctx context.Context, attrs ...attribute.KeyValue) []byte {
	_, span := tracer.Start(ctx, "intent", trace.WithNewRoot(), trace.WithLinks(trace.LinkFromContext(ctx)), trace.WithAttributes(attrs...))
	defer span.End()
	return originOf(span)
}

// Step adds a span to the trace that origin is of: what was done from began until
// now for one intent of the many that an invocation serves. It stands under the span
// of ctx, which is the invocation's, where that is of the same trace; else under the
// intent's request, linked to the invocation. A nil origin has no trace.
func Step(ctx context.Context, origin []byte, name string, began time.Time, attrs ...attribute.KeyValue) {
	at, ok := fromOrigin(origin)
	if !ok {
		return
	}
	options := []trace.SpanStartOption{trace.WithTimestamp(began), trace.WithAttributes(attrs...)}
	if !InTraceOf(ctx, origin) {
		options = append(options, trace.WithLinks(trace.LinkFromContext(ctx)))
		ctx = trace.ContextWithRemoteSpanContext(ctx, at)
	}
	_, span := tracer.Start(ctx, name, options...)
	span.End()
}

// Recorded says that the span of ctx is recorded, so that what describes one under
// it is worth finding out.
func Recorded(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// Begin begins a span under that of ctx, and gives its context and what ends it,
// with the error that the call came to. Where the span of ctx is not recorded it
// does nothing.
func Begin(ctx context.Context, name string, attrs ...attribute.KeyValue) (context.Context, func(error)) {
	if !Recorded(ctx) {
		return ctx, func(error) {}
	}
	ctx, span := tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, "") // its text is in the log, where it is bounded
		}
		span.End()
	}
}

type onwardKey struct{}

// Onward is ctx for making tasks that go on in the trace that origin is of: under
// the span of ctx, where that is of the same trace; in none, if origin is nil.
func Onward(ctx context.Context, origin []byte) context.Context {
	at, traced := fromOrigin(origin)
	if !traced && !Recorded(ctx) || traced && InTraceOf(ctx, origin) {
		return ctx
	}
	return context.WithValue(ctx, onwardKey{}, at)
}

// InTraceOf says that the span of ctx is of the trace that origin is of.
func InTraceOf(ctx context.Context, origin []byte) bool {
	at, ok := fromOrigin(origin)
	return ok && at.TraceID() == trace.SpanContextFromContext(ctx).TraceID()
}

// Traceparent is the header that carries the trace of ctx into a task
// (https://www.w3.org/TR/trace-context/); "" where there is none that is recorded.
func Traceparent(ctx context.Context) string {
	at, chosen := ctx.Value(onwardKey{}).(trace.SpanContext)
	if !chosen {
		if !Recorded(ctx) {
			return ""
		}
		at = trace.SpanContextFromContext(ctx)
	}
	header := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), at), header)
	return header["traceparent"]
}

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

// Scope is the name of this package's metrics and traces.
const Scope = "github.com/fencepost/fencepost/shared/telemetry"

// tracer begins the spans of this process, at the provider that is set with [otel.SetTracerProvider].
// Without one nothing is recorded.
var tracer = otel.Tracer(Scope)

// originBytes is the length of an [Origin]: trace id, span id and flags.
const originBytes = len(trace.TraceID{}) + len(trace.SpanID{}) + 1

// Origin returns the span of ctx in the form stored in a row; nil if it is not recorded, so that
// untraced work costs nothing.
func Origin(ctx context.Context) []byte { return originOf(trace.SpanFromContext(ctx)) }

func originOf(span trace.Span) []byte {
	if !span.IsRecording() {
		return nil
	}
	at := span.SpanContext()
	id, parent := at.TraceID(), at.SpanID()
	return append(slices.Concat(id[:], parent[:]), byte(at.TraceFlags()))
}

// fromOrigin returns the span that a row stores; ok is false if it stores none.
func fromOrigin(origin []byte) (at trace.SpanContext, ok bool) {
	if len(origin) != originBytes {
		return at, false
	}
	at = trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(origin[:16]), SpanID: trace.SpanID(origin[16:24]), TraceFlags: trace.TraceFlags(origin[24]), Remote: true,
	})
	return at, at.IsValid()
}

// TraceID is the id of the trace that a row stores, in hex; "" if it stores none.
func TraceID(origin []byte) string {
	at, ok := fromOrigin(origin)
	if !ok {
		return ""
	}
	return at.TraceID().String()
}

// NewOrigin begins a trace for one of several intents of a request. Its first span is linked to the
// request's; nil if it is not recorded.
func NewOrigin(ctx context.Context, attrs ...attribute.KeyValue) []byte {
	_, span := tracer.Start(ctx, "intent", trace.WithNewRoot(), trace.WithLinks(trace.LinkFromContext(ctx)), trace.WithAttributes(attrs...))
	defer span.End()
	return originOf(span)
}

// Step adds a span to the trace of origin: the work from began until now for one of the intents of an
// invocation. Its parent is the invocation's span in ctx, if that is in the same trace. Otherwise its
// parent is the intent's request, with a link to the invocation. A nil origin has no trace.
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

// Recorded reports whether the span of ctx is recorded, so that attributes for a child span are worth
// computing.
func Recorded(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// Begin begins a child of ctx's span. It returns the child's context and the function that ends it with
// the call's error. If ctx's span is not recorded it does nothing.
func Begin(ctx context.Context, name string, attrs ...attribute.KeyValue) (context.Context, func(error)) {
	if !Recorded(ctx) {
		return ctx, func(error) {}
	}
	ctx, span := tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, "") // the log has its text, bounded
		}
		span.End()
	}
}

type onwardKey struct{}

// Onward returns ctx for tasks that continue the trace of origin: below the span of ctx, if that is in
// the same trace; without a trace, if origin is nil.
func Onward(ctx context.Context, origin []byte) context.Context {
	at, traced := fromOrigin(origin)
	if !traced && !Recorded(ctx) || traced && InTraceOf(ctx, origin) {
		return ctx
	}
	return context.WithValue(ctx, onwardKey{}, at)
}

// InTraceOf reports whether the span of ctx is in the trace of origin.
func InTraceOf(ctx context.Context, origin []byte) bool {
	at, ok := fromOrigin(origin)
	return ok && at.TraceID() == trace.SpanContextFromContext(ctx).TraceID()
}

// Traceparent returns the header that continues the trace of ctx in a task
// (https://www.w3.org/TR/trace-context/); "" if none is recorded.
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

package telemetry_test

import (
	"bytes"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost/fencepost/shared/telemetry"
)

// An unrecorded span has no origin for a row, and no header for a task.
func TestUnrecordedSpansHaveNoOriginAndNoHeader(t *testing.T) {
	t.Parallel()
	ctx := propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier{"traceparent": traceparent})
	if !trace.SpanContextFromContext(ctx).IsValid() {
		t.Fatal("the caller's trace: got none")
	}
	if got := telemetry.Origin(ctx); got != nil {
		t.Errorf("origin: got %x, want none", got)
	}
	if got := telemetry.Traceparent(ctx); got != "" {
		t.Errorf("traceparent: got %s, want none", got)
	}
	if got := telemetry.NewOrigin(ctx); got != nil {
		t.Errorf("a new origin: got %x, want none", got)
	}
}

// A row's origin becomes the header of its tasks. Text of another length is no origin.
func TestOnwardContinuesTheOriginsTrace(t *testing.T) {
	t.Parallel()
	origin := append(append(bytes.Repeat([]byte{0xab}, 16), bytes.Repeat([]byte{0xcd}, 8)...), 1)
	want := "00-abababababababababababababababab-cdcdcdcdcdcdcdcd-01"
	if got := telemetry.Traceparent(telemetry.Onward(t.Context(), origin)); got != want {
		t.Errorf("traceparent: got %q, want %q", got, want)
	}
	for _, none := range [][]byte{nil, origin[:24], make([]byte, 25)} {
		if got := telemetry.Traceparent(telemetry.Onward(t.Context(), none)); got != "" {
			t.Errorf("traceparent of origin %x: got %q, want none", none, got)
		}
	}
}

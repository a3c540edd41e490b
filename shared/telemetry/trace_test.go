package telemetry_test

import (
	"bytes"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/telemetry"
)

// An unrecorded span has no origin for a row, and no header for a task.
func TestUnrecordedSpansHaveNoOriginAndNoHeader(t *testing.T) {
	t.Parallel()
	ctx := traced(t)
	if !trace.SpanContextFromContext(ctx).IsValid() {
		t.Fatal("the caller's trace: got none")
	}
	check.Same(t, "origin (none)", telemetry.Origin(ctx), []byte(nil))
	check.Equal(t, "traceparent (none)", telemetry.Traceparent(ctx), "")
	check.Same(t, "a new origin (none)", telemetry.NewOrigin(ctx), []byte(nil))
}

// A row's origin becomes the header of its tasks. Text of another length is no origin.
func TestOnwardContinuesTheOriginsTrace(t *testing.T) {
	t.Parallel()
	origin := append(append(bytes.Repeat([]byte{0xab}, 16), bytes.Repeat([]byte{0xcd}, 8)...), 1)
	want := "00-abababababababababababababababab-cdcdcdcdcdcdcdcd-01"
	check.Equal(t, "traceparent", telemetry.Traceparent(telemetry.Onward(t.Context(), origin)), want)
	for _, none := range [][]byte{nil, origin[:24], make([]byte, 25)} {
		check.Equal(t, fmt.Sprintf("traceparent of origin %x (none)", none), telemetry.Traceparent(telemetry.Onward(t.Context(), none)), "")
	}
}

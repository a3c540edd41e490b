package export

import (
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost/fencepost/shared/check"
)

// A caller that may not decide whether a trace is recorded cannot decide it by the trace's id either.
func TestTraceIDsCannotChooseTheirSampling(t *testing.T) {
	t.Parallel()
	const draws = 2000
	recorded := func(oneIn int, flags trace.TraceFlags) (n int) {
		at := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{15: 1}, SpanID: trace.SpanID{7: 1}, TraceFlags: flags, Remote: true})
		for range draws {
			p := sdktrace.SamplingParameters{ParentContext: trace.ContextWithRemoteSpanContext(t.Context(), at), TraceID: at.TraceID(), Name: "create"}
			if sampler(oneIn).ShouldSample(p).Decision == sdktrace.RecordAndSample {
				n++
			}
		}
		return n
	}
	if n := recorded(1000, 0); n > draws/10 {
		t.Errorf("one in 1000, with an id that a sampler by id always takes: got %d of %d recorded, want about 2", n, draws)
	}
	if n := recorded(2, 0); n < draws/4 || n > draws*3/4 {
		t.Errorf("one in 2: got %d of %d recorded, want about half", n, draws)
	}
	for _, flags := range []trace.TraceFlags{0, trace.FlagsSampled} {
		check.Equal(t, "recorded of all, flags "+flags.String(), recorded(1, flags), draws)
	}
	check.Equal(t, "recorded of a trusted caller", recorded(1000, trace.FlagsSampled), draws)
}

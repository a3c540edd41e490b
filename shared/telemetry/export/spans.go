package export

import (
	"context"
	"sync"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// kept bounds the ended spans that wait for a flush; further ones are dropped.
const kept = 8192

// spans keeps ended spans until a flush. It implements [sdktrace.SpanProcessor]. Unlike the SDK's own
// it has no goroutine, because an instance may have no processor between requests.
type spans struct {
	mu      sync.Mutex
	ended   []sdktrace.ReadOnlySpan
	dropped int
}

func (*spans) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd keeps s.
func (b *spans) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		b.add(s)
	}
}

// Shutdown does nothing: the exporter that flushes has the spans.
func (*spans) Shutdown(context.Context) error { return nil }

// ForceFlush does nothing, for the same reason.
func (*spans) ForceFlush(context.Context) error { return nil }

// add keeps as many spans as there is room for.
func (b *spans) add(more ...sdktrace.ReadOnlySpan) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(more), kept-len(b.ended))
	b.ended = append(b.ended, more[:n]...)
	b.dropped += len(more) - n
}

// crowded reports whether a flush should not be delayed further.
func (b *spans) crowded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ended) > kept/2
}

// take empties b. It returns the spans, and how many were dropped since the last take.
func (b *spans) take() (all []sdktrace.ReadOnlySpan, dropped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all, dropped = b.ended, b.dropped
	b.ended, b.dropped = nil, 0
	return all, dropped
}

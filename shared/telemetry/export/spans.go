package export

import (
	"context"
	"sync"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// kept is how many ended spans wait for a flush at most; further ones are dropped.
const kept = 8192

// spans keeps what has ended until it is flushed. It implements
// [sdktrace.SpanProcessor], and unlike the SDK's own has no goroutine: between
// requests an instance may have no processor.
type spans struct {
	mu      sync.Mutex
	ended   []sdktrace.ReadOnlySpan
	dropped int
}

// OnStart does nothing.
func (*spans) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd keeps s.
func (b *spans) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		b.add(s)
	}
}

// Shutdown does nothing: whoever flushes has the spans.
func (*spans) Shutdown(context.Context) error { return nil }

// ForceFlush does nothing, for the same reason.
func (*spans) ForceFlush(context.Context) error { return nil }

// add keeps as many as there is room for.
func (b *spans) add(more ...sdktrace.ReadOnlySpan) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(more), kept-len(b.ended))
	b.ended = append(b.ended, more[:n]...)
	b.dropped += len(more) - n
}

// crowded says that it is better not to wait for the next flush.
func (b *spans) crowded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ended) > kept/2
}

// take empties b, and says how many were dropped since it last did.
func (b *spans) take() (all []sdktrace.ReadOnlySpan, dropped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all, dropped = b.ended, b.dropped
	b.ended, b.dropped = nil, 0
	return all, dropped
}

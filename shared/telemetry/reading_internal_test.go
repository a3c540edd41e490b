package telemetry

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/fencepost/fencepost/shared/check"
)

// observer collects what an exporter reads.
type observer struct {
	noop.Observer
	values []float64
}

func (o *observer) ObserveFloat64(_ metric.Float64Observable, v float64, _ ...metric.ObserveOption) {
	o.values = append(o.values, v)
}

// A process shows the gauges of its last sweep together, with the sweep's time, and none of them after
// another process must have swept.
func TestReadingIsShownInWholeAndExpires(t *testing.T) {
	shows := func(what string, want ...float64) {
		t.Helper()
		o := new(observer)
		check.OK(t)(showReading(t.Context(), o))
		check.Same(t, what, o.values, want)
	}
	sweep := func(depth float64) context.Context {
		ctx := WithReading(t.Context())
		QueueDepth.Record(ctx, depth)
		return ctx
	}
	QueueDepth.Record(t.Context(), 9)
	shows("without a sweep")
	first := sweep(3)
	shows("while the first sweep reads")
	ShowReading(first, time.Unix(60, 0))
	shows("after it", 3, 60)
	second := sweep(0)
	shows("while the second sweep reads", 3, 60)
	ShowReading(second, time.Unix(120, 0))
	shows("after it", 0, 120)
	ShowReading(sweep(7), time.Unix(90, 0))
	shows("after a sweep that began before it", 0, 120)
	shown.Load().until = time.Now().Add(-time.Second)
	shows("when it has expired")
	shown.Store(nil)
}

package telemetry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
)

// readingLasts is how long a process shows the gauges of its last sweep. A sweep runs each minute, in
// any process: by then another one has newer gauges.
const readingLasts = 90 * time.Second

// Gauge is a number that is true of the whole deployment. A sweep reads all gauges, and its process
// shows them together from its end on. Of several processes the one with the latest [SweepTime] is right.
type Gauge struct{ instrument metric.Float64ObservableGauge }

// gauges are the instruments of all gauges.
var gauges []metric.Observable

func init() {
	if _, err := meter().RegisterCallback(showReading, gauges...); err != nil {
		otel.Handle(err) // the gauges are not shown
	}
}

func gauge(name, description, unit string) Gauge {
	g, err := meter().Float64ObservableGauge(name, metric.WithDescription(description), metric.WithUnit(unit))
	if err != nil {
		otel.Handle(err) // g shows nothing, and can be used
	}
	gauges = append(gauges, g)
	return Gauge{g}
}

type point struct {
	of     metric.Float64Observable
	value  float64
	labels []metric.ObserveOption
}

// reading has the gauges of one sweep.
type reading struct {
	mu     sync.Mutex
	points []point
	at     time.Time // when its sweep began
	until  time.Time
}

type readingKey struct{}

// shown is the reading of the last sweep of this process.
var shown atomic.Pointer[reading]

// WithReading returns ctx for a sweep, in which gauges can be recorded.
func WithReading(ctx context.Context) context.Context {
	return context.WithValue(ctx, readingKey{}, new(reading))
}

// Record records the gauge with these labels in the reading of ctx. Without a reading it does nothing.
func (g Gauge) Record(ctx context.Context, value float64, labels ...metric.MeasurementOption) {
	r, ok := ctx.Value(readingKey{}).(*reading)
	if !ok {
		return
	}
	p := point{of: g.instrument, value: value}
	for _, l := range labels {
		p.labels = append(p.labels, l)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.points = append(r.points, p)
}

// ShowReading shows the reading of ctx in place of an earlier one: the gauges of a sweep that began at the
// given time of the database.
func ShowReading(ctx context.Context, at time.Time) {
	r, ok := ctx.Value(readingKey{}).(*reading)
	if !ok {
		return
	}
	SweepTime.Record(ctx, float64(at.UnixMilli())/1000)
	r.at, r.until = at, time.Now().Add(readingLasts)
	for last := shown.Load(); last == nil || !last.at.After(at); last = shown.Load() {
		if shown.CompareAndSwap(last, r) {
			return
		}
	}
}

// showReading shows the last reading to an exporter, until it expires.
func showReading(_ context.Context, o metric.Observer) error {
	r := shown.Load()
	if r == nil || time.Now().After(r.until) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.points {
		o.ObserveFloat64(p.of, p.value, p.labels...)
	}
	return nil
}

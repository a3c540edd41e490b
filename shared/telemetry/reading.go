package telemetry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
)

const (
	// readingLasts is how long a process shows the gauges of its last sweep, if no later sweep shows its own.
	// A sweep runs each minute.
	readingLasts = 90 * time.Second

	// lastWithin limits the question whether a sweep is the last one. An exporter waits for the answer.
	lastWithin = 250 * time.Millisecond
)

// Gauge is a number that is true of the whole deployment. A sweep reads all gauges, and its process
// shows them together from its end on, until any process shows those of a later sweep.
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
	until  time.Time
	number int64 // of the sweep
	sweeps Sweeps
}

// Sweeps numbers the sweeps of all processes whose gauges are shown.
type Sweeps interface {
	// NextSweep takes the next number.
	NextSweep(ctx context.Context) (int64, error)
	// LastSweep is the last number that was taken.
	LastSweep(ctx context.Context) (int64, error)
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

// showing lets the sweeps of a process take their numbers one after the other.
var showing sync.Mutex

// ShowReading shows the reading of ctx in place of any earlier one of the deployment: the gauges of a sweep
// that began at the given time of the database. With an error the earlier one stays.
func ShowReading(ctx context.Context, at time.Time, sweeps Sweeps) (err error) {
	r, ok := ctx.Value(readingKey{}).(*reading)
	if !ok {
		return nil
	}
	showing.Lock()
	defer showing.Unlock()
	r.sweeps, r.until = sweeps, time.Now().Add(readingLasts)
	if r.number, err = sweeps.NextSweep(ctx); err != nil {
		return err
	}
	SweepTime.Record(ctx, float64(at.UnixMilli())/1000)
	shown.Store(r)
	return nil
}

// showReading shows the last reading to an exporter, until it expires or another process has a later one.
func showReading(ctx context.Context, o metric.Observer) error {
	r := shown.Load()
	if r == nil || time.Now().After(r.until) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lastWithin)
	defer cancel()
	switch last, err := r.sweeps.LastSweep(ctx); {
	case err != nil:
		return err
	case last != r.number:
		shown.CompareAndSwap(r, nil)
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.points {
		o.ObserveFloat64(p.of, p.value, p.labels...)
	}
	return nil
}

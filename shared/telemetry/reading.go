package telemetry

import (
	"context"
	"crypto/rand"
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

	// unconfirmedLasts is how long a process shows its reading after the last answer that its sweep was the last one, while
	// there is no answer. A scrape each 15 s outlasts one busy moment of the pool. A later sweep begins a minute after that
	// sweep, so at most for this time two processes show different readings.
	unconfirmedLasts = 30 * time.Second
)

// Gauge is a number that is true of the whole deployment. A sweep reads all gauges, and its process
// shows those that it could read together from its end on, until any process shows those of a later sweep.
type Gauge struct{ instrument metric.Float64ObservableGauge }

// gauges are the instruments of all gauges.
var gauges []metric.Observable

func init() {
	if _, err := meter().RegisterCallback(showReading, gauges...); err != nil {
		otel.Handle(err) // the gauges are not shown
	}
}

func gauge(name, description, unit string) Gauge {
	g := made(meter().Float64ObservableGauge(name, metric.WithDescription(description), metric.WithUnit(unit)))
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
	sweep  string // the id of the sweep
	sweeps Sweeps

	confirmed time.Time // when the database last said that the sweep is the last one
}

// Sweeps remembers which sweep of all processes was the last one.
type Sweeps interface {
	// SetLastSweep stores the id of the last sweep. After an error it may be stored.
	SetLastSweep(ctx context.Context, id string) error
	// LastSweep is the id that was stored last.
	LastSweep(ctx context.Context) (string, error)
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

// showing lets the sweeps of a process end one after the other.
var showing sync.Mutex

// ShowReading shows the reading of ctx in place of any earlier one of the deployment. Its sweep began at the
// given time of the database (zero: not known). With an error the earlier reading stays.
func ShowReading(ctx context.Context, at time.Time, sweeps Sweeps) error {
	r, ok := ctx.Value(readingKey{}).(*reading)
	if !ok {
		return nil
	}
	showing.Lock()
	defer showing.Unlock()
	now := time.Now()
	r.sweeps, r.sweep, r.confirmed, r.until = sweeps, rand.Text(), now, now.Add(readingLasts)
	if err := sweeps.SetLastSweep(ctx, r.sweep); err != nil {
		return err
	}
	if !at.IsZero() {
		SweepTime.Record(ctx, float64(at.UnixMilli())/1000)
	}
	shown.Store(r)
	return nil
}

// showReading shows the last reading to an exporter, until it expires or another process has a later one.
func showReading(ctx context.Context, o metric.Observer) error {
	r := shown.Load()
	if r == nil || time.Now().After(r.until) {
		return nil
	}
	switch last, err := r.isLast(ctx); {
	case err != nil:
		return err
	case !last:
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

// isLast reports whether the reading is that of the last sweep. Without an answer of the database it is, for
// [unconfirmedLasts] since the last answer.
func (r *reading) isLast(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lastWithin)
	defer cancel()
	asked := time.Now()
	last, err := r.sweeps.LastSweep(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil && asked.Sub(r.confirmed) > unconfirmedLasts:
		return false, err
	case err == nil && last == r.sweep:
		r.confirmed = asked
	}
	return err != nil || last == r.sweep, nil
}

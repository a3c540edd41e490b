package telemetry

import (
	"context"
	"errors"
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

// database numbers sweeps, as that of three processes does.
type database struct {
	last int64
	down error
}

func (d *database) NextSweep(context.Context) (int64, error) {
	d.last++
	return d.last, d.down
}

func (d *database) LastSweep(context.Context) (int64, error) { return d.last, d.down }

// A process shows the gauges of its last sweep together, with the sweep's time. It shows none of them once another
// process has swept, once they are old, and while it cannot know which sweep was the last.
func TestReadingIsShownInWholeByOneProcess(t *testing.T) {
	db := new(database)
	shows := func(what string, want ...float64) {
		t.Helper()
		o := new(observer)
		if err := showReading(t.Context(), o); !errors.Is(err, db.down) {
			t.Errorf("%s: got %v, want %v", what, err, db.down)
		}
		check.Same(t, what, o.values, want)
	}
	sweep := func(depth float64) context.Context {
		ctx := WithReading(t.Context())
		QueueDepth.Record(ctx, depth)
		return ctx
	}
	show := func(ctx context.Context, at int64) { check.OK(t)(ShowReading(ctx, time.Unix(at, 0), db)) }
	QueueDepth.Record(t.Context(), 9)
	shows("without a sweep")
	first := sweep(3)
	shows("while the first sweep reads")
	show(first, 60)
	shows("after it", 3, 60)
	second := sweep(0)
	shows("while the second sweep reads", 3, 60)
	show(second, 30) // the database's clock was set back
	shows("after it", 0, 30)
	db.down = errors.New("no answer")
	shows("while the database does not answer")
	check.Err(t, "a sweep meanwhile", db.down)(0, ShowReading(sweep(7), time.Unix(90, 0), db))
	db.down, db.last = nil, db.last-1
	shows("afterwards", 0, 30)
	db.last++
	shows("after another process has swept")
	show(sweep(1), 150)
	shows("after the next sweep here", 1, 150)
	shown.Load().until = time.Now().Add(-time.Second)
	shows("when it has expired")
	shown.Store(nil)
}

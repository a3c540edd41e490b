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

// database remembers the last sweep, as that of three processes does.
type database struct {
	last string
	down error
}

func (d *database) SetLastSweep(_ context.Context, id string) error {
	if d.down == nil {
		d.last = id
	}
	return d.down
}

func (d *database) LastSweep(context.Context) (string, error) { return d.last, d.down }

// A process shows the gauges of its last sweep together, with the sweep's time. It shows none of them once another
// process has swept, once they are old, and once it has not known for some time which sweep was the last.
func TestReadingIsShownInWholeByOneProcess(t *testing.T) {
	db := new(database)
	shows := func(what string, wrong error, want ...float64) {
		t.Helper()
		o := new(observer)
		check.Err(t, what, wrong)(showReading(t.Context(), o))
		check.Same(t, what, o.values, want)
	}
	sweep := func(depth float64) context.Context {
		ctx := WithReading(t.Context())
		QueueDepth.Record(ctx, depth)
		return ctx
	}
	show := func(ctx context.Context, at int64) { check.OK(t)(ShowReading(ctx, time.Unix(at, 0), db)) }
	QueueDepth.Record(t.Context(), 9)
	shows("without a sweep", nil)
	first := sweep(3)
	shows("while the first sweep reads", nil)
	show(first, 60)
	shows("after it", nil, 3, 60)
	firstID := db.last
	second := sweep(0)
	shows("while the second sweep reads", nil, 3, 60)
	show(second, 30) // the database's clock was set back
	shows("after it", nil, 0, 30)
	if len(db.last) < 20 || db.last == firstID {
		t.Errorf("ids of two sweeps: got %q and %q, want two that no other sweep has", firstID, db.last)
	}
	db.down = errors.New("no answer")
	shows("while the database does not answer", nil, 0, 30)
	check.Err(t, "a sweep meanwhile", db.down)(0, ShowReading(sweep(7), time.Unix(90, 0), db))
	shows("and after it", nil, 0, 30)
	confirmed := func(ago time.Duration) { shown.Load().confirmed = time.Now().Add(-ago) }
	confirmed(unconfirmedLasts - time.Second)
	shows("still without an answer", nil, 0, 30)
	confirmed(unconfirmedLasts)
	shows("for too long without an answer", db.down)
	db.down = nil
	shows("afterwards", nil, 0, 30)
	db.down = errors.New("no answer again")
	shows("without an answer, since that one", nil, 0, 30)
	db.down, db.last = nil, "of another process"
	shows("after another process has swept", nil)
	db.down = errors.New("no answer after that")
	shows("after that, without an answer", nil)
	db.down = nil
	check.OK(t)(ShowReading(sweep(1), time.Time{}, db))
	shows("after the next sweep here, which does not know its time", nil, 1)
	shown.Load().until = time.Now().Add(-time.Second)
	shows("when it has expired", nil)
	shown.Store(nil)
}

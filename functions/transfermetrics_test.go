package functions_test

import (
	"context"
	"maps"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/transfer"
)

// series collects what a provider of metrics receives, by name and labels.
type series struct {
	mu     sync.Mutex
	values map[string]int64
	shows  metric.Callback // of all gauges of the deployment
}

func (s *series) put(name string, labels attribute.Set, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[name+"{"+labels.Encoded(attribute.DefaultEncoder())+"}"] += n
}

// take returns the counts since the last call.
func (s *series) take() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.values
	s.values = map[string]int64{}
	return all
}

// takeGauges returns the gauges of the deployment that an exporter gets now.
func (s *series) takeGauges(t *testing.T) map[string]float64 {
	t.Helper()
	all := observer{values: map[string]float64{}}
	if err := s.shows(t.Context(), all); err != nil {
		t.Errorf("gauges of the deployment: %v", err)
	}
	return all.values
}

// observer is an exporter that reads gauges.
type observer struct {
	noop.Observer
	values map[string]float64
}

func (o observer) ObserveFloat64(of metric.Float64Observable, v float64, options ...metric.ObserveOption) {
	labels := metric.NewObserveConfig(options).Attributes()
	o.values[of.(observable).name+"{"+labels.Encoded(attribute.DefaultEncoder())+"}"] = v
}

type observable struct {
	noop.Float64ObservableGauge
	name string
}

type provider struct {
	noop.MeterProvider
	*series
}

func (p provider) Meter(string, ...metric.MeterOption) metric.Meter { return meter{series: p.series} }

type meter struct {
	noop.Meter
	*series
}

func (m meter) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return counter{series: m.series, name: name}, nil
}

func (m meter) Float64Counter(name string, _ ...metric.Float64CounterOption) (metric.Float64Counter, error) {
	return timer{series: m.series, name: name}, nil
}

func (m meter) Float64ObservableGauge(name string, _ ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	return observable{name: name}, nil
}

func (m meter) RegisterCallback(f metric.Callback, _ ...metric.Observable) (metric.Registration, error) {
	m.shows = f
	return noop.Registration{}, nil
}

// timer is a counter of time, in whole seconds.
type timer struct {
	noop.Float64Counter
	*series
	name string
}

func (c timer) Add(_ context.Context, n float64, options ...metric.AddOption) {
	c.put(c.name, metric.NewAddConfig(options).Attributes(), int64(n))
}

type counter struct {
	noop.Int64Counter
	*series
	name string
}

func (c counter) Add(_ context.Context, n int64, options ...metric.AddOption) {
	c.put(c.name, metric.NewAddConfig(options).Attributes(), n)
}

// metricSeries returns the process' metrics provider, which can be set only once.
var metricSeries = sync.OnceValue(func() *series {
	s := &series{values: map[string]int64{}}
	otel.SetMeterProvider(provider{series: s})
	return s
})

// Each state that a transfer enters is counted once, by the actor that moved it. Refunds with an
// unknown outcome and checks of conservation are counted too. The test runs alone, since the metrics
// belong to the process.
func TestTransfersAreCounted(t *testing.T) {
	recorded := metricSeries()
	recorded.take()
	h := impatient(t)
	counted := func(what string, want map[string]int64) {
		t.Helper()
		got := recorded.take()
		maps.DeleteFunc(got, func(name string, _ int64) bool { return strings.HasPrefix(name, "fencepost_request_refused_total") })
		check.Same(t, what, got, want)
	}
	entered := func(states ...string) map[string]int64 {
		all := map[string]int64{}
		for _, s := range states {
			all["fencepost_transfer_total{state="+s+"}"]++
		}
		return all
	}
	h.post(alice, map[string]any{"cid": "c"})
	h.post(alice, map[string]any{"cid": "c"})
	counted("one that comes through, twice asked for", entered("INIT", "SOURCE_PENDING", "SOURCE_DONE", "TARGET_PENDING", "COMMITTED"))
	h.post(alice, map[string]any{"amount": "2000"})
	counted("one that fails", entered("INIT", "SOURCE_PENDING", "FAILED"))
	h.as("ann", "POST", "/admin/v1/transfers/"+h.stored("x")+"/cancel", map[string]any{"reason": "r"})
	counted("one that is cancelled", entered("FAILED"))
	old := h.stored("xx")
	h.unguarded(`update transfers_tb set created_at = clock_timestamp() - interval '1 h' where req_id = '` + old + `'`)
	h.as("tasks", "POST", "/internal/transfer", map[string]any{"req_id": old})
	counted("one that is too old", entered("FAILED"))
	h.as("tasks", "POST", "/internal/conservation", map[string]any{})
	counted("a check", map[string]int64{"fencepost_conservation_check_total{result=ok}": 1})
	refund := h.storedFrom(transfer.Spot, transfer.Funding, "xxx")
	h.run(`select move_transfer($1, '{0,10,20,30}', null)`, refund)
	h.run(`select move_transfer($1, '{30,-20}', 'ACCOUNT_DISABLED')`, refund)
	h.signal(syscall.SIGSTOP)
	h.as("tasks", "POST", "/internal/transfer", map[string]any{"req_id": refund})
	counted("a refund without an answer", map[string]int64{"fencepost_refund_failures_total{}": 1})
}

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
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/transfer"
)

// series reads what the process records, by name and labels.
type series struct {
	reader *sdkmetric.ManualReader
	counts map[string]int64 // since the last take; of times, in whole seconds
}

// metricSeries returns the process' metrics, whose provider can be set only once.
var metricSeries = sync.OnceValue(func() *series {
	s := &series{sdkmetric.NewManualReader(sdkmetric.WithTemporalitySelector(sdkmetric.DeltaTemporalitySelector)), map[string]int64{}}
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader)))
	return s
})

// take returns the counts since the last call.
func (s *series) take() map[string]int64 {
	_, _ = s.collect(context.Background()) // the gauges may be those of a database that is gone
	all := s.counts
	s.counts = map[string]int64{}
	return all
}

// takeGauges returns the gauges of the deployment that an exporter gets now.
func (s *series) takeGauges(t *testing.T) map[string]float64 {
	t.Helper()
	return check.Value(s.collect(t.Context()))(t)
}

// collect adds to the counts, and returns the gauges.
func (s *series) collect(ctx context.Context) (gauges map[string]float64, err error) {
	var all metricdata.ResourceMetrics
	err = s.reader.Collect(ctx, &all)
	gauges = map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			named := func(labels attribute.Set) string {
				return m.Name + "{" + labels.Encoded(attribute.DefaultEncoder()) + "}"
			}
			switch data := m.Data.(type) {
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					gauges[named(p.Attributes)] = p.Value
				}
			case metricdata.Sum[float64]:
				for _, p := range data.DataPoints {
					s.counts[named(p.Attributes)] += int64(p.Value)
				}
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					s.counts[named(p.Attributes)] += p.Value
				}
			}
		}
	}
	return gauges, err
}

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

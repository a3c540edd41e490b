package telemetry_test

import (
	"context"
	"sync"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/telemetry"
)

// series holds the values that a provider of metrics received: the sum of each counter and the last
// value of each gauge, by name and labels.
type series struct {
	mu     sync.Mutex
	values map[string]int64
}

func (s *series) put(name string, labels attribute.Set, change func(int64) int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := name + "{" + labels.Encoded(attribute.DefaultEncoder()) + "}"
	s.values[key] = change(s.values[key])
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

func (m meter) Int64Gauge(name string, _ ...metric.Int64GaugeOption) (metric.Int64Gauge, error) {
	return gauge{series: m.series, name: name}, nil
}

func (m meter) Float64Counter(name string, _ ...metric.Float64CounterOption) (metric.Float64Counter, error) {
	return timer{series: m.series, name: name}, nil
}

// timer is a counter of time, in whole seconds.
type timer struct {
	noop.Float64Counter
	*series
	name string
}

func (c timer) Add(_ context.Context, n float64, options ...metric.AddOption) {
	c.put(c.name, metric.NewAddConfig(options).Attributes(), func(old int64) int64 { return old + int64(n) })
}

type counter struct {
	noop.Int64Counter
	*series
	name string
}

func (c counter) Add(_ context.Context, n int64, options ...metric.AddOption) {
	c.put(c.name, metric.NewAddConfig(options).Attributes(), func(old int64) int64 { return old + n })
}

type gauge struct {
	noop.Int64Gauge
	*series
	name string
}

func (g gauge) Record(_ context.Context, n int64, options ...metric.RecordOption) {
	g.put(g.name, metric.NewRecordConfig(options).Attributes(), func(int64) int64 { return n })
}

// Once a provider is set it receives the counts under the specification's names with their labels.
func TestMetricsHaveTheSpecificationsNames(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	telemetry.TxCreate.Add(ctx, 100, telemetry.Result("lost")) // no provider yet: dropped
	got := &series{values: make(map[string]int64)}
	otel.SetMeterProvider(provider{series: got})

	telemetry.LeaseAcquire.Add(ctx, 1, telemetry.Result("taken_over"))
	telemetry.LeaseFenced.Add(ctx, 2, telemetry.Op("allocate"))
	telemetry.TxCreate.Add(ctx, 3, telemetry.Result("created"))
	telemetry.TxCreate.Add(ctx, 3, telemetry.Result("created"))
	telemetry.TxCreate.Add(ctx, 1, telemetry.Result("repeated"))
	telemetry.TxSign.Add(ctx, 17, telemetry.Signer("kms"), telemetry.Result("unknown"))
	telemetry.TxSignTime.Add(ctx, 18, telemetry.Signer("local"), telemetry.Result("signed"))
	telemetry.TxSubmit.Add(ctx, 4, telemetry.Result("accepted"))
	telemetry.ReceiptCheck.Add(ctx, 5, telemetry.Result("not_found"))
	telemetry.NewFork.Add(ctx, 6)
	telemetry.TxResubmit.Add(ctx, 7, telemetry.Result("accepted"))
	telemetry.Finality.Add(ctx, 8, telemetry.Result("confirmed"))
	telemetry.StuckDecision.Add(ctx, 9, telemetry.Action("wait"))
	telemetry.Transfers.Add(ctx, 13, telemetry.State("COMMITTED"))
	telemetry.RefundFailures.Add(ctx, 15)
	telemetry.ConservationCheck.Add(ctx, 16, telemetry.Result("ok"))

	want := map[string]int64{
		"fencepost_lease_acquire_total{result=taken_over}": 1, "fencepost_lease_fenced_total{op=allocate}": 2,
		"fencepost_tx_create_total{result=created}": 6, "fencepost_tx_create_total{result=repeated}": 1,
		"fencepost_tx_sign_total{result=unknown,signer=kms}": 17, "fencepost_tx_sign_seconds_total{result=signed,signer=local}": 18,
		"fencepost_tx_submit_total{result=accepted}": 4, "fencepost_receipt_check_total{result=not_found}": 5,
		"fencepost_confirmations_new_fork_total{}": 6, "fencepost_tx_resubmit_total{result=accepted}": 7, "fencepost_finality_total{result=confirmed}": 8,
		"fencepost_transfer_total{state=COMMITTED}": 13,
		"fencepost_refund_failures_total{}":         15, "fencepost_conservation_check_total{result=ok}": 16,
		"fencepost_stuck_decision_total{action=wait}": 9,
	}
	check.Same(t, "series", got.values, want)
}

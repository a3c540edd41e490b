package telemetry_test

import (
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/telemetry"
)

// counted returns the sums of all counters, by name and labels.
func counted(t *testing.T, reader sdkmetric.Reader) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	check.OK(t)(reader.Collect(t.Context(), &all))
	sums := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				addSums(sums, m.Name, data.DataPoints)
			case metricdata.Sum[float64]:
				addSums(sums, m.Name, data.DataPoints)
			}
		}
	}
	return sums
}

func addSums[N int64 | float64](sums map[string]float64, name string, points []metricdata.DataPoint[N]) {
	for _, p := range points {
		sums[name+"{"+p.Attributes.Encoded(attribute.DefaultEncoder())+"}"] = float64(p.Value)
	}
}

// Once a provider is set it receives the counts under the specification's names with their labels.
func TestMetricsHaveTheSpecificationsNames(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	telemetry.TxCreate.Add(ctx, 100, telemetry.Result("lost")) // no provider yet: dropped
	reader := sdkmetric.NewManualReader()
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))

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

	want := map[string]float64{
		"fencepost_lease_acquire_total{result=taken_over}": 1, "fencepost_lease_fenced_total{op=allocate}": 2,
		"fencepost_tx_create_total{result=created}": 6, "fencepost_tx_create_total{result=repeated}": 1,
		"fencepost_tx_sign_total{result=unknown,signer=kms}": 17, "fencepost_tx_sign_seconds_total{result=signed,signer=local}": 18,
		"fencepost_tx_submit_total{result=accepted}": 4, "fencepost_receipt_check_total{result=not_found}": 5,
		"fencepost_confirmations_new_fork_total{}": 6, "fencepost_tx_resubmit_total{result=accepted}": 7, "fencepost_finality_total{result=confirmed}": 8,
		"fencepost_transfer_total{state=COMMITTED}": 13,
		"fencepost_refund_failures_total{}":         15, "fencepost_conservation_check_total{result=ok}": 16,
		"fencepost_stuck_decision_total{action=wait}": 9,
	}
	check.Same(t, "series", counted(t, reader), want)
}

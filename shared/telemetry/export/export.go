// Package export delivers a process's metrics and traces: to a collector, by OTLP over gRPC, and on a
// page in Prometheus's form.
//
// It does nothing between requests, because an instance may have no processor then. It delivers at the
// end of a request, if the last delivery was some time ago, and when the process ends.
package export

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	promclient "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fencepost/fencepost/shared/telemetry"
)

// Options define the targets and the identity of a delivery.
type Options struct {
	OTLPEndpoint string        // host:port of a collector; "": none
	Prometheus   bool          // a page with all metrics, see [Exporter.Page]
	FlushEvery   time.Duration // how long new data may wait for the end of a request
	TraceOneIn   int           // one of so many traces that begin here is recorded; 1: all

	Service  string // service.name
	Version  string // service.version; "": none
	Instance string // service.instance.id
	Log      *slog.Logger
}

// Exporter delivers metrics and traces. A nil Exporter has nothing to deliver, and can be used.
type Exporter struct {
	every  time.Duration
	log    *slog.Logger
	page   http.Handler // nil: none
	began  time.Time
	last   atomic.Int64     // when a delivery last began or failed, in nanoseconds after began
	failed atomic.Int64     // deliveries that failed since one succeeded
	turn   chan struct{}    // holds one element during a delivery
	conn   *grpc.ClientConn // to the collector; nil: none
	reader *sdkmetric.ManualReader
	spans  spans

	metrics *otlpmetricgrpc.Exporter
	traces  sdktrace.SpanExporter
}

// flushWithin bounds a delivery, because the request that makes it waits for it.
const flushWithin = time.Second

// Start sets the providers of this process's metrics and traces. With neither an endpoint nor a page it
// sets none and returns nil. It connects at the first delivery. A process calls it once.
func Start(ctx context.Context, o Options) (*Exporter, error) {
	if o.OTLPEndpoint == "" && !o.Prometheus {
		return nil, nil
	}
	e := &Exporter{every: o.FlushEvery, log: o.Log, began: time.Now(), turn: make(chan struct{}, 1)}
	as := resource.NewSchemaless(slices.DeleteFunc([]attribute.KeyValue{
		attribute.String("service.name", o.Service), attribute.String("service.version", o.Version), attribute.String("service.instance.id", o.Instance),
	}, func(a attribute.KeyValue) bool { return a.Value.AsString() == "" })...)
	options := []sdkmetric.Option{sdkmetric.WithResource(as), sdkmetric.WithExemplarFilter(exemplar.AlwaysOffFilter), sdkmetric.WithView(oursAlone)}
	if o.Prometheus { // a page of our metrics only, without those of the language or the process
		registry := promclient.NewRegistry()
		reader, err := prometheus.New(prometheus.WithRegisterer(registry), prometheus.WithoutScopeInfo())
		if err != nil {
			return nil, fmt.Errorf("page of metrics: %w", err)
		}
		e.page, options = promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), append(options, sdkmetric.WithReader(reader))
	}
	if o.OTLPEndpoint != "" {
		if err := e.open(ctx, o.OTLPEndpoint); err != nil {
			return nil, err
		}
		options = append(options, sdkmetric.WithReader(e.reader))
		otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithResource(as), sdktrace.WithSpanProcessor(&e.spans),
			sdktrace.WithSampler(sampler(o.TraceOneIn))))
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { o.Log.Warn("telemetry", "error", err.Error()) }))
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(options...))
	return e, nil
}

// oursAlone drops the metrics of libraries: they are not wanted, and their labels are not bounded.
func oursAlone(i sdkmetric.Instrument) (sdkmetric.Stream, bool) {
	return sdkmetric.Stream{Aggregation: sdkmetric.AggregationDrop{}}, i.Scope.Name != telemetry.Scope
}

// sampler records a trace if its caller, which [telemetry.Untrusted] has not stripped of that right,
// records it, and one in so many of all others. Cloud Run gives a request without a traceparent one
// that is not sampled, so that flag does not show the caller's wish.
func sampler(oneIn int) sdktrace.Sampler {
	one := oneInMany(max(oneIn, 1))
	return sdktrace.ParentBased(one, sdktrace.WithRemoteParentNotSampled(one))
}

// oneInMany draws a random number. Unlike the SDK's own sampler it does not use the trace's id, because
// the caller chooses it.
type oneInMany int

// ShouldSample draws.
func (n oneInMany) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	result := sdktrace.SamplingResult{Tracestate: trace.SpanContextFromContext(p.ParentContext).TraceState()}
	if rand.N(n) == 0 {
		result.Decision = sdktrace.RecordAndSample
	}
	return result
}

// Description describes the sampler.
func (n oneInMany) Description() string { return fmt.Sprintf("one in %d", int(n)) }

// reconnecting bounds the time until a restored collector is used again.
var reconnecting = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
	MinConnectTimeout: 5 * time.Second,
}

// open opens the exporters of metrics and traces over one connection. It is unencrypted only to this
// machine.
func (e *Exporter) open(ctx context.Context, endpoint string) (err error) {
	how := credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	if host, _, _ := net.SplitHostPort(endpoint); host == "localhost" || net.ParseIP(host).IsLoopback() {
		how = insecure.NewCredentials()
	}
	if e.conn, err = grpc.NewClient(endpoint, grpc.WithTransportCredentials(how), grpc.WithConnectParams(reconnecting)); err != nil {
		return fmt.Errorf("collector at %s: %w", endpoint, err)
	}
	e.reader = sdkmetric.NewManualReader(sdkmetric.WithTemporalitySelector(temporality))
	e.metrics, err = otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithGRPCConn(e.conn),
		otlpmetricgrpc.WithTimeout(flushWithin), otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig{}))
	if err != nil {
		return fmt.Errorf("metrics to %s: %w", endpoint, err)
	}
	e.traces, err = otlptracegrpc.New(ctx, otlptracegrpc.WithGRPCConn(e.conn),
		otlptracegrpc.WithTimeout(flushWithin), otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}))
	if err != nil {
		return fmt.Errorf("traces to %s: %w", endpoint, err)
	}
	return nil
}

// temporality makes a gauge that a process sets be delivered once for each time that it was set: another
// process may set it next. A reading of the sweep expires without that.
func temporality(kind sdkmetric.InstrumentKind) metricdata.Temporality {
	if kind == sdkmetric.InstrumentKindGauge {
		return metricdata.DeltaTemporality
	}
	return metricdata.CumulativeTemporality
}

// Page shows all metrics of this process in Prometheus's form; nil if there is no page.
func (e *Exporter) Page() http.Handler {
	if e == nil {
		return nil
	}
	return e.page
}

// AtEnd serves each request by next. At its end it delivers data that has waited long enough, within a
// second. The work is done by then, but the answer waits, because an instance has a processor only
// until it has answered. A failed delivery is only logged, and is tried again at increasing intervals.
func (e *Exporter) AtEnd(next http.Handler) http.Handler {
	if e == nil || e.conn == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		if !e.due() {
			return
		}
		if err := e.Flush(context.WithoutCancel(r.Context())); err != nil {
			e.log.WarnContext(r.Context(), "telemetry not delivered", "error", err.Error())
		}
	})
}

// maxDoublings bounds how often the wait for the next delivery is doubled.
const maxDoublings = 5

// due reports to one caller that a delivery is due.
func (e *Exporter) due() bool {
	now, last, failed := int64(time.Since(e.began)), e.last.Load(), e.failed.Load()
	wait := int64(e.every) << min(failed, maxDoublings)
	return (now-last >= wait || failed == 0 && e.spans.crowded()) && e.last.CompareAndSwap(last, now)
}

// Flush delivers everything, within a second. Data that the collector did not accept is delivered the
// next time: counters are cumulative, and spans are kept.
func (e *Exporter) Flush(ctx context.Context) error {
	if e == nil || e.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, flushWithin)
	defer cancel()
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	half, cancelHalf := context.WithTimeout(ctx, flushWithin/2) // for the metrics, which go first, because alerts depend on them
	defer cancelHalf()
	if err := errors.Join(e.flushMetrics(half), e.flushSpans(ctx)); err != nil {
		e.failed.Add(1)
		e.last.Store(int64(time.Since(e.began)))
		return err
	}
	e.failed.Store(0)
	return nil
}

// spansPerMessage bounds the spans of one message.
const spansPerMessage = 1024

func (e *Exporter) flushSpans(ctx context.Context) error {
	all, dropped := e.spans.take()
	if dropped > 0 {
		e.log.WarnContext(ctx, "spans dropped: too many between two deliveries", "spans", dropped)
	}
	for len(all) > 0 {
		n := min(spansPerMessage, len(all))
		if err := e.traces.ExportSpans(ctx, all[:n]); err != nil {
			e.spans.add(all...)
			return err
		}
		all = all[n:]
	}
	return nil
}

func (e *Exporter) flushMetrics(ctx context.Context) error {
	var all metricdata.ResourceMetrics
	if err := ctx.Err(); err != nil { // a gauge that was set would be lost
		return err
	}
	if err := e.reader.Collect(ctx, &all); err != nil {
		return err
	}
	return e.metrics.Export(ctx, &all)
}

// Close delivers everything a last time.
func (e *Exporter) Close(ctx context.Context) error {
	if e == nil || e.conn == nil {
		return nil
	}
	return errors.Join(e.Flush(ctx), e.conn.Close())
}

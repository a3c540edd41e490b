// Package exporttest is a collector of metrics and traces for tests. It accepts OTLP over gRPC on a
// socket, as the OpenTelemetry Collector does, and keeps what it accepted.
package exporttest

import (
	"context"
	"encoding/hex"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracespb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricpb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/fencepost/fencepost/shared/check"
)

// Span is one step of a trace. Ids are in hex, and "" if there is none.
type Span struct {
	TraceID, SpanID, Parent string
	Name                    string
	Attributes              map[string]string // as text
}

// Collector accepts exports at Addr.
type Collector struct {
	Addr string // host:port

	mu      sync.Mutex
	mode    Mode
	changed chan struct{}                 // closed when the mode changes
	series  map[string]map[string]float64 // by name and labels, then by instance
	spans   []Span
	text    strings.Builder // of every message
	calls   int
}

// Mode is the collector's behaviour.
type Mode int

// The modes. A collector starts with Takes.
const (
	Takes   Mode = iota // it accepts exports
	Refuses             // it answers UNAVAILABLE and accepts nothing
	Hangs               // it answers no call
)

// Start starts a collector, which ends with t.
func Start(t testing.TB) *Collector {
	t.Helper()
	listener := check.Value(net.Listen("tcp4", "127.0.0.1:0"))(t)
	c := &Collector{Addr: listener.Addr().String(), changed: make(chan struct{}), series: map[string]map[string]float64{}}
	server := grpc.NewServer(grpc.UnaryInterceptor(c.admit))
	metricspb.RegisterMetricsServiceServer(server, metrics{Collector: c})
	tracespb.RegisterTraceServiceServer(server, traces{Collector: c})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { c.Set(Takes); server.Stop() })
	return c
}

// Set makes the collector behave so from now on.
func (c *Collector) Set(m Mode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mode = m
	close(c.changed)
	c.changed = make(chan struct{})
}

// admit counts a call and, if the collector accepts exports, has it handled, with mu locked. Calls that hang end as UNAVAILABLE.
func (c *Collector) admit(ctx context.Context, request any, _ *grpc.UnaryServerInfo, export grpc.UnaryHandler) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	switch c.mode {
	case Takes:
		c.text.WriteString(protojson.Format(request.(proto.Message)))
		return export(ctx, request)
	case Hangs:
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		c.mu.Lock()
	}
	return nil, status.Error(codes.Unavailable, "not now")
}

type metrics struct {
	metricspb.UnimplementedMetricsServiceServer
	*Collector
}

// Export keeps metrics.
func (c metrics) Export(_ context.Context, r *metricspb.ExportMetricsServiceRequest) (*metricspb.ExportMetricsServiceResponse, error) {
	for _, of := range r.ResourceMetrics {
		instance := attributes(of.Resource.GetAttributes())["service.instance.id"]
		for _, scope := range of.ScopeMetrics {
			for _, m := range scope.Metrics {
				c.keep(instance, m)
			}
		}
	}
	return new(metricspb.ExportMetricsServiceResponse), nil
}

func (c *Collector) keep(instance string, m *metricpb.Metric) {
	for _, p := range slices.Concat(m.GetSum().GetDataPoints(), m.GetGauge().GetDataPoints()) {
		labels := []string{}
		for name, value := range attributes(p.Attributes) {
			labels = append(labels, name+"="+value)
		}
		slices.Sort(labels)
		key := m.Name + "{" + strings.Join(labels, ",") + "}"
		if c.series[key] == nil {
			c.series[key] = map[string]float64{}
		}
		c.series[key][instance] = p.GetAsDouble() + float64(p.GetAsInt())
	}
}

type traces struct {
	tracespb.UnimplementedTraceServiceServer
	*Collector
}

// Export keeps spans.
func (c traces) Export(_ context.Context, r *tracespb.ExportTraceServiceRequest) (*tracespb.ExportTraceServiceResponse, error) {
	for _, of := range r.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, Span{TraceID: hex.EncodeToString(s.TraceId), SpanID: hex.EncodeToString(s.SpanId),
					Parent: hex.EncodeToString(s.ParentSpanId), Name: s.Name, Attributes: attributes(s.Attributes)})
			}
		}
	}
	return new(tracespb.ExportTraceServiceResponse), nil
}

func attributes(list []*commonpb.KeyValue) map[string]string {
	all := make(map[string]string, len(list))
	for _, a := range list {
		if text, ok := a.Value.GetValue().(*commonpb.AnyValue_StringValue); ok {
			all[a.Key] = text.StringValue
		} else {
			all[a.Key] = protojson.Format(a.Value)
		}
	}
	return all
}

// Value returns the metric with these labels, such as "fencepost_finality_total{result=confirmed}": the sum of
// each instance's last value.
func (c *Collector) Value(series string) (sum float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.series[series] {
		sum += v
	}
	return sum
}

// Received has the series and spans that a collector has accepted so far.
type Received struct {
	Series []string // in order
	Spans  []Span   // in order of arrival
	Text   string   // all of it, as JSON
	Calls  int      // delivery attempts, also those that were not accepted
}

// Received returns the series and spans that the collector has accepted so far.
func (c *Collector) Received() Received {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Received{slices.Sorted(maps.Keys(c.series)), slices.Clone(c.spans), c.text.String(), c.calls}
}

// Forget drops everything accepted so far.
func (c *Collector) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.series)
	c.spans = nil
}

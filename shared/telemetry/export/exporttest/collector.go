// Package exporttest is a collector of metrics and traces for tests: it takes OTLP
// over gRPC on a socket, as the OpenTelemetry Collector does, and keeps what it took.
package exporttest

import (
	"context"
	"encoding/hex"
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
)

// Span is one step of a trace. Ids are in hex, and "" where there is none.
type Span struct {
	TraceID, SpanID, Parent string
	Name                    string
	Links                   []string          // traces
	Attributes              map[string]string // as text
	Nanoseconds             uint64            // that it took
}

// Collector takes what is exported to Addr.
type Collector struct {
	Addr string // host:port

	mu      sync.Mutex
	mode    mode
	changed chan struct{}                 // closed when the mode changes
	series  map[string]map[string]float64 // by name and labels, then by instance
	spans   []Span
	text    strings.Builder // of every message
	calls   int
}

// mode is how the collector answers.
type mode int

const (
	takes mode = iota
	refuses
	hangs
)

// Start starts a collector, which ends with t.
func Start(t testing.TB) *Collector {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Collector{Addr: listener.Addr().String(), changed: make(chan struct{}), series: map[string]map[string]float64{}}
	server := grpc.NewServer()
	metricspb.RegisterMetricsServiceServer(server, metrics{Collector: c})
	tracespb.RegisterTraceServiceServer(server, traces{Collector: c})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { c.Take(); server.Stop() })
	return c
}

// Take makes the collector take what comes from now on; it does from the start.
func (c *Collector) Take() { c.set(takes) }

// Refuse makes it answer UNAVAILABLE and take nothing.
func (c *Collector) Refuse() { c.set(refuses) }

// Hang makes it answer nothing, to nobody.
func (c *Collector) Hang() { c.set(hangs) }

func (c *Collector) set(m mode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mode = m
	close(c.changed)
	c.changed = make(chan struct{})
}

// admit counts a call and says whether it is taken. Whoever hangs is let go as
// unavailable.
func (c *Collector) admit(ctx context.Context, m proto.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if c.mode == hangs {
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		c.mu.Lock()
		return status.Error(codes.Unavailable, "hung up")
	}
	if c.mode == refuses {
		return status.Error(codes.Unavailable, "not now")
	}
	c.text.WriteString(protojson.Format(m))
	return nil
}

type metrics struct {
	metricspb.UnimplementedMetricsServiceServer
	*Collector
}

// Export takes metrics.
func (c metrics) Export(ctx context.Context, r *metricspb.ExportMetricsServiceRequest) (*metricspb.ExportMetricsServiceResponse, error) {
	if err := c.admit(ctx, r); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
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

// Export takes spans.
func (c traces) Export(ctx context.Context, r *tracespb.ExportTraceServiceRequest) (*tracespb.ExportTraceServiceResponse, error) {
	if err := c.admit(ctx, r); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				span := Span{TraceID: hex.EncodeToString(s.TraceId), SpanID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
					Name: s.Name, Attributes: attributes(s.Attributes), Nanoseconds: s.EndTimeUnixNano - s.StartTimeUnixNano}
				for _, l := range s.Links {
					span.Links = append(span.Links, hex.EncodeToString(l.TraceId))
				}
				c.spans = append(c.spans, span)
			}
		}
	}
	return new(tracespb.ExportTraceServiceResponse), nil
}

func attributes(list []*commonpb.KeyValue) map[string]string {
	all := make(map[string]string, len(list))
	for _, a := range list {
		text, ok := a.Value.GetValue().(*commonpb.AnyValue_StringValue)
		if ok {
			all[a.Key] = text.StringValue
		} else {
			all[a.Key] = protojson.Format(a.Value)
		}
	}
	return all
}

// Value is the metric with these labels, such as "finality_total{result=confirmed}":
// the last that each instance delivered, added up.
func (c *Collector) Value(series string) (sum float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.series[series] {
		sum += v
	}
	return sum
}

// Series are all series that came, in order.
func (c *Collector) Series() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.series {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Forget drops what was taken so far.
func (c *Collector) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.series)
	c.spans = nil
}

// Spans are all spans that came, in the order in which they did.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Calls is how many times something was delivered, or tried.
func (c *Collector) Calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

// Text is all that came, as JSON.
func (c *Collector) Text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

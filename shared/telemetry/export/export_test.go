package export_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/telemetry/export"
	"github.com/fencepost/fencepost/shared/telemetry/export/exporttest"
)

// env is a server of one function, which counts, sets a gauge and traces, with an exporter.
type env struct {
	*exporttest.Collector
	exporter *export.Exporter
	url      string
}

const every = 50 * time.Millisecond

func setup(t *testing.T) env {
	t.Helper()
	c := exporttest.Start(t)
	log := slog.New(slog.DiscardHandler)
	e := check.Value(export.Start(t.Context(), export.Options{
		OTLPEndpoint: c.Addr, Prometheus: true, FlushEvery: every, TraceOneIn: 1, Service: "create", Instance: "node", Log: log,
	}))(t)
	t.Cleanup(func() { _ = e.Close(context.WithoutCancel(t.Context())) })
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", e.Page())
	mux.Handle("POST /", telemetry.Invocation(log, "create", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		telemetry.TxCreate.Add(r.Context(), 1, telemetry.Result("accepted"))
		if r.URL.Path == "/sweep" {
			ctx := telemetry.WithReading(r.Context())
			telemetry.QueueDepth.Record(ctx, 7)
			telemetry.QueueFullness.Record(ctx, 0.25)
			check.OK(t)(telemetry.ShowReading(ctx, time.Unix(1_700_000_000, 0), new(oneSweep)))
		}
	})))
	server := httptest.NewServer(e.AtEnd(mux))
	t.Cleanup(server.Close)
	return env{c, e, server.URL}
}

// oneSweep has the id of the only sweep.
type oneSweep struct{ id string }

func (s *oneSweep) SetLastSweep(_ context.Context, id string) error { s.id = id; return nil }

func (s *oneSweep) LastSweep(context.Context) (string, error) { return s.id, nil }

// post makes a request and returns its duration.
func (h env) post(t *testing.T, path, traceparent string) time.Duration {
	t.Helper()
	r := check.Value(http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+path, nil))(t)
	if traceparent != "" {
		r.Header.Set("traceparent", traceparent)
	}
	began := time.Now()
	response := check.Value(http.DefaultClient.Do(r))(t)
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return time.Since(began)
}

// between is the time between two requests of a test that waits.
const between = 5 * time.Millisecond

// until makes requests until the condition holds.
func (h env) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(between) {
		if time.Now().After(deadline) {
			t.Fatalf("still not so: %s; series %v, %d spans, %d calls", what, h.Received().Series, len(h.Received().Spans), h.Received().Calls)
		}
		h.post(t, "/", "")
	}
}

// Metrics and traces are delivered at the end of requests. No request waits for longer than a second
// and nothing is lost, whatever the collector does. The steps run one after the other, because the
// providers belong to the process.
func TestDelivery(t *testing.T) {
	t.Parallel()
	h := setup(t)
	t.Run("counters, gauges and spans come", h.come)
	t.Run("a page shows the same", h.page)
	t.Run("a trace that the caller does not sample is sampled by ratio", h.unsampled)
	t.Run("an unreachable collector costs nothing", h.refused)
	t.Run("a collector that hangs costs a second, ever more rarely", h.hung)
	t.Run("Close delivers the rest", h.end)
}

const caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func (h env) come(t *testing.T) {
	h.post(t, "/sweep", caller)
	h.until(t, "the gauge came", func() bool {
		return h.Value("fencepost_queue_depth{}") == 7 && h.Value("fencepost_queue_fullness_ratio{}") == 0.25
	})
	h.until(t, "a later count came", func() bool { return h.Value("fencepost_tx_create_total{result=accepted}") >= 3 })
	if got := h.Received().Spans[0]; got.TraceID != caller[3:35] || got.Parent != caller[36:52] || got.Name != "create" || got.Attributes["http.response.status_code"] == "" {
		t.Errorf("first span: got %+v, want create in the caller's trace, under its span", got)
	}
	h.Forget()
	before := h.Received().Calls
	h.until(t, "further deliveries came", func() bool { return h.Received().Calls >= before+4 })
	library := check.Value(otel.Meter("of a library").Int64Counter("library_total"))(t)
	library.Add(t.Context(), 1)
	before = h.Received().Calls
	h.until(t, "further deliveries came", func() bool { return h.Received().Calls >= before+4 })
	check.Same(t, "series of further deliveries, with a library that counts too", h.Received().Series, []string{
		"fencepost_queue_depth{}", "fencepost_queue_fullness_ratio{}", "fencepost_sweep_timestamp_seconds{}", "fencepost_tx_create_total{result=accepted}",
	})
}

func (h env) page(t *testing.T) {
	response := check.Value(http.Get(h.url + "/metrics"))(t)
	defer response.Body.Close()
	text := check.Value(io.ReadAll(response.Body))(t)
	for _, want := range []string{"\nfencepost_queue_depth 7\n", "\nfencepost_queue_fullness_ratio 0.25\n", "\nfencepost_tx_create_total{result=\"accepted\"} ", "# HELP fencepost_tx_create_total creates"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("page: got\n%s\nwant %q in it", text, want)
		}
	}
}

func (h env) unsampled(t *testing.T) {
	id := "00000000000000000000000000000001"
	h.post(t, "/", "00-"+id+"-00f067aa0ba902b7-00")
	h.until(t, "the span came", func() bool { return h.has(id) })
}

func (h env) has(traceID string) bool {
	return slices.ContainsFunc(h.Received().Spans, func(s exporttest.Span) bool { return s.TraceID == traceID })
}

func (h env) refused(t *testing.T) {
	h.Set(exporttest.Refuses)
	before, id := h.Received().Calls, newTrace(1)
	h.post(t, "/", "00-"+id+"-00f067aa0ba902b7-01")
	h.until(t, "deliveries were refused", func() bool { return h.Received().Calls >= before+2 })
	h.Set(exporttest.Takes)
	h.until(t, "the span came all the same", func() bool { return h.has(id) })
}

func (h env) hung(t *testing.T) {
	h.Set(exporttest.Hangs)
	id := newTrace(2)
	h.post(t, "/", "00-"+id+"-00f067aa0ba902b7-01")
	var longest, quick time.Duration // of all, and the longest time without a slow one
	for began, last := time.Now(), time.Now(); quick < 10*every && time.Since(began) < 15*time.Second; time.Sleep(between) {
		took := h.post(t, "/", "")
		if longest = max(longest, took); took > 500*time.Millisecond {
			last = time.Now()
		}
		quick = time.Since(last)
	}
	if longest < 500*time.Millisecond || longest > 3*time.Second {
		t.Errorf("the slowest request while the collector hung: got %v, want a second", longest)
	}
	if quick < 10*every {
		t.Errorf("between slow requests: got %v at most, want ever more, and %v in the end", quick, 10*every)
	}
	h.Set(exporttest.Takes)
	h.until(t, "the span came all the same", func() bool { return h.has(id) })
}

func (h env) end(t *testing.T) {
	h.until(t, "deliveries go well", func() bool { return h.exporter.Flush(t.Context()) == nil })
	want := h.Value("fencepost_tx_create_total{result=accepted}") + 1
	telemetry.TxCreate.Add(t.Context(), 1, telemetry.Result("accepted"))
	check.OK(t)(h.exporter.Close(t.Context()))
	check.Equal(t, "counted when the exporter is closed", h.Value("fencepost_tx_create_total{result=accepted}"), want)
}

// newTrace returns the id of a trace.
func newTrace(n int) string { return fmt.Sprintf("fe%030d", n) }

// Without a target there is no exporter, and none is needed.
func TestNoTargetNeedsNoExporter(t *testing.T) {
	t.Parallel()
	e, err := export.Start(t.Context(), export.Options{})
	if err != nil || e != nil {
		t.Fatalf("got %v, %v; want none", e, err)
	}
	if e.Page() != nil || e.Flush(t.Context()) != nil || e.Close(t.Context()) != nil {
		t.Error("an exporter that is none: got something to do, want nothing")
	}
	served := false
	e.AtEnd(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true })).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	if !served {
		t.Error("the request was not served")
	}
}

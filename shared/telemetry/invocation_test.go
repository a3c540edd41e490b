package telemetry_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/telemetry"
)

// invoke serves one request by next and returns its logged line, without the members that are the same
// in each.
func invoke(t *testing.T, header string, next http.HandlerFunc) line {
	t.Helper()
	var out bytes.Buffer
	h := telemetry.Invocation(telemetry.NewLogger(&out, slog.LevelInfo, ""), "advance", next)
	server := httptest.NewServer(recovered(h))
	request := check.Value(http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, nil))(t)
	request.Header.Set("traceparent", header)
	response := check.Value(server.Client().Do(request))(t)
	response.Body.Close()
	server.Close() // waits for the handler
	all := lines(t, &out)
	if len(all) != 1 || all[0]["message"] != "invocation" || all[0]["function"] != "advance" {
		t.Fatalf("got %v, want one line about an invocation of advance", all)
	}
	check.Equal(t, "status in the log, as the caller got it", all[0]["status"], any(float64(response.StatusCode)))
	if ms, ok := all[0]["durationMs"].(float64); !ok || ms < 0 || ms > 60_000 {
		t.Errorf("durationMs: got %v, want some milliseconds", all[0]["durationMs"])
	}
	for _, key := range []string{"timestamp", "message", "function", "durationMs"} {
		delete(all[0], key)
	}
	return all[0]
}

// recovered answers 500 to a panic, as the functions framework does.
func recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// free returns the line of an invocation without cost.
func free(severity string, status float64) line {
	return line{"severity": severity, "status": status,
		"sqlRoundTrips": 0.0, "sqlStatements": 0.0, "commits": 0.0, "rpcRoundTrips": 0.0, "tasks": 0.0}
}

// The line has the status that the caller got, however the handler ended.
func TestInvocationLogsTheCallersStatus(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		next http.HandlerFunc
		want line
	}{
		"nothing": {func(http.ResponseWriter, *http.Request) {}, free("INFO", 200)},
		"body":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("x")); w.WriteHeader(500) }, free("INFO", 200)},
		"status":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(409) }, free("INFO", 409)},
		"early": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(503)
		}, free("WARNING", 503)},
		"panic": {func(http.ResponseWriter, *http.Request) { panic("x") }, free("WARNING", 500)},
		"flushed": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(202)
			if err := http.NewResponseController(w).Flush(); err != nil {
				panic(err)
			}
		}, free("INFO", 202)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check.Same(t, "line", invoke(t, "", tt.next), tt.want)
		})
	}
}

// The line has the counts of all goroutines, and the request's trace.
func TestInvocationLogsTheCost(t *testing.T) {
	t.Parallel()
	got := invoke(t, traceparent, func(_ http.ResponseWriter, r *http.Request) {
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				m := telemetry.MeterFrom(r.Context())
				m.SQL(3, 1)
				m.SQL(1, 0)
				m.RPC()
				m.Tasks(5)
			})
		}
		wg.Wait()
	})
	want := line{"severity": "INFO", "status": 200.0,
		"sqlRoundTrips": 100.0, "sqlStatements": 200.0, "commits": 50.0, "rpcRoundTrips": 50.0, "tasks": 250.0,
		"logging.googleapis.com/trace": traceID, "logging.googleapis.com/spanId": spanID, "logging.googleapis.com/trace_sampled": true}
	check.Same(t, "line", got, want)
}

// The trace of an untrusted caller is kept without its sampling flag. An invalid header, or one of a
// later version, is unchanged.
func TestUntrustedTraceparent(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		traceparent:                          traceparent[:53] + "00",
		traceparent[:53] + "ff":              traceparent[:53] + "00",
		"cc" + traceparent[2:] + "-of-later": "cc" + traceparent[2:53] + "00-of-later",
		"x":                                  "x",
		"":                                   "",
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("traceparent", given)
		got := "not served"
		telemetry.Untrusted(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("traceparent") })).ServeHTTP(nil, r)
		check.Equal(t, fmt.Sprintf("%q", given), got, want)
	}
}

// An invalid traceparent gives no trace.
func TestInvalidTraceparentGivesNoTrace(t *testing.T) {
	t.Parallel()
	for _, header := range []string{
		"x", "00-" + traceID + "-" + spanID, "ff" + traceparent[2:], traceparent + "-x",
		"00-00000000000000000000000000000000-" + spanID + "-01", "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + spanID + "-01",
	} {
		check.Same(t, fmt.Sprintf("with traceparent %q", header), invoke(t, header, func(http.ResponseWriter, *http.Request) {}), free("INFO", 200))
	}
}

// Each meter counts separately, and without one nothing is counted.
func TestMetersCountSeparately(t *testing.T) {
	t.Parallel()
	outer := telemetry.WithMeter(t.Context())
	inner := telemetry.WithMeter(outer)
	telemetry.MeterFrom(inner).Tasks(2)
	check.Equal(t, "inner meter", telemetry.MeterFrom(inner).Cost(), (telemetry.Cost{Tasks: 2}))
	none := telemetry.MeterFrom(t.Context())
	none.SQL(1, 1)
	none.RPC()
	none.Tasks(1)
	for name, m := range map[string]*telemetry.Meter{"outer": telemetry.MeterFrom(outer), "no": none} {
		check.Equal(t, name+" meter", m.Cost(), telemetry.Cost{})
	}
}

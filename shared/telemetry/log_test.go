package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/slogtest"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/telemetry"
)

const (
	traceID     = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID      = "00f067aa0ba902b7"
	traceparent = "00-" + traceID + "-" + spanID + "-01"
)

// traced returns the context of a request with the traceparent header above.
func traced(t *testing.T) context.Context {
	t.Helper()
	return propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier{"traceparent": traceparent})
}

type line = map[string]any

// lines parses a log.
func lines(t *testing.T, log *bytes.Buffer) []line {
	t.Helper()
	var all []line
	for text := range strings.Lines(log.String()) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("read log line %s: got %v, want JSON", text, err)
		}
		all = append(all, l)
	}
	return all
}

// Each level has Cloud Logging's name, and records below the minimum are dropped.
func TestSeverities(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := telemetry.NewLogger(&out, slog.LevelInfo-1, "")
	for _, level := range []slog.Level{-4, -1, 0, 3, 4, 7, 8, 11, telemetry.LevelCritical, 20} {
		log.Log(t.Context(), level, "m")
	}
	var got []any
	for _, l := range lines(t, &out) {
		got = append(got, l["severity"])
	}
	want := []any{"DEBUG", "INFO", "INFO", "WARNING", "WARNING", "ERROR", "ERROR", "CRITICAL", "CRITICAL"}
	check.Same(t, "severities", got, want)
}

// A line has exactly the fields that Cloud Logging reads, and the attributes.
func TestFieldNames(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	telemetry.NewLogger(&out, slog.LevelInfo, "proj").With(telemetry.NodeIDKey, "n").InfoContext(traced(t), "stored",
		telemetry.SubmitterKey, "s", telemetry.TxIDKey, "x", telemetry.FencingTokenKey, 7)
	got := lines(t, &out)[0]
	if _, err := time.Parse(time.RFC3339Nano, fmt.Sprint(got["timestamp"])); err != nil {
		t.Errorf("timestamp: got %v (%v), want RFC 3339", got["timestamp"], err)
	}
	delete(got, "timestamp")
	want := line{
		"severity": "INFO", "message": "stored", "nodeId": "n", "submitter": "s", "txId": "x", "fencingToken": 7.0,
		"logging.googleapis.com/trace":         "projects/proj/traces/" + traceID,
		"logging.googleapis.com/spanId":        spanID,
		"logging.googleapis.com/trace_sampled": true,
	}
	check.Same(t, "line", got, want)
}

// The trace is at the top of a line with any open groups, and the groups are unchanged. Derived loggers
// do not affect each other.
func TestTraceStaysOutOfGroups(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	group := telemetry.NewLogger(&out, slog.LevelInfo, "").With("a", 1).WithGroup("g").With("level", 2).With("b", 2.5)
	one, two := group.With("c", 3), group.WithGroup("").With("d", 4)
	for _, log := range []*slog.Logger{one, two} {
		log.InfoContext(traced(t), "m", "msg", 5)
		log.InfoContext(t.Context(), "m", "msg", 5)
	}
	const id = "logging.googleapis.com/trace"
	want := []line{
		{"a": 1.0, "g": line{"level": 2.0, "b": 2.5, "c": 3.0, "msg": 5.0}, id: traceID},
		{"a": 1.0, "g": line{"level": 2.0, "b": 2.5, "c": 3.0, "msg": 5.0}},
		{"a": 1.0, "g": line{"level": 2.0, "b": 2.5, "d": 4.0, "msg": 5.0}, id: traceID},
		{"a": 1.0, "g": line{"level": 2.0, "b": 2.5, "d": 4.0, "msg": 5.0}},
	}
	got := lines(t, &out)
	for _, l := range got {
		for _, key := range []string{"timestamp", "severity", "message", "logging.googleapis.com/spanId", "logging.googleapis.com/trace_sampled"} {
			delete(l, key)
		}
	}
	check.Same(t, "lines", got, want)
}

// with gives every record the context ctx, because slogtest logs without one.
type with struct {
	slog.Handler
	ctx context.Context
}

func (w with) Handle(_ context.Context, r slog.Record) error { return w.Handler.Handle(w.ctx, r) }
func (w with) WithAttrs(attrs []slog.Attr) slog.Handler {
	return with{w.Handler.WithAttrs(attrs), w.ctx}
}
func (w with) WithGroup(name string) slog.Handler { return with{w.Handler.WithGroup(name), w.ctx} }

// The handler follows slog's rules, with and without a trace.
func TestHandlerConforms(t *testing.T) {
	t.Parallel()
	for name, ctx := range map[string]context.Context{"plain": t.Context(), "traced": traced(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			slogtest.Run(t, func(*testing.T) slog.Handler {
				out.Reset()
				return with{telemetry.NewLogger(&out, slog.LevelInfo, "").Handler(), ctx}
			}, func(t *testing.T) map[string]any {
				l := lines(t, &out)[0]
				for ours, slogs := range map[string]string{"timestamp": "time", "severity": "level", "message": "msg"} {
					if v, ok := l[ours]; ok {
						l[slogs] = v
					}
				}
				if _, ok := l["logging.googleapis.com/trace"]; ok != (name == "traced") {
					t.Errorf("trace: got %v, want %v", ok, !ok)
				}
				return l
			})
		})
	}
}

// Settings can be logged in any form without showing a secret.
func TestLogShowsNoSecret(t *testing.T) {
	t.Parallel()
	c := check.Value(config.Load([]string{
		"FENCEPOST_CHAIN_ID=1", "FENCEPOST_DATABASE_URL=postgres://u:hunter2@db/x", "FENCEPOST_RPC_URLS=https://node.example/hunter2",
	}))(t)
	_, refused := config.Load([]string{"FENCEPOST_DATABASE_URL=hunter2", "FENCEPOST_RPC_URLS=hunter2"})
	hidden := struct{ c config.Config }{c}
	var out bytes.Buffer
	log := telemetry.NewLogger(&out, slog.LevelDebug, "proj").With("with", c.RPC.URLs[0]).WithGroup("g").With("more", c)
	for _, v := range []any{c, &c, c.Database, c.Database.URL, []any{&c.RPC}, hidden, fmt.Sprintf("%+v %#v", c, hidden), refused, errors.Join(refused)} {
		log.InfoContext(traced(t), fmt.Sprint(v), "v", v, slog.Group("group", "v", v))
	}
	if strings.Contains(out.String(), "hunter2") {
		t.Errorf("got a log that shows the secret, want none:\n%s", out.String())
	}
	check.Equal(t, "the secret in the log", lines(t, &out)[0]["with"], "[redacted]")
}

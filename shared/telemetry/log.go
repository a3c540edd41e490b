// Package telemetry holds what a deployment reports about itself: log lines in Cloud Logging's format,
// the cost of each invocation, metrics, and the name of the instance.
package telemetry

import (
	"context"
	"io"
	"log/slog"
	"slices"

	"go.opentelemetry.io/otel/trace"
)

// LevelCritical is the level of lines for a person who must act now: the state of money or of a nonce
// is unknown. Cloud Logging shows it as CRITICAL.
const LevelCritical = slog.Level(12)

// The names of the attributes in the log line of each critical write.
const (
	SubmitterKey    = "submitter"    // the account id, canonical
	TxIDKey         = "txId"         // of a managed transaction
	NodeIDKey       = "nodeId"       // the instance, see [NodeID]
	FencingTokenKey = "fencingToken" // of the write
)

// NewLogger writes each record at or above level to w as one line of JSON with Cloud Logging's field
// names: severity, message and timestamp. A record logged with the context of a traced request (see
// [Invocation]) has the trace. Cloud Logging finds it by the Google Cloud project; without a project
// only the trace id is written.
//
// Sources: https://cloud.google.com/logging/docs/structured-logging, and
// opentelemetry/instrumentation/app/logger.go in Google's golang-samples.
func NewLogger(w io.Writer, level slog.Leveler, project string) *slog.Logger {
	prefix := ""
	if project != "" {
		prefix = "projects/" + project + "/traces/"
	}
	return slog.New(handler{Handler: slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: rename}), prefix: prefix})
}

// rename gives slog's own attributes Cloud Logging's names.
func rename(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.LevelKey:
		if level, ok := a.Value.Any().(slog.Level); ok {
			return slog.String("severity", severity(level))
		}
	case slog.MessageKey:
		a.Key = "message"
	case slog.TimeKey:
		a.Key = "timestamp"
	}
	return a
}

// severity returns Cloud Logging's name for the level, or for the next lower one.
func severity(level slog.Level) string {
	switch {
	case level >= LevelCritical:
		return "CRITICAL"
	case level >= slog.LevelError:
		return "ERROR"
	case level >= slog.LevelWarn:
		return "WARNING"
	case level >= slog.LevelInfo:
		return "INFO"
	default:
		return "DEBUG"
	}
}

// handler adds the context's trace at the top of a record. Cloud Logging does not read it inside a
// group, so handler keeps the additions since the first group and applies them after the trace.
type handler struct {
	slog.Handler                                   // with the additions before the first group
	since        []func(slog.Handler) slog.Handler // the first group, and the additions after it
	prefix       string                            // of a trace's name
}

// Handle writes r, with the trace of ctx if it has one.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	next := h.Handler
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		next = next.WithAttrs([]slog.Attr{
			slog.String("logging.googleapis.com/trace", h.prefix+span.TraceID().String()),
			slog.String("logging.googleapis.com/spanId", span.SpanID().String()),
			slog.Bool("logging.googleapis.com/trace_sampled", span.IsSampled()),
		})
	}
	for _, add := range h.since {
		next = add(next)
	}
	return next.Handle(ctx, r)
}

// WithAttrs returns a handler that adds attrs to each record.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(h.since) == 0 {
		h.Handler = h.Handler.WithAttrs(attrs)
		return h
	}
	return h.then(func(next slog.Handler) slog.Handler { return next.WithAttrs(attrs) })
}

// WithGroup returns a handler that puts later attributes into a group.
func (h handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return h.then(func(next slog.Handler) slog.Handler { return next.WithGroup(name) })
}

func (h handler) then(add func(slog.Handler) slog.Handler) slog.Handler {
	h.since = append(slices.Clip(h.since), add)
	return h
}

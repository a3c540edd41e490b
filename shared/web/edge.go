package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/shared/buildinfo"
	"github.com/fencepost/fencepost/shared/telemetry"
)

type requestIDKey struct{}

// RequestID returns the random UUID that [Edge] gave the request of ctx, or "".
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// Edge handles each request before next. The gate counts it, or refuses it while closed. It gets an id,
// which is also in the response as X-Request-Id and in each problem as its instance. A panic becomes a
// logged UNAVAILABLE. Each answer has the version of Fencepost, and headers that keep browsers from
// guessing its type, and from using plain HTTP.
//
// The id is never the caller's: a value that a caller can choose proves nothing in a log.
func Edge(gate *Gate, next http.Handler) http.Handler {
	return withRequestID(gate.handler(recovered(next)))
}

func withRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := uuid.NewString()
		w.Header().Set("X-Request-Id", id)
		w.Header().Set("Fencepost-Version", buildinfo.Read().Version)
		guard(w.Header(), r)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id)))
	})
}

// guard sets headers for browsers: to take an answer as its declared type and, if the platform before
// us reports TLS, to use only TLS.
func guard(h http.Header, r *http.Request) {
	h.Set("X-Content-Type-Options", "nosniff")
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

func recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &telemetry.Answer{ResponseWriter: w}
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(v) // net/http's own way to abort a response
			}
			slog.ErrorContext(r.Context(), "panic in a handler", "panic", fmt.Sprint(v),
				"stack", string(debug.Stack()), "path", r.URL.Path, "requestUid", RequestID(r.Context()))
			if answer.Status != 0 {
				panic(http.ErrAbortHandler) // too late for a problem; net/http ends the connection
			}
			Fail(w, r, UnavailableBecause(fmt.Errorf("panic: %v", v), "the service cannot answer at the moment; try again"))
		}()
		next.ServeHTTP(answer, r)
	})
}

package web

import (
	"errors"
	"net/http"
	"os"
	"time"
)

// BodyTimeout refuses a request whose body did not arrive completely in time.
var BodyTimeout = Code{"BODY_TIMEOUT", http.StatusRequestTimeout}

// Arrival limits the time in which the body of each request must arrive completely, from the call of
// next. After that a read of the body fails, which [Decode] answers with BODY_TIMEOUT, and the
// connection ends. A request without a body, or whose body has arrived, has no deadline: net/http
// removes it at the body's end.
//
// The request's header is read before any handler is called; its deadline is the server's.
func Arrival(within time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(within)) // if it cannot be set there is no connection
		}
		next.ServeHTTP(w, r)
	})
}

// incomplete returns the problem of a body that ended too early or too late.
func incomplete(err error) *Problem {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &Problem{Code: BodyTimeout, Cause: err,
			Detail: "the body did not arrive completely in time: nothing was done; send it again, and all of it at once"}
	}
	return &Problem{Code: InvalidJSON, Detail: "the body did not arrive completely", Cause: err}
}

// endConnection makes the server answer without reading the rest of the body, also after the answer.
func endConnection(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Now())
}

// endsConnection reports whether the answer p must not wait for the rest of a body, which may never
// arrive: any caller can cause such an answer.
func (p *Problem) endsConnection(r *http.Request) bool {
	if r.ContentLength == 0 {
		return false
	}
	switch p.Code {
	case Unauthorized, BodyTooLarge, BodyTimeout, MethodNotAllowed, TooManyRequests:
		return true
	}
	return p.nowhere
}

package web

import (
	"errors"
	"net/http"
	"os"
	"time"
)

// BodyTimeout refuses a request whose body has not come whole in time.
var BodyTimeout = Code{"BODY_TIMEOUT", http.StatusRequestTimeout}

// Arrival lets the body of each request take no longer than within to come whole, from
// when next is asked. Then what reads it gets an error, which [Decode] answers with
// BODY_TIMEOUT, and the connection ends. A request without a body, and one whose body has
// come, has no deadline: net/http takes it away at the body's end.
//
// The header of a request is read before anybody here is asked: its deadline is the
// server's.
func Arrival(within time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(within)) // where it cannot be set there is no connection
		}
		next.ServeHTTP(w, r)
	})
}

// notWhole is the problem of a body that ended too early, or too late.
func notWhole(err error) *Problem {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &Problem{Code: BodyTimeout, Cause: err,
			Detail: "the body did not come whole in time: nothing was done; send it again, and all of it at once"}
	}
	return &Problem{Code: InvalidJSON, Detail: "the body did not arrive whole", Cause: err}
}

// endConnection has the server answer without having read the rest of the body, and read
// none of it after the answer either.
func endConnection(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Now())
}

// endsConnection says that the answer p does not wait for the rest of a body, which may
// never come: anybody may get such an answer.
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

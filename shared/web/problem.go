package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/shared/telemetry"
)

// Code is one entry of an API's list of error codes. Its name is part of the contract with callers, and
// its meaning and status never change. Packages with further codes declare variables of this type.
type Code struct {
	Name   string // UPPER_SNAKE
	Status int    // the HTTP status of the answer
}

// The codes of any HTTP edge.
var (
	InvalidJSON      = Code{"INVALID_JSON", http.StatusBadRequest}
	InvalidField     = Code{"INVALID_FIELD", http.StatusBadRequest}
	UnsupportedField = Code{"UNSUPPORTED_FIELD", http.StatusBadRequest}
	Unauthorized     = Code{"UNAUTHORIZED", http.StatusUnauthorized}
	Forbidden        = Code{"FORBIDDEN", http.StatusForbidden}
	NotFound         = Code{"NOT_FOUND", http.StatusNotFound}
	MethodNotAllowed = Code{"METHOD_NOT_ALLOWED", http.StatusMethodNotAllowed}
	BodyTooLarge     = Code{"BODY_TOO_LARGE", http.StatusRequestEntityTooLarge}
	Unavailable      = Code{"UNAVAILABLE", http.StatusServiceUnavailable}
)

// TypePath and a code are the path of the page that explains the code.
const TypePath = "/errors/"

// unavailableRetryAfter is the Retry-After of an unavailable service without a better estimate.
const unavailableRetryAfter = time.Second

// Problem is an error that a caller can see. All its fields but Cause become an
// application/problem+json body (RFC 9457). "type" is the page of the code, relative to the deployment.
type Problem struct {
	Code       Code
	Detail     string         // the mistake and the expected value, for a human
	Field      string         // the path of the invalid field, such as payload.value; "" for none
	Members    map[string]any // further members of the body, such as txId; none replaces a standard member
	RetryAfter time.Duration  // when to try again, rounded up to seconds; 0: no header
	Header     http.Header    // further response headers, such as Allow
	Cause      error          // for the log; never written

	nowhere bool // no caller can find anything at the request's path
}

// NewProblem returns a problem whose detail is formatted as by [fmt.Sprintf]. The caller gets the text,
// so it must not contain an inner layer's error.
func NewProblem(code Code, format string, args ...any) *Problem {
	return &Problem{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// FieldProblem returns an INVALID_FIELD problem of the field at path.
func FieldProblem(path, format string, args ...any) *Problem {
	return &Problem{Code: InvalidField, Field: path, Detail: fmt.Sprintf(format, args...)}
}

// UnavailableBecause returns an UNAVAILABLE problem with a Retry-After. The cause is logged and never
// written; detail is written.
func UnavailableBecause(cause error, detail string) *Problem {
	return &Problem{Code: Unavailable, Detail: detail, RetryAfter: unavailableRetryAfter, Cause: cause}
}

// Error returns the problem with its cause, for the log.
func (p *Problem) Error() string {
	text := p.Code.Name
	if p.Field != "" {
		text += " " + p.Field
	}
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	if p.Cause != nil {
		text += ": " + p.Cause.Error()
	}
	return text
}

func (p *Problem) Unwrap() error { return p.Cause }

// ProblemOf returns the part of err that the caller of r can see. A *[Problem] anywhere in err's chain
// is returned as it is. Any other error is UNAVAILABLE with a Retry-After, and its text is logged and
// not written.
func ProblemOf(r *http.Request, err error) *Problem {
	p, ok := errors.AsType[*Problem](err)
	if !ok {
		p = UnavailableBecause(err, "the service cannot answer at the moment; try again")
	}
	if p.Cause != nil || p.Code.Status >= http.StatusInternalServerError {
		logFailure(r, p, err)
	}
	if p.Code.Status < http.StatusInternalServerError {
		telemetry.RequestRefused.Add(r.Context(), 1, telemetry.Code(p.Code.Name))
	}
	return p
}

// RetryAfterSeconds returns RetryAfter in whole seconds, rounded up, as in its header; 0: no header.
func (p *Problem) RetryAfterSeconds() int64 {
	return int64((max(p.RetryAfter, 0) + time.Second - 1) / time.Second)
}

// Fail answers the request with [ProblemOf] err. It is the only function that writes an error as an
// answer. The handler must not have begun its response.
func Fail(w http.ResponseWriter, r *http.Request, err error) {
	p := ProblemOf(r, err)
	h := w.Header()
	maps.Copy(h, p.Header)
	if seconds := p.RetryAfterSeconds(); seconds > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	if p.endsConnection(r) {
		endConnection(w)
	}
	text, _ := Encode(p.body(requestIDOf(w, r))) // plain values: cannot fail
	write(w, p.Code.Status, "application/problem+json", text)
}

func logFailure(r *http.Request, p *Problem, err error) {
	level := slog.LevelInfo
	if p.Code.Status >= http.StatusInternalServerError {
		level = slog.LevelError
	}
	slog.Log(r.Context(), level, "request failed",
		"code", p.Code.Name, "status", p.Code.Status, "error", err.Error(),
		"method", r.Method, "path", r.URL.Path, "requestUid", RequestID(r.Context()))
}

// body returns the problem's members as RFC 9457, section 3, names them.
func (p *Problem) body(requestID string) map[string]any {
	m := map[string]any{}
	maps.Copy(m, p.Members)
	m["type"] = TypePath + url.PathEscape(p.Code.Name)
	m["title"] = http.StatusText(p.Code.Status)
	m["status"] = p.Code.Status
	m["code"] = p.Code.Name
	if p.Detail != "" {
		m["detail"] = p.Detail
	}
	if p.Field != "" {
		m["field"] = p.Field
	}
	if requestID != "" {
		m["instance"] = "urn:uuid:" + requestID
	}
	return m
}

// Reply answers with v as JSON. A v that cannot be encoded is a defect: it is logged and the caller
// gets UNAVAILABLE. Reply returns nil, so that a handler can end with it.
func Reply(w http.ResponseWriter, r *http.Request, status int, v any) error {
	text, err := Encode(v)
	if err != nil {
		Fail(w, r, fmt.Errorf("encode the response: %w", err))
		return nil
	}
	write(w, status, "application/json", text)
	return nil
}

// Encode returns v as a line of JSON. Texts keep <, > and &: no browser takes an answer for HTML, by its
// type and the header X-Content-Type-Options.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// requestIDOf returns the id of r. A request that has not passed [Edge], such as one of the emulator's
// load balancer, gets one.
func requestIDOf(w http.ResponseWriter, r *http.Request) string {
	id := RequestID(r.Context())
	if id == "" {
		id = uuid.NewString()
		w.Header().Set("X-Request-Id", id)
		guard(w.Header(), r)
	}
	return id
}

func write(w http.ResponseWriter, status int, contentType string, text []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")               // states change, so a stale answer must not be served
	h.Set("Content-Length", strconv.Itoa(len(text))) // the flushed body is complete
	w.WriteHeader(status)
	_, _ = w.Write(text) // the status is sent: the only possible failure is a caller that has left
}

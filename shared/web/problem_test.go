package web_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/web"
)

func fail(err error) *httptest.ResponseRecorder {
	return serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { web.Fail(w, r, err) }), "POST", "/x")
}

func TestFailWritesAProblemAsRFC9457(t *testing.T) {
	t.Parallel()
	conflict := web.Code{Name: "REQUEST_ID_CONFLICT", Status: http.StatusConflict}
	rec := fail(fmt.Errorf("create: %w", &web.Problem{
		Code: conflict, Detail: "another payload", Field: "requestId", RetryAfter: 1500 * time.Millisecond,
		Members: map[string]any{"txId": "t1", "status": "overwritten?"}, Cause: errors.New("inner text"),
	}))
	want := map[string]any{
		"type": "/errors/REQUEST_ID_CONFLICT", "title": "Conflict", "status": 409.0, "code": "REQUEST_ID_CONFLICT",
		"detail": "another payload", "field": "requestId", "txId": "t1", "instance": "urn:uuid:" + rec.Header().Get("X-Request-Id"),
	}
	check.Same(t, "body", body(t, rec), want)
	check.Equal(t, "Retry-After, in seconds rounded up", rec.Header().Get("Retry-After"), "2")
}

// Not parallel: it reads the default logger.
func TestAnUnknownErrorIsUnavailableAndItsTextStaysInTheLog(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	rec := fail(errors.New("dial tcp 10.0.0.7: password=hunter2"))
	check.Equal(t, "answer", fmt.Sprintf("%d %s", rec.Code, body(t, rec)["code"]), "503 UNAVAILABLE")
	if rec.Header().Get("Retry-After") == "" {
		t.Error("got no Retry-After, want one")
	}
	if got := rec.Body.String(); strings.Contains(got, "hunter2") || strings.Contains(got, "10.0.0.7") {
		t.Errorf("got internal text in the body: %s", got)
	}
	if !strings.Contains(log.String(), "hunter2") {
		t.Errorf("got log %q, want the cause in it", log.String())
	}
}

func TestReplyThatCannotBeEncodedIsUnavailable(t *testing.T) {
	t.Parallel()
	rec := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		web.Reply(w, r, http.StatusOK, map[string]any{"f": func() {}})
	}), "GET", "/x")
	check.Equal(t, "answer", body(t, rec)["code"], "UNAVAILABLE")
}

// Texts for people are not escaped for HTML, in answers and problems.
func TestTextsAreNotEscapedForHTML(t *testing.T) {
	t.Parallel()
	const text = "<a> & b"
	reply := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _ = web.Reply(w, r, http.StatusOK, text) }), "GET", "/x")
	check.Equal(t, "answer", reply.Body.String(), "\"<a> & b\"\n")
	if got := fail(web.NewProblem(web.NotFound, "%s", text)).Body.String(); !strings.Contains(got, text) {
		t.Errorf("problem: got %s, want %q in it", got, text)
	}
}

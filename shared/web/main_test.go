package web_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/shared/check"
)

func TestMain(m *testing.M) {
	if port := os.Getenv(childPort); port != "" {
		os.Exit(serveAsChild(port))
	}
	goleak.VerifyTestMain(m)
}

// body decodes a response that must be problem+json.
func body(t *testing.T, rec *httptest.ResponseRecorder) map[string]any {
	t.Helper()
	if got, want := rec.Header().Get("Content-Type"), "application/problem+json"; got != want {
		t.Fatalf("got Content-Type %q, want %q; body %s", got, want, rec.Body)
	}
	var m map[string]any
	if err := json.Unmarshal(rec.Body.Bytes(), &m); err != nil {
		t.Fatalf("got body %s, want JSON: %v", rec.Body, err)
	}
	check.Equal(t, "the member status", m["status"], any(float64(rec.Code)))
	return m
}

func serve(h http.Handler, method, path string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(method, path, nil))
	return rec
}

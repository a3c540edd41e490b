package web_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/web"
)

func TestAPanicIsAnUnavailableWithoutItsText(t *testing.T) {
	t.Parallel()
	rec := serve(web.Edge(web.NewGate(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic("secret of the inside")
	})), "GET", "/x")
	m := body(t, rec)
	check.Equal(t, "answer", m["code"], "UNAVAILABLE")
	if strings.Contains(rec.Body.String(), "secret") {
		t.Errorf("got %s, want nothing of the panic", rec.Body)
	}
	id := rec.Header().Get("X-Request-Id")
	if got, want := m["instance"], "urn:uuid:"+id; id == "" || got != want {
		t.Errorf("got instance %v, want the response's request id %q", got, want)
	}
}

func TestAPanicAfterTheResponseBeganCutsItOff(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(web.Edge(web.NewGate(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<16)) // more than net/http buffers
		panic("late")
	})))
	defer server.Close()
	resp := check.Value(server.Client().Get(server.URL))(t)
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("got a whole response, want it cut off")
	}
}

func TestRequestIDsAreOursAndDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	h := web.Edge(web.NewGate(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen[web.RequestID(r.Context())] = true
	}))
	for range 2 {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Request-Id", "forged")
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	if len(seen) != 2 || seen["forged"] || seen[""] {
		t.Errorf("got ids %v, want two of our own", seen)
	}
}

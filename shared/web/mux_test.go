package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/buildinfo"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/web"
)

func TestMuxRefusesWithProblems(t *testing.T) {
	t.Parallel()
	mux := web.NewMux()
	mux.HandleFunc("POST /api/v1/tx/{txId}/cancel", func(w http.ResponseWriter, r *http.Request) {
		web.Reply(w, r, http.StatusOK, r.PathValue("txId"))
	})
	check.Equal(t, "answer", serve(mux, "POST", "/api/v1/tx/t1/cancel").Body.String(), "\"t1\"\n")
	missing := serve(mux, "GET", "/api/v1/nothing")
	check.Equal(t, "a path that there is not", fmt.Sprintf("%d %s", missing.Code, body(t, missing)["code"]), "404 NOT_FOUND")
	wrong := serve(mux, "DELETE", "/api/v1/tx/t1/cancel")
	check.Equal(t, "another method", fmt.Sprintf("%d %s", wrong.Code, body(t, wrong)["code"]), "405 METHOD_NOT_ALLOWED")
	check.Equal(t, "Allow", wrong.Header().Get("Allow"), "POST")
}

func TestReadinessIsTheCheckUnderADeadline(t *testing.T) {
	t.Parallel()
	var left time.Duration
	var checkErr error
	ready := func(ctx context.Context) error {
		deadline, _ := ctx.Deadline()
		left = time.Until(deadline)
		return checkErr
	}
	mux := web.NewMux()
	mux.HandleHealth(web.Ready(ready))
	check.Equal(t, "answer", serve(mux, "GET", "/readyz").Code, http.StatusOK)
	if left <= 0 || left > 2*time.Second {
		t.Errorf("got %s for the check, want at most 2s", left)
	}
	checkErr = errors.New("no database")
	mux = web.NewMux()
	mux.HandleHealth(web.Ready(ready))
	check.Equal(t, "answer", body(t, serve(mux, "GET", "/readyz"))["code"], "UNAVAILABLE")
	check.Equal(t, "/healthz of a service that is not ready", serve(mux, "GET", "/healthz").Code, http.StatusOK)
}

// Every answer says which version gave it, and GET /version says more.
func TestAnswersNameTheirVersion(t *testing.T) {
	t.Parallel()
	mux := web.NewMux()
	mux.HandleVersion()
	edge := web.Edge(web.NewGate(), mux)
	build := buildinfo.Read()
	for _, path := range []string{"/version", "/nothing"} {
		check.Equal(t, path, serve(edge, "GET", path).Header().Get("Fencepost-Version"), build.Version)
	}
	var m map[string]any
	check.OK(t)(json.Unmarshal(serve(edge, "GET", "/version").Body.Bytes(), &m))
	for name, want := range map[string]any{"version": build.Version, "revision": build.Revision, "modified": build.Modified, "go": build.Go} {
		if m[name] != want || want == "" {
			t.Errorf("%s: got %v, want %v", name, m[name], want)
		}
	}
	check.Equal(t, "members", len(m), 4)
}

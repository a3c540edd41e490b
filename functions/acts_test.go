package functions_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/check"
)

// Each operator call that can change something is one log line, even if it is refused: those of admin, and a
// cancel on the callers' path. Calls that only read, and those of other callers, are not logged.
func TestEachActOfAnOperatorIsLogged(t *testing.T) {
	t.Parallel()
	h := build(t)
	app := h.opened(h.transferSettings()...)
	acts := 0
	for _, pattern := range app.Patterns() {
		method, path, _ := strings.Cut(pattern, " ")
		if !strings.HasPrefix(path, "/admin/v1/") && pattern != "POST /api/v1/tx/{txId}/cancel" {
			continue
		}
		path = strings.NewReplacer("{submitter}", "eip155:1337:0x00000000000000000000000000000000000000a1", "{txId}", "018f0000-0000-7000-8000-000000000000",
			"{req_id}", "r", "{user_id}", "7", "{user}", "7", "{asset}", "USDT", "{address_id}", "1", "{id}", "1").Replace(path)
		before := h.log.size()
		h.as("shop", method, path, map[string]any{})
		h.as("ann", method, path, map[string]any{})
		told := h.log.since(before, "message", serve.OperatorCalls)
		want := 1
		if method == http.MethodGet {
			want = 0
		} else {
			acts++
		}
		if len(told) != want || want == 1 && (told[0]["operator"] != "email:ann@fencepost.example" || told[0]["path"] != path || told[0]["method"] != method) {
			t.Errorf("%s: got the lines %v, want %d", pattern, told, want)
		}
	}
	if acts < 15 {
		t.Errorf("acts of operators: got %d, want at least 15", acts)
	}
}

// Refusals are counted by code, and those of creates by their result. The test runs alone, since the metrics belong to the process.
func TestRefusalsAreCounted(t *testing.T) {
	recorded := metricSeries()
	h := build(t)
	recorded.take()
	h.as("shop", "GET", "/admin/v1/submitters", nil)
	call(t, t.Context(), "", "GET", h.url+"/api/v1/tx", nil)
	call(t, t.Context(), "", "POST", h.url+"/internal/sweep", nil)
	h.Register(t, shopAccount, 1)
	for _, body := range []any{intentText("past", `, "validUntil": "2000-01-01T00:00:00Z"`), intentOf("unprintable\u200b")} {
		h.as("shop", "POST", "/api/v1/tx", body).wants(t, 400, "%v", body)
	}
	got := recorded.take()
	for name, want := range map[string]int64{
		"fencepost_request_refused_total{code=FORBIDDEN}": 1, "fencepost_request_refused_total{code=UNAUTHORIZED}": 2, "fencepost_request_refused_total{code=INVALID_FIELD}": 2,
		"fencepost_tx_create_total{result=refused}": 2, "fencepost_tx_create_total{result=error}": 0,
	} {
		check.Equal(t, name, got[name], want)
	}
}

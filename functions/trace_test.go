package functions_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fencepost/fencepost/shared/check"
)

// The sampled bit of a trace is trusted only if it comes from a task.
func TestSampledBitsOfCallersDoNotCount(t *testing.T) {
	t.Parallel()
	h := build(t)
	const of = "4bf92f3577b34da6a3ce929d0e0e47"
	tasks := h.issuer.token(t, "internal", jwt.MapClaims{"sub": "1", "email": "tasks@fencepost.example", "email_verified": true})
	for i, c := range []struct {
		token, method, path string
		sampled             bool
	}{
		{"", http.MethodGet, "/api/v1/tx/x", false},
		{h.callerToken("shop"), http.MethodGet, "/api/v1/tx/x", false},
		{h.callerToken("shop"), http.MethodPost, "/api/v1/tx", false},
		{h.callerToken("ann"), http.MethodGet, "/admin/v1/submitters", false},
		{h.userToken(alice), http.MethodGet, "/api/v1/internal_transfer", false},
		{tasks, http.MethodPost, "/internal/sweep", true},
		{tasks, http.MethodPost, "/internal/advance", true},
		{tasks, http.MethodPost, "/internal/transfer", true},
	} {
		id := fmt.Sprintf("%s%02d", of, i)
		ctx := context.WithValue(t.Context(), headerKey{}, http.Header{"Traceparent": {"00-" + id + "-00f067aa0ba902b7-01"}})
		call(t, ctx, c.token, c.method, h.url+c.path, "")
		var line map[string]any
		await(t, "the line of "+c.path, func() bool { line = h.log.find("logging.googleapis.com/trace", id); return line != nil })
		check.Equal(t, c.method+" "+c.path+": sampled", line["logging.googleapis.com/trace_sampled"], any(c.sampled))
	}
}

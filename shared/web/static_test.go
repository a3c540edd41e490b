package web_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/web"
)

// A static text is answered with an ETag, and not again to a caller that has it.
func TestStaticTextsCanBeCached(t *testing.T) {
	t.Parallel()
	const text = "openapi: 3.1.1"
	served := web.NewStatic("application/yaml", []byte(text))
	ask := func(known string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/openapi.yaml", nil)
		r.Header.Set("If-None-Match", known)
		w := httptest.NewRecorder()
		served.ServeHTTP(w, r)
		return w
	}
	first := ask(`"0123456789abcdef"`)
	check.Equal(t, "status", first.Code, http.StatusOK)
	check.Equal(t, "body", first.Body.String(), text)
	check.Equal(t, "Cache-Control", first.Header().Get("Cache-Control"), "public, max-age=300")
	check.Equal(t, "Content-Type", first.Header().Get("Content-Type"), "application/yaml")
	second := ask("W/\"a\", " + first.Header().Get("ETag"))
	check.Equal(t, "status of what is known", second.Code, http.StatusNotModified)
	check.Equal(t, "body of what is known", second.Body.String(), "")
}

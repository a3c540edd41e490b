package local

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// The control address gives tokens to programs at this machine, and to no web page.
func TestControlServesOnlyThisMachine(t *testing.T) {
	t.Parallel()
	served := refuseForeignRequests(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, c := range []struct {
		host, origin string
		want         int
	}{
		{"127.0.0.1:7070", "", 200}, {"localhost:7070", "", 200}, {"[::1]:7070", "", 200}, {"127.0.0.1", "", 200},
		{"attacker.example:7070", "", 403}, {"127.0.0.1.attacker.example", "", 403}, {"192.0.2.7:7070", "", 403}, {"", "", 403},
		{"127.0.0.1:7070", "http://attacker.example", 403}, {"localhost:7070", "null", 403},
	} {
		r := httptest.NewRequest(http.MethodPost, "/drill/reorg", nil)
		r.Host = c.host
		r.Header.Set("Origin", c.origin)
		w := httptest.NewRecorder()
		served.ServeHTTP(w, r)
		check.Equal(t, "host "+c.host+", origin "+c.origin, w.Code, c.want)
	}
	for _, addr := range []string{"0.0.0.0:0", ":0", "192.0.2.7:0"} {
		if _, err := Serve(nil, addr, false); err == nil {
			t.Errorf("%s: got no error, want it refused", addr)
		}
	}
}

package signin

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
)

func sealerOf(t *testing.T, keys ...string) *Sealer {
	t.Helper()
	for i, k := range keys {
		keys[i] = base64.StdEncoding.EncodeToString([]byte(strings.Repeat(k, 32)))
	}
	return check.Value(NewSealer(keys))(t)
}

// What one key has sealed, a sealer with that key second opens. No other does, nor for another purpose, nor
// after a change.
func TestSealedTextsAreOpenedByTheirKeys(t *testing.T) {
	t.Parallel()
	old, both, other := sealerOf(t, "a"), sealerOf(t, "b", "a"), sealerOf(t, "c")
	sealed := check.Value(old.seal("p", session{ID: "1", Token: "t"}))(t)
	again := check.Value(old.seal("p", session{ID: "1", Token: "t"}))(t)
	if sealed == again {
		t.Errorf("sealed twice: got %q and %q, want two texts", sealed, again)
	}
	changed := "A" + sealed[1:]
	if changed == sealed {
		changed = "B" + sealed[1:]
	}
	for name, c := range map[string]struct {
		by            *Sealer
		purpose, text string
		want          bool
	}{
		"by its key": {old, "p", sealed, true}, "while the key is changed": {both, "p", sealed, true}, "by another key": {other, "p", sealed, false},
		"for another purpose": {old, "q", sealed, false}, "changed": {old, "p", changed, false}, "cut": {old, "p", sealed[:20], false}, "none": {old, "p", "", false}, "no base64": {old, "p", "%", false},
	} {
		var got session
		check.Equal(t, name, c.by.open(c.purpose, c.text, &got), c.want)
		check.Equal(t, name+": token", got.Token == "t", c.want)
	}
	token := old.FormToken("s")
	check.Equal(t, "a form's token", old.FormTokenIs("s", token), true)
	check.Equal(t, "while the key is changed", both.FormTokenIs("s", token), true)
	check.Equal(t, "of another session", old.FormTokenIs("r", token), false)
	check.Equal(t, "by another key", other.FormTokenIs("s", token), false)
	begun := time.Date(2026, 11, 27, 0, 1, 0, 0, time.UTC)
	old.now = func() time.Time { return begun }
	token = old.FormToken("s")
	for after, want := range map[time.Duration]bool{0: true, 23 * time.Hour: true, 47 * time.Hour: true, 48 * time.Hour: false, -time.Hour: false} {
		old.now = func() time.Time { return begun.Add(after) }
		check.Equal(t, fmt.Sprint("a form's token after ", after), old.FormTokenIs("s", token), want)
	}
	for _, keys := range [][]string{nil, {"x"}, {base64.StdEncoding.EncodeToString(make([]byte, 31))}} {
		if _, err := NewSealer(keys); err == nil {
			t.Errorf("keys %q: got no error, want one", keys)
		}
	}
}

// A cookie is read by no script, and is sent to no other site. By TLS a browser takes it from this host alone.
func TestCookiesAreClosed(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"console.example": "__Host-n=v; Path=/; Max-Age=60; HttpOnly; Secure; SameSite=Lax",
		"127.0.0.1:8080":  "n=v; Path=/; Max-Age=60; HttpOnly; SameSite=Lax", "localhost:8080": "n=v; Path=/; Max-Age=60; HttpOnly; SameSite=Lax",
		"[::1]:8080":            "n=v; Path=/; Max-Age=60; HttpOnly; SameSite=Lax",
		"127.0.0.1.example:443": "__Host-n=v; Path=/; Max-Age=60; HttpOnly; Secure; SameSite=Lax",
	} {
		r := httptest.NewRequest(http.MethodGet, "/console/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		setCookie(w, r, "n", "v", time.Minute)
		check.Equal(t, host, w.Header().Get("Set-Cookie"), want)
	}
}

// After the sign-in a browser goes to a page of the console and nowhere else.
func TestTheSignInLeadsToTheConsole(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{
		"": "/console/", "/console/tx/1?a=b": "/console/tx/1?a=b", "/console/submitters/eip155:1:0xa": "/console/submitters/eip155:1:0xa",
		"//attacker.example/console/": "/console/", "https://attacker.example/console/": "/console/", "/console/\\attacker.example": "/console/",
		"/admin/v1/": "/console/", "javascript:alert(1)": "/console/", "/console/\x00": "/console/", "/console": "/console/",
	} {
		check.Equal(t, to, after(to), want)
	}
}

// The local environment's session is for this machine, also behind its load balancer.
func TestLocalSessionsAreForThisMachine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		remote, forwarded string
		want              bool
	}{
		{"127.0.0.1:1", "", true}, {"[::1]:1", "", true}, {"127.0.0.1:1", "127.0.0.1", true}, {"192.0.2.7:1", "", false},
		{"127.0.0.1:1", "192.0.2.7", false}, {"127.0.0.1:1", "192.0.2.7, 127.0.0.1", false}, {"192.0.2.7:1", "127.0.0.1", false}, {"127.0.0.1:1", "unknown", false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/console/", nil)
		r.RemoteAddr = c.remote
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		check.Equal(t, c.remote+" "+c.forwarded, fromThisMachine(r), c.want)
	}
}

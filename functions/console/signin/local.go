package signin

import (
	"net"
	"net/http"
	"strings"
)

type local struct{ *issuer }

// NewLocal returns the way of the local environment: by a one-time code that its issuer has made, in a URL
// that is opened at this machine. The issuer ends the code by its first use, or after a minute.
func NewLocal(o Options) Way { return local{newIssuer(o)} }

// Person implements [Way].
func (l local) Person(r *http.Request) (Person, error) {
	if !fromThisMachine(r) {
		return Person{}, ErrSignedOut
	}
	return l.issuer.Person(r)
}

// Routes implements [Way]. The code leaves the browser's address by a redirect.
func (l local) Routes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"GET /console/sign-in": func(w http.ResponseWriter, r *http.Request) {
			l.Page(w, http.StatusUnauthorized, "Not signed in",
				"Open the console's URL that the emulator has printed. Its code is valid for a minute and once. For a new one: curl -sS -X POST $CONTROL/console")
		},
		"GET /console/enter": func(w http.ResponseWriter, r *http.Request) {
			if !fromThisMachine(r) || r.Method != http.MethodGet {
				l.Page(w, http.StatusForbidden, "Not signed in", "A one-time code is valid at the machine of the emulator alone.")
				return
			}
			l.enter(w, r, home, "", r.URL.Query().Get("code"))
		},
		"POST /console/sign-out": signOut(l.Page),
	}
}

// fromThisMachine reports whether the request comes from this machine, also behind the emulator's load balancer,
// which names the client.
func fromThisMachine(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil || !net.ParseIP(host).IsLoopback() {
		return false
	}
	for _, line := range r.Header.Values("X-Forwarded-For") {
		for client := range strings.SplitSeq(line, ",") {
			if !net.ParseIP(strings.TrimSpace(client)).IsLoopback() {
				return false
			}
		}
	}
	return true
}

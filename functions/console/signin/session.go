package signin

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fencepost/fencepost/shared/web"
)

const (
	sessionCookie = "console-session"
	flowCookie    = "console-sign-in"

	maxCookieBytes = 4000 // browsers keep 4,096 with the name and the attributes
)

// sessions keeps the token of a person in a sealed cookie.
type sessions struct {
	sealer   *Sealer
	verifier *web.Verifier
}

// session is the content of the cookie.
type session struct {
	ID    string `json:"id"`
	Token string `json:"token"`
}

// person returns who has the request's session.
func (s sessions) person(r *http.Request) (Person, error) {
	var of session
	cookie, err := r.Cookie(cookieName(r, sessionCookie))
	if err != nil || !s.sealer.open(sessionCookie, cookie.Value, &of) {
		return Person{}, ErrSignedOut
	}
	return verify(r.Context(), s.verifier, of.Token, of.ID)
}

// errTooLong reports a token that no cookie holds.
var errTooLong = errors.New("the token is too long for a cookie")

// begin begins a session of the person whom the token names, until the token expires. The nonce is the one
// that the token must have; "": none. The error is that of [verify], or [errTooLong].
func (s sessions) begin(ctx context.Context, w http.ResponseWriter, r *http.Request, token, nonce string) error {
	if _, err := verify(ctx, s.verifier, token, ""); err != nil {
		return err
	}
	claims, err := claimsOf(token)
	if err != nil {
		return err
	}
	if nonce != "" && claims.Nonce != nonce {
		return errors.Join(ErrSignedOut, errors.New("the token was made for another sign-in"))
	}
	sealed, err := s.sealer.seal(sessionCookie, session{ID: rand.Text(), Token: token})
	if err != nil {
		return err
	}
	if len(sealed) > maxCookieBytes {
		return fmt.Errorf("%w: %d bytes, sealed %d", errTooLong, len(token), len(sealed))
	}
	setCookie(w, r, sessionCookie, sealed, time.Until(time.Unix(claims.Expiry, 0)))
	return nil
}

// tokenClaims are claims that package web does not return.
type tokenClaims struct {
	Expiry int64  `json:"exp"`
	Nonce  string `json:"nonce"`
}

// claimsOf reads the claims of a verified token.
func claimsOf(token string) (c tokenClaims, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, errors.New("the token is not in compact form")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(payload, &c)
}

// setCookie sets a cookie that no script reads and that no other site's form sends.
func setCookie(w http.ResponseWriter, r *http.Request, name, value string, lasts time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r, name), Value: value, Path: "/", MaxAge: max(int(lasts/time.Second), 1),
		HttpOnly: true, Secure: !isThisMachine(r.Host), SameSite: http.SameSiteLaxMode,
	})
}

// dropCookie removes a cookie.
func dropCookie(w http.ResponseWriter, r *http.Request, name string) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r, name), Path: "/", MaxAge: -1, HttpOnly: true, Secure: !isThisMachine(r.Host), SameSite: http.SameSiteLaxMode,
	})
}

// cookieName returns the name under which browsers keep a cookie. With the prefix they accept it from this
// host by TLS alone. At this machine there is no TLS.
func cookieName(r *http.Request, name string) string {
	if isThisMachine(r.Host) {
		return name
	}
	return "__Host-" + name
}

// origin returns the scheme and host at which the browser reaches the console. The host is one of the setting
// console.hosts.
func origin(r *http.Request) string { return Origin(r.Host) }

// Origin returns the origin of a host that serves the console: by TLS, except at this machine.
func Origin(host string) string {
	if isThisMachine(host) {
		return "http://" + host
	}
	return "https://" + host
}

// isThisMachine reports whether host, perhaps with a port, is localhost or a loopback address.
func isThisMachine(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

const home = "/console/"

// after returns the path to go to after the sign-in: text if it is one of the console, or else its first page.
func after(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(text, home) || strings.ContainsAny(text, "\\") {
		return home
	}
	return u.RequestURI()
}

// signOut ends the session of the browser.
func signOut(page Page) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		dropCookie(w, r, sessionCookie)
		page(w, http.StatusOK, "Signed out", "This browser is signed out of the console. To sign in again, open "+home+".")
	}
}

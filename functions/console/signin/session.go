package signin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	sessionCookie = "console-session"
	flowCookie    = "console-sign-in"

	maxCookieBytes = 4000 // browsers keep 4,096 with the name and the attributes
)

// session is the content of the cookie.
type session struct {
	ID    string `json:"id"`
	Token string `json:"token"`
}

// Person implements [Way].
func (i *issuer) Person(r *http.Request) (Person, error) {
	var of session
	cookie, err := r.Cookie(cookieName(r, sessionCookie))
	if err != nil || !i.Sealer.open(sessionCookie, cookie.Value, &of) {
		return Person{}, ErrSignedOut
	}
	return verify(r.Context(), i.Verifier, of.Token, of.ID)
}

// errTooLong reports a token that no cookie holds.
var errTooLong = errors.New("the token is too long for a cookie")

// begin begins a session of the person whom the token names, until the token expires. The nonce is the one
// that the token must have; "": none. The error is that of [verify], or [errTooLong].
func (i *issuer) begin(ctx context.Context, w http.ResponseWriter, r *http.Request, token, nonce string) error {
	p, err := verify(ctx, i.Verifier, token, "")
	if err != nil {
		return err
	}
	if nonce != "" && p.claims.Nonce != nonce {
		return errors.Join(ErrSignedOut, errors.New("the token was made for another sign-in"))
	}
	sealed, err := i.Sealer.seal(sessionCookie, session{ID: rand.Text(), Token: token})
	if err != nil {
		return err
	}
	if len(sealed) > maxCookieBytes {
		return fmt.Errorf("%w: %d bytes, sealed %d", errTooLong, len(token), len(sealed))
	}
	setCookie(w, r, sessionCookie, sealed, time.Until(p.claims.Expiry))
	return nil
}

// setCookie sets a cookie that no script reads and that no other site's form sends.
func setCookie(w http.ResponseWriter, r *http.Request, name, value string, lasts time.Duration) {
	age := max(int(lasts/time.Second), 1)
	if value == "" { // the browser removes it
		age = -1
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r, name), Value: value, Path: "/", MaxAge: age,
		HttpOnly: true, Secure: !isThisMachine(r.Host), SameSite: http.SameSiteLaxMode,
	})
}

// dropCookie removes a cookie.
func dropCookie(w http.ResponseWriter, r *http.Request, name string) { setCookie(w, r, name, "", 0) }

// cookieName returns the name under which browsers keep a cookie. With the prefix they accept it from this
// host by TLS alone. At this machine there is no TLS.
func cookieName(r *http.Request, name string) string {
	if isThisMachine(r.Host) {
		return name
	}
	return "__Host-" + name
}

// Origin returns the origin of a host that serves the console, one of the setting console.hosts: by TLS, except at this
// machine.
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

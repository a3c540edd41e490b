package signin

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/fencepost/fencepost/shared/web"
)

const (
	issuerTimeout = 5 * time.Second  // of one call to the issuer
	flowLasts     = 10 * time.Minute // how long a person may take to sign in at the issuer
)

// Options are those of a way with sessions.
type Options struct {
	Issuer       string        // of the tokens, with a discovery document
	ClientID     string        // the audience of the tokens
	ClientSecret string        // "": a public client
	Verifier     *web.Verifier // of the issuer's tokens for the client
	Sealer       *Sealer
	Page         Page
	Log          *slog.Logger
}

// issuer gets tokens from an issuer. It reads the discovery document before the first.
type issuer struct {
	Options
	sessions
	client *http.Client

	mu        sync.Mutex
	discovery *discovery // nil: none has begun, or the last one failed
}

// discovery is one reading of the discovery document, which all sign-ins of its time wait for.
type discovery struct {
	ended    chan struct{} // closed when the following are set
	endpoint oauth2.Endpoint
	err      error
}

func newIssuer(o Options) *issuer {
	return &issuer{
		Options: o, sessions: sessions{o.Sealer, o.Verifier},
		client: &http.Client{Timeout: issuerTimeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}},
	}
}

// Person implements [Way].
func (i *issuer) Person(r *http.Request) (Person, error) { return i.person(r) }

// config returns the client at the issuer, for the browser's host.
func (i *issuer) config(ctx context.Context, r *http.Request) (*oauth2.Config, error) {
	d := i.discover()
	select {
	case <-d.ended:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the discovery document of %s: %w", i.Issuer, ctx.Err())
	}
	if d.err != nil {
		return nil, d.err
	}
	return &oauth2.Config{
		ClientID: i.ClientID, ClientSecret: i.ClientSecret, Endpoint: d.endpoint,
		RedirectURL: origin(r) + "/console/callback", Scopes: []string{oidc.ScopeOpenID, "email"},
	}, nil
}

// discover returns the discovery that has succeeded or runs. Where there is none, it begins one, which goes on if the
// browser leaves. After a failed one, the next sign-in begins another.
func (i *issuer) discover() *discovery {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.discovery != nil {
		return i.discovery
	}
	d := &discovery{ended: make(chan struct{})}
	i.discovery = d
	go func() {
		defer close(d.ended)
		if d.endpoint, d.err = i.readEndpoint(); d.err != nil {
			i.mu.Lock()
			defer i.mu.Unlock()
			i.discovery = nil
		}
	}()
	return d
}

// readEndpoint reads the discovery document, within the client's time.
func (i *issuer) readEndpoint() (oauth2.Endpoint, error) {
	provider, err := oidc.NewProvider(oidc.ClientContext(context.Background(), i.client), i.Issuer)
	if err != nil {
		return oauth2.Endpoint{}, fmt.Errorf("read the discovery document of %s: %w", i.Issuer, err)
	}
	endpoint := provider.Endpoint()
	endpoint.AuthStyle = oauth2.AuthStyleInParams
	if i.ClientSecret != "" {
		endpoint.AuthStyle = oauth2.AuthStyleInHeader // each issuer knows it; to try both would use the code twice
	}
	return endpoint, nil
}

// exchange returns the ID token for an authorization code.
func (i *issuer) exchange(r *http.Request, code string, more ...oauth2.AuthCodeOption) (string, error) {
	config, err := i.config(r.Context(), r)
	if err != nil {
		return "", err
	}
	answer, err := config.Exchange(context.WithValue(r.Context(), oauth2.HTTPClient, i.client), code, more...)
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refused.Response != nil && refused.Response.StatusCode < http.StatusInternalServerError {
		return "", errors.Join(ErrSignedOut, err)
	}
	if err != nil {
		return "", fmt.Errorf("exchange a code at %s: %w", i.Issuer, err)
	}
	token, ok := answer.Extra("id_token").(string)
	if !ok {
		return "", fmt.Errorf("%s gave no ID token", i.Issuer)
	}
	return token, nil
}

// enter begins a session by a code of the issuer, and goes to the path.
func (i *issuer) enter(w http.ResponseWriter, r *http.Request, to, nonce, code string, more ...oauth2.AuthCodeOption) {
	token, err := i.exchange(r, code, more...)
	if err == nil {
		err = i.begin(r.Context(), w, r, token, nonce)
	}
	switch {
	case err == nil:
		http.Redirect(w, r, to, http.StatusSeeOther)
		return
	case errors.Is(err, ErrSignedOut):
		i.Page(w, http.StatusForbidden, "Not signed in", "The sign-in was refused: it was used before, has expired, or has no verified e-mail address. Open "+home+" to try again.")
	case errors.Is(err, errTooLong):
		i.Page(w, http.StatusBadGateway, "Not signed in", "The token of the issuer does not fit into a cookie. Give the console's client fewer claims, such as no groups.")
	default:
		i.Page(w, http.StatusServiceUnavailable, "The sign-in is unavailable", "The issuer of tokens does not answer. Try again in a minute.")
	}
	i.Log.WarnContext(r.Context(), "a sign-in to the console failed", "error", err.Error())
}

type codeFlow struct{ *issuer }

// NewOIDC returns the way by the authorization code flow with PKCE (RFC 7636).
func NewOIDC(o Options) Way { return codeFlow{newIssuer(o)} }

// Routes implements [Way].
func (c codeFlow) Routes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"GET /console/sign-in":   c.signIn,
		"GET /console/callback":  c.callback,
		"POST /console/sign-out": signOut(c.Page),
	}
}

// flow is one sign-in that has begun, in a sealed cookie of the browser.
type flow struct {
	State    string    `json:"state"`
	Nonce    string    `json:"nonce"`
	Verifier string    `json:"verifier"`
	To       string    `json:"to"`
	Until    time.Time `json:"until"`
}

// signIn sends the browser to the issuer.
func (c codeFlow) signIn(w http.ResponseWriter, r *http.Request) {
	config, err := c.config(r.Context(), r)
	if err != nil {
		c.Log.WarnContext(r.Context(), "a sign-in to the console failed", "error", err.Error())
		c.Page(w, http.StatusServiceUnavailable, "The sign-in is unavailable", "The issuer of tokens does not answer. Try again in a minute.")
		return
	}
	f := flow{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), To: after(r.URL.Query().Get("to")), Until: time.Now().Add(flowLasts)}
	sealed, err := c.Sealer.seal(flowCookie, f)
	if err != nil || len(sealed) > maxCookieBytes {
		f.To = home
		sealed, _ = c.Sealer.seal(flowCookie, f) // texts of known lengths: it cannot fail
	}
	setCookie(w, r, flowCookie, sealed, flowLasts)
	http.Redirect(w, r, config.AuthCodeURL(f.State, oidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier)), http.StatusSeeOther)
}

// callback ends a sign-in that this browser has begun.
func (c codeFlow) callback(w http.ResponseWriter, r *http.Request) {
	var f flow
	cookie, err := r.Cookie(cookieName(r, flowCookie))
	q := r.URL.Query()
	dropCookie(w, r, flowCookie)
	if err != nil || !c.Sealer.open(flowCookie, cookie.Value, &f) || time.Now().After(f.Until) ||
		subtle.ConstantTimeCompare([]byte(f.State), []byte(q.Get("state"))) != 1 {
		c.Page(w, http.StatusForbidden, "Not signed in", "This browser has not begun this sign-in, or more than ten minutes ago. Open "+home+" to try again.")
		return
	}
	if q.Get("code") == "" {
		c.Page(w, http.StatusForbidden, "Not signed in", "The issuer of tokens has refused the sign-in. Open "+home+" to try again.")
		return
	}
	c.enter(w, r, f.To, f.Nonce, q.Get("code"), oauth2.VerifierOption(f.Verifier))
}

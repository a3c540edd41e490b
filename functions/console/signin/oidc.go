package signin

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
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
	client   *http.Client
	endpoint func(context.Context) (oauth2.Endpoint, error) // of the discovery document, for all sign-ins
}

func newIssuer(o Options) *issuer {
	i := &issuer{
		Options: o,
		client:  &http.Client{Timeout: issuerTimeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}},
	}
	i.endpoint = web.Shared(i.readEndpoint, func(err error) time.Duration {
		if err != nil {
			return 0
		}
		return math.MaxInt64
	})
	return i
}

// config returns the client at the issuer, for the browser's host.
func (i *issuer) config(ctx context.Context, r *http.Request) (*oauth2.Config, error) {
	endpoint, err := i.endpoint(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the discovery document of %s: %w", i.Issuer, err)
	}
	return &oauth2.Config{
		ClientID: i.ClientID, ClientSecret: i.ClientSecret, Endpoint: endpoint,
		RedirectURL: Origin(r.Host) + "/console/callback", Scopes: []string{oidc.ScopeOpenID, "email"},
	}, nil
}

// readEndpoint reads the discovery document, within the client's time.
func (i *issuer) readEndpoint(ctx context.Context) (oauth2.Endpoint, error) {
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, i.client), i.Issuer)
	if err != nil {
		return oauth2.Endpoint{}, err
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
	if err != nil {
		i.fail(w, r, err)
		return
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// fail answers a sign-in that failed.
func (i *issuer) fail(w http.ResponseWriter, r *http.Request, err error) {
	switch {
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
		c.fail(w, r, err)
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

package issuer

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// codeLasts is how long a code can be exchanged.
const codeLasts = time.Minute

// grant is what a code is exchanged for.
type grant struct {
	email, audience string
	nonce           string // "": none
	challenge       string // of PKCE with S256; "": the code was given to a person
	redirect        string
	until           time.Time
}

// Code returns a one-time code for a person. POST /token exchanges it once, within a minute, for a token of
// the account for the audience. The error is that of [Issuer.Token].
func (i *Issuer) Code(email, audience string) (string, error) {
	if _, err := i.keyFor(email); err != nil {
		return "", err
	}
	return i.keep(grant{email: email, audience: audience}), nil
}

func (i *Issuer) keep(g grant) (code string) {
	code, g.until = rand.Text(), i.options.Now().Add(codeLasts)
	i.codes.Store(code, g)
	return code
}

// SignIn makes the account sign in at each later GET /authorize; "" signs the last account out.
func (i *Issuer) SignIn(email string) { i.signedIn.Store(email) }

// serveAuthorize answers a request of the authorization code flow at once: the account of [Issuer.SignIn] agrees.
func (i *Issuer) serveAuthorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	to, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || to.Host == "" || q.Get("response_type") != "code" || q.Get("client_id") == "" || q.Get("code_challenge") == "" || q.Get("code_challenge_method") != "S256" {
		http.Error(w, "want response_type=code, client_id, redirect_uri, and code_challenge by S256", http.StatusBadRequest)
		return
	}
	answer := url.Values{"state": {q.Get("state")}}
	if email, _ := i.signedIn.Load().(string); email == "" {
		answer.Set("error", "access_denied")
	} else {
		answer.Set("code", i.keep(grant{
			email: email, audience: q.Get("client_id"), nonce: q.Get("nonce"), challenge: q.Get("code_challenge"), redirect: to.String(),
		}))
	}
	to.RawQuery = answer.Encode()
	http.Redirect(w, r, to.String(), http.StatusFound)
}

// serveToken exchanges a code. Its first use ends it, also a refused one.
func (i *Issuer) serveToken(w http.ResponseWriter, r *http.Request) {
	client := r.PostFormValue("client_id")
	if name, _, ok := r.BasicAuth(); ok {
		client = name
	}
	kept, _ := i.codes.LoadAndDelete(r.PostFormValue("code"))
	g, ok := kept.(grant)
	ok = ok && r.PostFormValue("grant_type") == "authorization_code" && i.options.Now().Before(g.until) && client == g.audience
	if g.challenge != "" {
		sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		ok = ok && base64.RawURLEncoding.EncodeToString(sum[:]) == g.challenge && r.PostFormValue("redirect_uri") == g.redirect
	}
	if !ok {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	claims := i.claims(g.email, g.audience)
	if g.nonce != "" {
		claims["nonce"] = g.nonce
	}
	token, err := i.key.Load().sign(claims)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"access_token": rand.Text(), "token_type": "Bearer", "expires_in": int(i.lasts() / time.Second), "id_token": token})
}

// SetControl leads the paths under /control/ to the emulator's control address, such as http://127.0.0.1:7070.
// The function processes know the issuer, and are started before that address is there.
func (i *Issuer) SetControl(url string) { i.control.Store(url) }

func (i *Issuer) redirectToControl(w http.ResponseWriter, r *http.Request) {
	control, _ := i.control.Load().(string)
	if control == "" {
		http.Error(w, "this local environment has no control address", http.StatusNotFound)
		return
	}
	http.Redirect(w, r, control+strings.TrimPrefix(r.URL.RequestURI(), "/control"), http.StatusTemporaryRedirect)
}

package signin

import (
	"net/http"

	"github.com/fencepost/fencepost/shared/web"
)

// iapHeader has the signed token of Identity-Aware Proxy. The proxy replaces it in each request.
const iapHeader = "X-Goog-IAP-JWT-Assertion"

// SubjectPrefixOfIAP begins the subjects of Google accounts in the tokens of Identity-Aware Proxy.
const SubjectPrefixOfIAP = "accounts.google.com:"

type iap struct {
	verifier *web.Verifier
	page     Page
}

// NewIAP returns the way by Google's Identity-Aware Proxy in front of the console. The verifier accepts the
// proxy's tokens for the console's backend service alone. A request around the proxy has no such token.
func NewIAP(v *web.Verifier, page Page) Way { return iap{v, page} }

// Person implements [Way]. The form's token is bound to the person and the day: the proxy shows no session.
func (i iap) Person(r *http.Request) (Person, error) {
	values := r.Header.Values(iapHeader)
	if len(values) != 1 {
		return Person{}, ErrSignedOut
	}
	p, err := verify(r.Context(), i.verifier, values[0], "")
	p.Session = "iap " + p.Subject + " " + p.Email
	return p, err
}

// Routes implements [Way]. The proxy's sign-in comes before each request.
func (i iap) Routes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"GET /console/sign-in": func(w http.ResponseWriter, r *http.Request) {
			i.page(w, http.StatusUnauthorized, "Not signed in",
				"Identity-Aware Proxy signs people in to this console, and this request did not come through it. Open the console at its public address.")
		},
		"POST /console/sign-out": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, home+"?gcp-iap-mode=CLEAR_LOGIN_COOKIE", http.StatusSeeOther)
		},
	}
}

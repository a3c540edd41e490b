// Package signin identifies the person who makes a request to the console. It knows three ways: the header of
// Identity-Aware Proxy, the authorization code flow of an OIDC issuer, and a one-time code of the local environment.
//
// Each way gives a signed token that names the person, which the console passes on to the function admin. Sessions
// are in a sealed cookie: the process keeps no state.
package signin

import (
	"context"
	"errors"
	"net/http"

	"github.com/fencepost/fencepost/shared/web"
)

// ErrSignedOut reports a request without a session, or with one that has ended.
var ErrSignedOut = errors.New("the request has no session")

// Person is a person who has signed in. Email or Subject is set.
type Person struct {
	Email     string // verified by the issuer; "": none
	Subject   string // the id at the issuer of callers' tokens; "": none
	Assertion string // the signed token that names the person, for the function admin
	Session   string // the session or person to which a form's token is bound

	claims web.Identity // of the token
}

// Way is a way of signing in.
type Way interface {
	// Person returns who makes the request. The error is [ErrSignedOut], or says why the token cannot be
	// verified at the moment.
	Person(r *http.Request) (Person, error)

	// Routes returns the handlers of signing in and out, by pattern. GET /console/sign-in is one of them,
	// with the path to go to afterwards as the parameter "to".
	Routes() map[string]http.HandlerFunc
}

// Page answers with a page for a person who is not signed in.
type Page func(w http.ResponseWriter, status int, title, text string)

// verify returns the person whom a token names.
func verify(ctx context.Context, v *web.Verifier, raw, session string) (Person, error) {
	id, err := v.Verify(ctx, raw)
	if p, ok := errors.AsType[*web.Problem](err); ok && p.Code == web.Unauthorized {
		return Person{}, errors.Join(ErrSignedOut, err)
	}
	if err != nil {
		return Person{}, err
	}
	p := Person{Subject: id.Subject, Assertion: raw, Session: session, claims: id}
	if id.EmailVerified {
		p.Email = id.Email
	}
	if p.Email == "" && p.Subject == "" {
		return Person{}, errors.Join(ErrSignedOut, errors.New("the token has no verified e-mail address"))
	}
	return p, nil
}

package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

const (
	verifyDeadline  = 5 * time.Second  // for one token, fetching keys included
	futureTolerance = 5 * time.Minute  // of iat, as go-oidc has it for nbf
	maxTokenBytes   = 16 << 10         // Google's are about 1 KiB
	keysRefresh     = 10 * time.Second // see VerifierOptions.KeysRefresh
)

// asymmetric are the algorithms that a [Verifier] can be told to accept. With
// none of them is a public key a secret, which is what HS256 would make of it.
var asymmetric = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512,
	oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
}

// VerifierOptions name whose tokens are accepted, and for whom.
type VerifierOptions struct {
	Issuer     string   // the "iss" of the tokens, such as https://accounts.google.com
	JWKSURL    string   // where the issuer's keys are, such as https://www.googleapis.com/oauth2/v3/certs
	Audience   string   // the "aud" that names this service
	Algorithms []string // accepted signature algorithms, all asymmetric; none: RS256 and ES256

	// KeysRefresh is the least time between two successful fetches of the keys.
	// A token with an unknown key id asks for a fetch, and anyone can make one
	// up. 0: 10 s.
	KeysRefresh time.Duration
}

// Identity is what a verified token says of its holder.
type Identity struct {
	Subject       string // the issuer's stable id of the holder
	Email         string // "" if the token has none
	EmailVerified bool
}

// Verifier verifies OIDC ID tokens. It keeps the issuer's keys and fetches them
// anew when a token names an unknown one. Make one with [NewVerifier]; it is
// meant to be shared.
type Verifier struct {
	tokens *oidc.IDTokenVerifier
	seen   seen
}

// NewVerifier is a verifier by the options; it asks the issuer nothing yet. The
// error says which option is missing or wrong.
func NewVerifier(o VerifierOptions) (*Verifier, error) {
	if o.Issuer == "" || o.JWKSURL == "" || o.Audience == "" {
		return nil, errors.New("a token verifier needs issuer, JWKS URL and audience")
	}
	if len(o.Algorithms) == 0 {
		o.Algorithms = []string{oidc.RS256, oidc.ES256}
	}
	for _, alg := range o.Algorithms {
		if !slices.Contains(asymmetric, alg) {
			return nil, fmt.Errorf("token algorithm %q: want one of %s", alg, strings.Join(asymmetric, ", "))
		}
	}
	if o.KeysRefresh == 0 {
		o.KeysRefresh = keysRefresh
	}
	v := new(Verifier)
	v.tokens = idTokens(o, v.seen.fetched)
	return v, nil
}

// idTokens verifies tokens by the issuer's keys, and hands on each key set that it
// fetches, just before it is put to use.
func idTokens(o VerifierOptions, fetched func(jwks []byte)) *oidc.IDTokenVerifier {
	ctx := oidc.ClientContext(context.Background(), newKeysClient(o.KeysRefresh, fetched))
	return oidc.NewVerifier(o.Issuer, noticingKeys{oidc.NewRemoteKeySet(ctx, o.JWKSURL)}, &oidc.Config{
		ClientID:             o.Audience,
		SupportedSigningAlgs: o.Algorithms,
	})
}

// Authenticate verifies the request's bearer token: signature, algorithm,
// issuer, audience, expiry, and that it was not made in the future. No other
// header counts: X-CloudTasks-* and X-CloudScheduler can be sent by anyone.
//
// The error is a *[Problem]: UNAUTHORIZED with a WWW-Authenticate for a token
// that is missing or refused, UNAVAILABLE if the issuer's keys are out of reach,
// which says nothing about the token.
func (v *Verifier) Authenticate(r *http.Request) (Identity, error) {
	raw, problem := bearer(r)
	if problem != nil {
		return Identity{}, problem
	}
	if id, ok := v.seen.find(raw); ok {
		return id, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), verifyDeadline)
	defer cancel()
	var keysErr error
	token, err := v.tokens.Verify(context.WithValue(ctx, keysErrKey{}, &keysErr), raw)
	var expired *oidc.TokenExpiredError
	switch {
	case keysErr != nil:
		return Identity{}, UnavailableBecause(keysErr, "the token cannot be verified at the moment; try again")
	case errors.As(err, &expired):
		return Identity{}, unauthorized("the token has expired", err)
	case err != nil:
		return Identity{}, unauthorized("the token is not a valid one for this service", err)
	}
	id, err := identity(token)
	if err == nil {
		v.seen.keep(raw, id, token.Expiry)
	}
	return id, err
}

func identity(token *oidc.IDToken) (Identity, error) {
	if token.IssuedAt.IsZero() || time.Until(token.IssuedAt) > futureTolerance {
		return Identity{}, unauthorized("the token is not valid yet", fmt.Errorf("iat is %s", token.IssuedAt))
	}
	var claims struct {
		Email         string `json:"email"`
		EmailVerified bool   `json:"email_verified"`
	}
	if err := token.Claims(&claims); err != nil || token.Subject == "" {
		return Identity{}, unauthorized("the token is not a valid one for this service", fmt.Errorf("subject %q, claims: %v", token.Subject, err))
	}
	return Identity{Subject: token.Subject, Email: claims.Email, EmailVerified: claims.EmailVerified}, nil
}

// bearer is the token of the one Authorization header (RFC 6750, section 2.1),
// in the compact form.
func bearer(r *http.Request) (string, *Problem) {
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		return "", unauthorized("the request has no bearer token", nil)
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if len(values) > 1 || !strings.EqualFold(scheme, "Bearer") || strings.Count(token, ".") != 2 || len(token) > maxTokenBytes {
		return "", unauthorized("the Authorization header is not one bearer token", nil)
	}
	return token, nil
}

func unauthorized(reason string, cause error) *Problem {
	challenge := "Bearer"
	if cause != nil { // RFC 6750, section 3.1: no error code where no token was sent
		challenge = `Bearer error="invalid_token", error_description="` + reason + `"`
	}
	return &Problem{Code: Unauthorized, Detail: reason, Cause: cause, Header: http.Header{"Www-Authenticate": {challenge}}}
}

type identityKey struct{}

// IdentityOf is the identity that [RequireAccounts] let in, and whether there
// is one.
func IdentityOf(ctx context.Context) (Identity, bool) {
	id, ok := ctx.Value(identityKey{}).(Identity)
	return id, ok
}

// RequireAccounts is a middleware that lets in only requests with a valid token
// of one of the accounts, named by their e-mails, which must be verified. Others
// get FORBIDDEN, requests without a valid token what [Verifier.Authenticate]
// says. With no e-mails nobody is let in.
func RequireAccounts(v *Verifier, emails ...string) func(http.Handler) http.Handler {
	emails = slices.Clone(emails)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id, err := v.Authenticate(r)
			if err != nil {
				Fail(w, r, err)
				return
			}
			if id.Email == "" || !id.EmailVerified || !slices.Contains(emails, id.Email) {
				Fail(w, r, &Problem{
					Code: Forbidden, Detail: "this account may not call this function",
					Cause: fmt.Errorf("account %q (subject %s, verified %t) is not on the list", id.Email, id.Subject, id.EmailVerified),
				})
				return
			}
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), identityKey{}, id)))
		})
	}
}

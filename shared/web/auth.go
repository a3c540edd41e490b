package web

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

const (
	verifyDeadline  = 5 * time.Second  // for one token, including a fetch of keys
	futureTolerance = 5 * time.Minute  // of iat, as go-oidc uses for nbf
	maxTokenBytes   = 16 << 10         // Google's are about 1 KiB
	keysRefresh     = 10 * time.Second // see VerifierOptions.KeysRefresh
)

// asymmetric lists the algorithms that a [Verifier] can accept. With these a public key cannot serve as
// a secret, as it could with HS256.
var asymmetric = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512,
	oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
}

// VerifierOptions define the accepted tokens.
type VerifierOptions struct {
	Issuer     string   // the "iss" of the tokens, such as https://accounts.google.com
	JWKSURL    string   // where the issuer's keys are, such as https://www.googleapis.com/oauth2/v3/certs
	Audience   string   // the "aud" that names this service
	Algorithms []string // accepted signature algorithms, all asymmetric; none: RS256 and ES256

	// KeysRefresh is the minimum time between two successful fetches of the keys. A token with an
	// unknown key id causes a fetch, and any caller can make one up. 0: 10 s.
	KeysRefresh time.Duration

	// EmailsVerified takes each token's e-mail as verified: the issuer, such as Identity-Aware Proxy, gives
	// no other, and its tokens have no "email_verified".
	EmailsVerified bool

	// SubjectPrefix begins the subject of each token; the rest is the identity's subject. A token with
	// another subject is refused.
	SubjectPrefix string

	// WithoutSubject leaves the subject out of identities. A subject of one issuer can be another person's
	// at the issuer whose subjects the settings have.
	WithoutSubject bool
}

// Identity holds the claims of a verified token about its holder.
type Identity struct {
	Subject       string // the issuer's stable id of the holder, unless [VerifierOptions] leave it out
	Email         string // "" if the token has none
	EmailVerified bool
	Nonce         string // of the sign-in that the token was made for; "" if the token has none
	Expiry        time.Time
}

// Verifier verifies OIDC ID tokens. It caches the issuer's keys and fetches them again when a token has
// an unknown key id. Create it with [NewVerifier] and share it.
type Verifier struct {
	tokens  *oidc.IDTokenVerifier
	options VerifierOptions
	seen    seen
}

// NewVerifier returns a verifier by the options, without a call to the issuer. The error names the
// missing or invalid option.
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
	v := &Verifier{options: o}
	v.tokens = idTokens(o, v.seen.fetched)
	return v, nil
}

// idTokens returns a verifier that uses the issuer's keys. It passes each fetched key set to fetched,
// just before its first use.
func idTokens(o VerifierOptions, fetched func(jwks []byte)) *oidc.IDTokenVerifier {
	once := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true} // fetches are rare: no connection is kept between them
	ctx := oidc.ClientContext(context.Background(), &http.Client{
		Timeout: verifyDeadline, Transport: &keysTransport{refresh: o.KeysRefresh, fetched: fetched, base: once},
	})
	return oidc.NewVerifier(o.Issuer, noticingKeys{oidc.NewRemoteKeySet(ctx, o.JWKSURL)}, &oidc.Config{
		ClientID:             o.Audience,
		SupportedSigningAlgs: o.Algorithms,
	})
}

// Authenticate verifies the request's bearer token: signature, algorithm, issuer, audience, expiry, and
// that it was not issued in the future. It ignores other headers, because any caller can send
// X-CloudTasks-* and X-CloudScheduler.
//
// The error is a *[Problem]: UNAUTHORIZED with a WWW-Authenticate for a missing or refused token;
// UNAVAILABLE if the issuer's keys are unavailable, which does not decide about the token.
func (v *Verifier) Authenticate(r *http.Request) (Identity, error) {
	raw, problem := bearer(r)
	if problem != nil {
		return Identity{}, problem
	}
	return v.Verify(r.Context(), raw)
}

// Verify is [Verifier.Authenticate] for a token that did not come as the request's bearer token.
func (v *Verifier) Verify(ctx context.Context, raw string) (Identity, error) {
	if id, ok := v.seen.find(raw); ok {
		return id, nil
	}
	ctx, cancel := context.WithTimeout(ctx, verifyDeadline)
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
	id, err := v.identity(token)
	if err == nil {
		v.seen.keep(raw, id, token.Expiry)
	}
	return id, err
}

// WithoutSubject reports whether the verifier leaves the subject out of identities.
func (v *Verifier) WithoutSubject() bool { return v.options.WithoutSubject }

// Concerns reports whether the request's bearer token names the verifier's issuer and audience. It
// verifies nothing: it chooses one of several verifiers.
func (v *Verifier) Concerns(r *http.Request) bool {
	raw, problem := bearer(r)
	if problem != nil {
		return false
	}
	var claims struct {
		Issuer   string `json:"iss"`
		Audience any    `json:"aud"` // a text, or a list of texts
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(raw, ".")[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Issuer != v.options.Issuer {
		return false
	}
	list, _ := claims.Audience.([]any)
	return claims.Audience == any(v.options.Audience) || slices.Contains(list, any(v.options.Audience))
}

func (v *Verifier) identity(token *oidc.IDToken) (Identity, error) {
	if token.IssuedAt.IsZero() || time.Until(token.IssuedAt) > futureTolerance {
		return Identity{}, unauthorized("the token is not valid yet", fmt.Errorf("iat is %s", token.IssuedAt))
	}
	var claims struct {
		Email         string `json:"email"`
		EmailVerified bool   `json:"email_verified"`
	}
	subject, ok := strings.CutPrefix(token.Subject, v.options.SubjectPrefix)
	if err := token.Claims(&claims); err != nil || subject == "" || !ok {
		return Identity{}, unauthorized("the token is not a valid one for this service", fmt.Errorf("subject %q, claims: %v", token.Subject, err))
	}
	if v.options.WithoutSubject {
		subject = ""
	}
	return Identity{
		Subject: subject, Email: claims.Email, EmailVerified: claims.EmailVerified || v.options.EmailsVerified && claims.Email != "",
		Nonce: token.Nonce, Expiry: token.Expiry,
	}, nil
}

// bearer returns the token of the only Authorization header (RFC 6750, section 2.1), in compact form.
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
	if cause != nil { // RFC 6750, section 3.1: no error code if no token was sent
		challenge = `Bearer error="invalid_token", error_description="` + reason + `"`
	}
	return &Problem{Code: Unauthorized, Detail: reason, Cause: cause, Header: http.Header{"Www-Authenticate": {challenge}}}
}

// RequireAccounts is a middleware that accepts only requests with a valid token of one of the accounts,
// named by their verified e-mails. Others get FORBIDDEN; requests without a valid token get the problem
// of [Verifier.Authenticate]. Without e-mails every request is refused.
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
			next.ServeHTTP(w, r)
		})
	}
}

const maxKeysBytes = 1 << 20

type keysErrKey struct{}

// noticingKeys sets the *error in the context if the keys could not be fetched. Then the token was not evaluated.
// go-oidc v3.21.0 returns the same kind of error as for a wrong signature.
type noticingKeys struct{ *oidc.RemoteKeySet }

// VerifySignature is the remote key set's. It wraps only the error of a fetch.
func (k noticingKeys) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	payload, err := k.RemoteKeySet.VerifySignature(ctx, jwt)
	if fetch := errors.Unwrap(err); fetch != nil {
		*ctx.Value(keysErrKey{}).(*error) = fmt.Errorf("fetch the issuer's keys: %w", fetch)
	}
	return payload, err
}

// keysTransport fetches a key set, and for a while after a success answers from its cache.
type keysTransport struct {
	base    http.RoundTripper
	refresh time.Duration
	fetched func(jwks []byte) // called with each key set before it is returned

	mu   sync.Mutex
	last []byte
	at   time.Time // when it was fetched
}

// RoundTrip answers from the cache if the last success is recent. go-oidc makes one fetch at a time, so
// holding the lock during it delays no other request.
func (t *keysTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil || time.Since(t.at) >= t.refresh {
		resp, err := t.base.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("GET %s: %s", r.URL, resp.Status)
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxKeysBytes))
		if err != nil {
			return nil, fmt.Errorf("GET %s: %w", r.URL, err)
		}
		t.last, t.at = body, time.Now()
		t.fetched(body)
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(bytes.NewReader(t.last)), ContentLength: int64(len(t.last)),
	}, nil
}

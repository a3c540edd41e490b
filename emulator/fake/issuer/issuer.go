// Package issuer is the emulator's issuer of OIDC ID tokens, in the place of Google's. It has one key, and a
// set of known accounts. It serves a discovery document and a key set over HTTP on the loopback interface.
//
// Functions verify its tokens by the same code as Google's. For tests it also makes tokens with one chosen error; see
// [Flaw].
package issuer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"github.com/fencepost/fencepost/emulator/stack/loopback"
)

// lifetime is the lifetime of a token, as of Google's.
const lifetime = time.Hour

// ErrUnknownAccount reports an e-mail that the issuer has no account for.
var ErrUnknownAccount = errors.New("unknown account")

// Options describe an issuer.
type Options struct {
	Accounts  []string // e-mails of known accounts; see [Issuer.AddAccount] for more
	Algorithm string   // RS256 or ES256; "": RS256

	// Span makes tokens valid from so long before their creation until so long after it, for verifiers
	// with a wrong clock. 0: from the creation on for an hour.
	Span time.Duration

	Now func() time.Time // the clock of one-time codes; nil: [time.Now]
}

// Issuer makes tokens and serves the key that verifies them. Several goroutines can use it. Make one with
// [Start].
type Issuer struct {
	options    Options
	keyFetches atomic.Int64

	key      atomic.Pointer[key]
	accounts sync.Map     // known e-mails
	codes    sync.Map     // grants by code
	signedIn atomic.Value // the e-mail at GET /authorize, a string
	control  atomic.Value // a string; see [Issuer.SetControl]

	// Its URL is the issuer's name (the "iss" of its tokens) and the address of its discovery document. Close ends
	// serving at once. A verifier that has not fetched the keys yet can no longer verify tokens.
	*loopback.Server
}

// Start makes a key and serves it until [Issuer.Close].
func Start(o Options) (*Issuer, error) {
	o.Algorithm = cmp.Or(o.Algorithm, jwt.SigningMethodRS256.Alg())
	k, err := keyWith(o.Algorithm, firstRSA)
	if err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	i := &Issuer{options: o}
	i.key.Store(&k)
	for _, email := range o.Accounts {
		i.AddAccount(email)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", i.serveDiscovery)
	mux.HandleFunc("GET /jwks", i.serveKeys)
	mux.HandleFunc("GET /authorize", i.serveAuthorize)
	mux.HandleFunc("POST /token", i.serveToken)
	mux.HandleFunc("/control/", i.redirectToControl)
	if i.Server, err = loopback.Serve("", mux); err != nil {
		return nil, fmt.Errorf("listen as token issuer: %w", err)
	}
	return i, nil
}

// JWKSURL is the address of its key set.
func (i *Issuer) JWKSURL() string { return i.URL() + "/jwks" }

// KeyFetches returns how often the key set was fetched.
func (i *Issuer) KeyFetches() int64 { return i.keyFetches.Load() }

// AddAccount adds a known account. A second call with it does nothing.
func (i *Issuer) AddAccount(email string) { i.accounts.Store(email, true) }

// Rotate replaces the key by a new one with another id, and serves only that. A verifier that fetches the
// keys again refuses earlier tokens.
func (i *Issuer) Rotate() error {
	k, err := newKey(i.options.Algorithm)
	if err == nil {
		i.key.Store(&k)
	}
	return err
}

// Token returns an ID token for the audience. Its holder is the account, with a verified e-mail. It is valid
// for an hour or as [Options] say. The error contains the account's name, and wraps [ErrUnknownAccount] if
// the account is not known.
func (i *Issuer) Token(ctx context.Context, email, audience string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("token for %s: %w", email, err)
	}
	k, err := i.keyFor(email)
	if err != nil {
		return "", err
	}
	return k.sign(i.claims(email, audience))
}

// Mint returns a token for the audience without an account. The claims given replace the usual ones. It is for
// tests of authorisation: the issuer's server has no path to it, and no deployed code imports this package.
func (i *Issuer) Mint(audience string, claims map[string]any) (string, error) {
	all := i.bareClaims(subject(""), audience)
	maps.Copy(all, claims)
	return i.key.Load().sign(all)
}

// UserToken returns a token for the audience whose holder is the user: "sub" is the user's id in decimal, and
// there is no e-mail. Every user is known. It is valid as long as a token of [Issuer.Token].
func (i *Issuer) UserToken(userID int64, audience string) (string, error) {
	return i.key.Load().sign(i.bareClaims(strconv.FormatInt(userID, 10), audience))
}

func (i *Issuer) keyFor(email string) (*key, error) {
	if _, known := i.accounts.Load(email); !known {
		return nil, fmt.Errorf("token for %q: %w", email, ErrUnknownAccount)
	}
	return i.key.Load(), nil
}

// claims returns the claims of Google's tokens for service accounts.
func (i *Issuer) claims(email, audience string) jwt.MapClaims {
	claims := i.bareClaims(subject(email), audience)
	claims["azp"], claims["email"], claims["email_verified"] = email, email, true
	return claims
}

// bareClaims returns the claims of a holder without an e-mail.
func (i *Issuer) bareClaims(holder, audience string) jwt.MapClaims {
	now := time.Now()
	return jwt.MapClaims{
		"iss": i.URL(), "aud": audience, "sub": holder,
		"iat": now.Add(-i.options.Span).Unix(), "exp": now.Add(i.lasts()).Unix(),
	}
}

// lasts is how long a token is valid after its creation.
func (i *Issuer) lasts() time.Duration { return cmp.Or(i.options.Span, lifetime) }

// subject returns an account's id: 21 digits as of Google's, always the same.
func subject(email string) string {
	sum := sha256.Sum256([]byte(email))
	span := new(big.Int).Exp(big.NewInt(10), big.NewInt(20), nil)
	return "1" + fmt.Sprintf("%020d", new(big.Int).Mod(new(big.Int).SetBytes(sum[:]), span))
}

// serveDiscovery serves the fields that OpenID Connect Discovery 1.0, section 3, requires for the parts that
// exist here.
func (i *Issuer) serveDiscovery(w http.ResponseWriter, r *http.Request) {
	url := "http://" + r.Host
	writeJSON(w, http.StatusOK, map[string]any{
		"issuer":                                url,
		"jwks_uri":                              url + "/jwks",
		"authorization_endpoint":                url + "/authorize",
		"token_endpoint":                        url + "/token",
		"code_challenge_methods_supported":      []string{"S256"},
		"id_token_signing_alg_values_supported": []string{i.options.Algorithm},
		"response_types_supported":              []string{"code", "id_token"},
		"subject_types_supported":               []string{"public"},
	})
}

func (i *Issuer) serveKeys(w http.ResponseWriter, _ *http.Request) {
	i.keyFetches.Add(1)
	k := i.key.Load()
	public := jose.JSONWebKey{Key: k.private.Public(), KeyID: k.id, Algorithm: k.method.Alg(), Use: "sig"}
	writeJSON(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails only if the caller has left
}

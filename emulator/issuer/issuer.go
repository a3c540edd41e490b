// Package issuer is the emulator's stand-in for Google as an issuer of OIDC ID
// tokens: one key, a discovery document and a key set over HTTP on the loopback
// interface, and a set of accounts it knows. Functions verify its tokens by the
// same code as Google's.
//
// For tests it also makes tokens that are wrong in one chosen way; see [Flaw].
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
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// lifetime of a token, as Google's have it.
const lifetime = time.Hour

// ErrUnknownAccount reports an e-mail that the issuer has no account for.
var ErrUnknownAccount = errors.New("unknown account")

// Options say what an issuer is.
type Options struct {
	Accounts  []string // e-mails it makes tokens for; see [Issuer.AddAccount] for more
	Algorithm string   // RS256 or ES256; "": RS256
	Addr      string   // where to listen; "": a free port of 127.0.0.1

	// Span makes tokens valid from so long before they are made until so long
	// after, for who has a wrong clock. 0: from then on for an hour.
	Span time.Duration
}

// Issuer makes tokens and serves the key to verify them by. It is safe for use
// by several goroutines. Make one with [Start].
type Issuer struct {
	url        string
	algorithm  string
	before     time.Duration // a token is made, it is valid
	after      time.Duration
	server     *http.Server
	keyFetches atomic.Int64

	mu       sync.Mutex
	key      key
	accounts map[string]bool
}

// Start makes a key and begins to serve; the caller ends that with
// [Issuer.Close].
func Start(o Options) (*Issuer, error) {
	o.Algorithm = cmp.Or(o.Algorithm, jwt.SigningMethodRS256.Alg())
	k, err := keyWith(o.Algorithm, firstRSA)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", cmp.Or(o.Addr, "127.0.0.1:0"))
	if err != nil {
		return nil, fmt.Errorf("listen as token issuer: %w", err)
	}
	i := &Issuer{url: "http://" + l.Addr().String(), algorithm: o.Algorithm, key: k, accounts: map[string]bool{},
		before: o.Span, after: cmp.Or(o.Span, lifetime)}
	for _, email := range o.Accounts {
		i.accounts[email] = true
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", i.serveDiscovery)
	mux.HandleFunc("GET /jwks", i.serveKeys)
	i.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = i.server.Serve(l) }() // ends with Close
	return i, nil
}

// Close ends serving at once. Tokens made before can no longer be verified by
// who has not fetched the keys yet.
func (i *Issuer) Close() error { return i.server.Close() }

// URL is the issuer's name, the "iss" of its tokens, and where its discovery
// document is found.
func (i *Issuer) URL() string { return i.url }

// JWKSURL is where its key set is.
func (i *Issuer) JWKSURL() string { return i.url + "/jwks" }

// KeyFetches is how often the key set has been asked for.
func (i *Issuer) KeyFetches() int64 { return i.keyFetches.Load() }

// AddAccount makes the issuer know an account. Twice is once.
func (i *Issuer) AddAccount(email string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.accounts[email] = true
}

// Accounts are the e-mails that the issuer knows, sorted.
func (i *Issuer) Accounts() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Sorted(maps.Keys(i.accounts))
}

// Rotate replaces the key by a fresh one with another id, and serves that alone:
// tokens signed before are no longer valid for who fetches the keys anew.
func (i *Issuer) Rotate() error {
	k, err := newKey(i.algorithm)
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key = k
	return nil
}

// Token is an ID token that says to audience that its holder is the account,
// with a verified e-mail, valid for an hour or as [Options] say. The error wraps [ErrUnknownAccount]
// if it is not a known one; the account's name is in the error either way.
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

func (i *Issuer) keyFor(email string) (key, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.accounts[email] {
		return key{}, fmt.Errorf("token for %q: %w", email, ErrUnknownAccount)
	}
	return i.key, nil
}

// claims has what Google puts into the token of a service account.
func (i *Issuer) claims(email, audience string) jwt.MapClaims {
	now := time.Now()
	return jwt.MapClaims{
		"iss": i.url, "aud": audience, "azp": email, "sub": subject(email),
		"email": email, "email_verified": true,
		"iat": now.Add(-i.before).Unix(), "exp": now.Add(i.after).Unix(),
	}
}

// subject is an account's id: 21 digits, the same every time, like Google's.
func subject(email string) string {
	sum := sha256.Sum256([]byte(email))
	span := new(big.Int).Exp(big.NewInt(10), big.NewInt(20), nil)
	return "1" + fmt.Sprintf("%020d", new(big.Int).Mod(new(big.Int).SetBytes(sum[:]), span))
}

// serveDiscovery serves what OpenID Connect Discovery 1.0, section 3, requires
// of the parts that exist here.
func (i *Issuer) serveDiscovery(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]any{
		"issuer":                                i.url,
		"jwks_uri":                              i.JWKSURL(),
		"id_token_signing_alg_values_supported": []string{i.algorithm},
		"response_types_supported":              []string{"id_token"},
		"subject_types_supported":               []string{"public"},
	})
}

func (i *Issuer) serveKeys(w http.ResponseWriter, _ *http.Request) {
	i.keyFetches.Add(1)
	i.mu.Lock()
	k := i.key
	i.mu.Unlock()
	writeJSON(w, map[string]any{"keys": []any{k.jwk}})
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // fails only if the caller has gone
}

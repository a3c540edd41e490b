package web

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"github.com/fencepost/fencepost/shared/check"
)

// tokenOf has the form of a token that the key signed.
func tokenOf(key, name string) string {
	header, _ := json.Marshal(map[string]string{"alg": "ES256", "kid": key})
	return base64.RawURLEncoding.EncodeToString(header) + "." + name + ".signature"
}

// A verified token is accepted for a minute, and never past its expiry. No other token is accepted
// because of it.
func TestVerifiedTokensAreAcceptedForAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s seen
		s.fetched([]byte(`{"keys":[{"kid":"k"}]}`))
		id := Identity{Subject: "ann"}
		s.keep(tokenOf("k", "long"), id, time.Now().Add(time.Hour))
		s.keep(tokenOf("k", "short"), id, time.Now().Add(10*time.Second))
		for _, step := range []struct {
			after       time.Duration
			long, short bool
		}{{0, true, true}, {9 * time.Second, true, true}, {time.Second, true, false}, {49 * time.Second, true, false}, {time.Second, false, false}} {
			time.Sleep(step.after) // by the bubble's clock
			got, long := s.find(tokenOf("k", "long"))
			_, short := s.find(tokenOf("k", "short"))
			if long != step.long || short != step.short || (long && got != id) {
				t.Errorf("after %v more: got %v %v, want %v %v", step.after, long, short, step.long, step.short)
			}
		}
		if _, ok := s.find(tokenOf("k", "another")); ok {
			t.Error("a token that was never verified: got it believed")
		}
		for i := range 3 * maxSeen {
			s.keep(tokenOf("k", fmt.Sprint(i)), id, time.Now().Add(time.Hour))
		}
		if len(s.tokens) > maxSeen {
			t.Errorf("remembered: got %d, want at most %d", len(s.tokens), maxSeen)
		}
	})
}

// A suspended machine resumes with a monotonic clock that has stopped. A token that expired meanwhile
// is not accepted.
func TestSeenTokenExpiresWhileTheMachineIsSuspended(t *testing.T) {
	t.Parallel()
	var s seen
	s.fetched([]byte(`{"keys":[{"kid":"k"}]}`))
	s.keep(tokenOf("k", "t"), Identity{}, time.Now().Add(time.Hour))
	for digest, kept := range s.tokens {
		kept.expiry = kept.expiry.Add(-2 * time.Hour) // as if only the wall clock had advanced
		s.tokens[digest] = kept
	}
	if _, ok := s.find(tokenOf("k", "t")); ok {
		t.Error("a token that expired an hour ago by the wall clock: got it believed")
	}
}

// Only tokens that name a currently served key are cached.
func TestOnlyTokensOfServedKeysAreCached(t *testing.T) {
	t.Parallel()
	never := base64.RawURLEncoding.EncodeToString([]byte(`{"KID":"new"}`)) + ".t.s"
	for _, c := range []struct {
		name, jwks, token string
		want              bool
	}{
		{"a key that is served", `{"keys":[{"kid":"old"},{"kid":"new"}]}`, tokenOf("new", "t"), true},
		{"a key that is not", `{"keys":[{"kid":"new"}]}`, tokenOf("old", "t"), false},
		{"a key without an id", `{"keys":[{}]}`, tokenOf("", "t"), false},
		{"another member", `{"keys":[{"kid":"new"}]}`, never, false},
		{"no key set", `<html>`, tokenOf("new", "t"), false},
		{"no token", `{"keys":[{"kid":"new"}]}`, "!.!.!", false},
	} {
		var s seen
		s.fetched([]byte(c.jwks))
		s.keep(c.token, Identity{}, time.Now().Add(time.Hour))
		_, ok := s.find(c.token)
		check.Equal(t, c.name, ok, c.want)
	}
}

// rotating is an issuer that serves one key at a time.
type rotating struct {
	server *httptest.Server
	keys   map[string]*ecdsa.PrivateKey
	served atomic.Value // the id of the served key
}

func newRotating(t *testing.T, ids ...string) *rotating {
	t.Helper()
	r := &rotating{keys: make(map[string]*ecdsa.PrivateKey)}
	for _, id := range ids {
		key := check.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
		r.keys[id] = key
	}
	r.served.Store(ids[0])
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		id := r.served.Load().(string)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: r.keys[id].Public(), KeyID: id, Algorithm: "ES256"}}})
	}))
	t.Cleanup(r.server.Close)
	return r
}

// request has a token signed by the key.
func (r *rotating) request(t *testing.T, key string) *http.Request {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"iss": r.server.URL, "aud": "us", "sub": "ann", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	})
	token.Header["kid"] = key
	text := check.Value(token.SignedString(r.keys[key]))(t)
	request := httptest.NewRequest("GET", "/", nil)
	request.Header.Set("Authorization", "Bearer "+text)
	return request
}

// A token of a revoked key is not cached by a verification between the fetch of the new keys and their
// first use.
func TestTokenOfARevokedKeyIsNotCached(t *testing.T) {
	t.Parallel()
	issuer := newRotating(t, "old", "new")
	old := issuer.request(t, "old")
	v, inGap := new(Verifier), error(nil)
	v.tokens = idTokens(VerifierOptions{
		Issuer: issuer.server.URL, JWKSURL: issuer.server.URL, Audience: "us", Algorithms: []string{"ES256"}, KeysRefresh: time.Nanosecond,
	}, func(jwks []byte) {
		v.seen.fetched(jwks)
		if issuer.served.Load() == "new" {
			_, inGap = v.Authenticate(old)
		}
	})
	check.OK(t)(v.Authenticate(issuer.request(t, "old")))
	issuer.served.Store("new")
	if _, err := v.Authenticate(issuer.request(t, "new")); err != nil || inGap != nil {
		t.Fatalf("the new key's token, and the old one's while its keys are still in use: got %v, %v; want no error", err, inGap)
	}
	raw, _ := bearer(old)
	if _, ok := v.seen.find(raw); ok {
		t.Error("the old key's token: got it kept, want it verified again")
	}
}

package web

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync"
	"time"
)

// seenFor is how long a verified token is accepted without verification, unless the issuer's keys are
// fetched again or the token expires before.
const seenFor = time.Minute

// maxSeen bounds the cached tokens; a dropped one must be verified again.
const maxSeen = 1000

// seen caches verified tokens by their SHA-256: callers send the same one with each request for an
// hour.
type seen struct {
	mu     sync.Mutex
	served map[string]bool // the ids of the issuer's keys, as last fetched
	tokens map[[32]byte]seenToken
}

type seenToken struct {
	identity Identity
	until    time.Time // by the monotonic clock
	expiry   time.Time // by the wall clock: the monotonic one stops while the machine is suspended
}

func (s *seen) find(raw string) (Identity, bool) {
	digest, now := sha256.Sum256([]byte(raw)), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tokens[digest]
	return t.identity, ok && now.Before(t.until) && now.Before(t.expiry)
}

// fetched is called when the issuer's keys were fetched. It drops the tokens that other keys have
// verified.
func (s *seen) fetched(jwks []byte) {
	var set struct {
		Keys []struct {
			ID string `json:"kid"`
		} `json:"keys"`
	}
	_ = json.Unmarshal(jwks, &set) // go-oidc refuses an invalid key set; then no token is kept
	served := make(map[string]bool)
	for _, key := range set.Keys {
		served[key.ID] = key.ID != ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served, s.tokens = served, nil
}

// keep caches a verified token if the key that signed it was among those fetched last. go-oidc uses the
// previous keys for a moment longer, and the verification may have begun before the fetch.
func (s *seen) keep(raw string, id Identity, expiry time.Time) {
	digest, key, until := sha256.Sum256([]byte(raw)), keyID(raw), time.Now().Add(seenFor)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.served[key] {
		return
	}
	if s.tokens == nil || len(s.tokens) >= maxSeen {
		s.tokens = make(map[[32]byte]seenToken)
	}
	s.tokens[digest] = seenToken{id, until, expiry.Round(0)}
}

// keyID returns the key id in a verified token, or "". Letter case matters, as in the verification.
func keyID(raw string) (id string) {
	header, _, _ := strings.Cut(raw, ".")
	text, err := base64.RawURLEncoding.DecodeString(header)
	var members map[string]json.RawMessage
	if err != nil || json.Unmarshal(text, &members) != nil || json.Unmarshal(members["kid"], &id) != nil {
		return ""
	}
	return id
}

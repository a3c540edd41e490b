package web

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync"
	"time"
)

// seenFor is how long a token that was verified is believed unseen, unless the
// issuer's keys are fetched anew or it expires before.
const seenFor = time.Minute

// seenMost bounds the tokens that are remembered; forgetting one costs the work of
// verifying it again.
const seenMost = 1000

// seen remembers tokens that were verified, by their SHA-256: callers send the
// same one with every request for an hour.
type seen struct {
	mu     sync.Mutex
	served map[string]bool // the ids of the issuer's keys, as fetched last
	tokens map[[32]byte]seenToken
}

type seenToken struct {
	identity Identity
	until    time.Time // by the monotonic clock
	expiry   time.Time // by the wall clock: the other stands still where the machine is suspended
}

func (s *seen) find(raw string) (Identity, bool) {
	digest, now := sha256.Sum256([]byte(raw)), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tokens[digest]
	return t.identity, ok && now.Before(t.until) && now.Before(t.expiry)
}

// fetched is for when the issuer's keys were fetched: whatever was verified by
// others is forgotten.
func (s *seen) fetched(jwks []byte) {
	var set struct {
		Keys []struct {
			ID string `json:"kid"`
		} `json:"keys"`
	}
	_ = json.Unmarshal(jwks, &set) // go-oidc refuses what is no key set; then no token is kept
	served := make(map[string]bool)
	for _, key := range set.Keys {
		served[key.ID] = key.ID != ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served, s.tokens = served, nil
}

// keep remembers a token that was verified, if the key that signed it is among
// those fetched last: go-oidc goes on using the ones before for a moment, and the
// verification may have begun before the fetch.
func (s *seen) keep(raw string, id Identity, expiry time.Time) {
	digest, key, until := sha256.Sum256([]byte(raw)), keyID(raw), time.Now().Add(seenFor)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.served[key] {
		return
	}
	if s.tokens == nil || len(s.tokens) >= seenMost {
		s.tokens = make(map[[32]byte]seenToken)
	}
	s.tokens[digest] = seenToken{id, until, expiry.Round(0)}
}

// keyID is the id of the key that a verified token names, or "". Letter case
// counts, as it does for the verification.
func keyID(raw string) (id string) {
	header, _, _ := strings.Cut(raw, ".")
	text, err := base64.RawURLEncoding.DecodeString(header)
	var members map[string]json.RawMessage
	if err != nil || json.Unmarshal(text, &members) != nil || json.Unmarshal(members["kid"], &id) != nil {
		return ""
	}
	return id
}

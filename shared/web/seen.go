package web

import (
	"crypto/sha256"
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
	tokens map[[32]byte]seenToken
}

type seenToken struct {
	identity Identity
	until    time.Time
}

func (s *seen) find(raw string) (Identity, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tokens[sha256.Sum256([]byte(raw))]
	return t.identity, ok && time.Now().Before(t.until)
}

// forget is for when the issuer's keys may have changed.
func (s *seen) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = nil
}

func (s *seen) keep(raw string, id Identity, expiry time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens == nil || len(s.tokens) >= seenMost {
		s.tokens = make(map[[32]byte]seenToken)
	}
	until := time.Now().Add(seenFor)
	if expiry.Before(until) {
		until = expiry
	}
	s.tokens[sha256.Sum256([]byte(raw))] = seenToken{id, until}
}

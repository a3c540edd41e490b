// Package faultswitch selects the fault of a fake signing service, and records what it was asked to sign.
package faultswitch

import (
	"slices"
	"sync"
)

// Switch holds the current fault; the zero value of F is none. Several goroutines can use it. Make one
// with [New].
type Switch[F any] struct {
	mu      sync.Mutex
	fault   F
	release chan struct{} // closed when the fault changes
	asked   []string
}

// New returns a switch without a fault.
func New[F any]() *Switch[F] { return &Switch[F]{release: make(chan struct{})} }

// SetFault selects the fault of every later answer, and releases requests that hang.
func (s *Switch[F]) SetFault(f F) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
	close(s.release)
	s.release = make(chan struct{})
}

// Current returns the fault, and a channel that is closed when it changes.
func (s *Switch[F]) Current() (fault F, release <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault, s.release
}

// Record records a request to sign.
func (s *Switch[F]) Record(request string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, request)
}

// Asked returns all requests to sign in the order of the calls, with those not answered.
func (s *Switch[F]) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

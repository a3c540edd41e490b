package cloudtasks

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var errUnavailable = status.Error(codes.Unavailable, "The service is currently unavailable.")

// Faults make the emulator misbehave in ways Cloud Tasks may. The zero value is
// no fault. Probabilities run from 0, never, to 1, always.
type Faults struct {
	// Copies is the most times each attempt is delivered, all copies at once; the
	// number is drawn from 1 to Copies. The task is done when one copy gets a 2xx
	// and retried when all have failed. 0 and 1 mean once.
	Copies int
	// Delay is the longest extra time before a delivery leaves, drawn anew for
	// every copy, so that it also reorders. A delayed delivery counts as in flight:
	// deleting the task, purging or [Server.Empty] no longer stop it.
	Delay time.Duration
	// Drop is the probability that CreateTask answers OK and burns the name but the
	// task is lost.
	Drop float64
	// DropAck is the probability that a target's 2xx is lost, so that the task runs again although it
	// succeeded. It counts as a timeout.
	DropAck float64
	// DropResponse is the probability that CreateTask stores the task and then
	// answers UNAVAILABLE.
	DropResponse float64
	// Unavailable makes every CreateTask answer UNAVAILABLE and store nothing.
	Unavailable bool
	// Seed starts the random numbers. The same seed gives the same draws; which
	// task gets which draw depends on timing.
	Seed uint64
}

// SetFaults replaces the faults from now on; SetFaults(Faults{}) ends them.
func (s *Server) SetFaults(f Faults) {
	s.faults.Store(&seam{Faults: f, rand: rand.New(rand.NewPCG(f.Seed, f.Seed))})
}

// Empty throws away all tasks of the queue with that full resource name, as if the
// service had lost them, and returns how many there were. Their names stay burnt.
// A request already on its way is not recalled. The error says that there is no
// such queue.
func (s *Server) Empty(queue string) (int, error) {
	q, err := s.find(queue)
	if err != nil {
		return 0, fmt.Errorf("empty %s: %w", queue, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	lost := len(q.tasks)
	q.removeAll(time.Now())
	return lost, nil
}

// seam is where the service asks for faults.
type seam struct {
	Faults

	mu   sync.Mutex
	rand *rand.Rand
}

// hits draws whether a fault of this probability strikes.
func (s *seam) hits(probability float64) bool {
	if probability <= 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.Float64() < probability
}

// delays draws the pause of each copy of one attempt; its length is their number.
func (s *seam) delays() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	pauses := make([]time.Duration, 1+s.rand.IntN(max(1, s.Copies)))
	if s.Delay > 0 {
		for i := range pauses {
			pauses[i] = time.Duration(s.rand.Int64N(int64(s.Delay) + 1))
		}
	}
	return pauses
}

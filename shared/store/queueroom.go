package store

import (
	"sync"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// queueRooms caches which queues had much room a moment ago, so that a create need not count
// the queue. Each process counts a queue once a second. Near the bound it counts more often:
// with r places left, every r/100 creates. So each process may exceed the bound by about a
// hundredth of the room left.
type queueRooms struct {
	mu   sync.Mutex
	seen map[txmanager.Submitter]*queueRoom
}

type queueRoom struct {
	until  time.Time // by the monotonic clock
	passes int       // creates that need no count
}

// queueRoomTTL is how long a count with room left is cached.
const queueRoomTTL = time.Second

// needsCount is true if the queue of s must be counted.
func (b *queueRooms) needsCount(s txmanager.Submitter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	room, ok := b.seen[s]
	if !ok || room.passes == 0 || time.Now().After(room.until) {
		return true
	}
	room.passes--
	return false
}

// noteRoom caches how many places were left.
func (b *queueRooms) noteRoom(s txmanager.Submitter, left int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.seen) >= 10_000 { // clearing costs one count each
		b.seen = nil
	}
	if b.seen == nil {
		b.seen = make(map[txmanager.Submitter]*queueRoom)
	}
	b.seen[s] = &queueRoom{time.Now().Add(queueRoomTTL), left / 100}
}

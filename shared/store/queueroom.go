package store

import (
	"sync"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// queueRooms remembers of which queues there was much room a moment ago, so that a
// create need not walk the queue to find that it is not full. A queue is walked
// once a second by each process, and for the more creates the nearer it is to
// its bound: with r places left, every r/100 creates. So the bound holds to
// about a hundredth of what was left, for each process.
type queueRooms struct {
	mu   sync.Mutex
	seen map[txmanager.Submitter]*queueRoom
}

type queueRoom struct {
	until  time.Time // by the monotonic clock
	passes int       // creates that need not look
}

// queueRoomTTL is how long a queue seen with room is believed to have some.
const queueRoomTTL = time.Second

// needsCount says that the queue of s must be looked at.
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

// noteRoom remembers how many places were left.
func (b *queueRooms) noteRoom(s txmanager.Submitter, left int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.seen) >= 10_000 { // forgetting costs a look and nothing else
		b.seen = nil
	}
	if b.seen == nil {
		b.seen = make(map[txmanager.Submitter]*queueRoom)
	}
	b.seen[s] = &queueRoom{time.Now().Add(queueRoomTTL), left / 100}
}

package store

import (
	"sync"
	"time"

	"github.com/fencepost/fencepost/shared/nonce"
)

// bounds remembers of which queues there was much room a moment ago, so that a
// create need not walk the queue to find that it is not full. A queue is walked
// once a second by each process, and for the more creates the nearer it is to
// its bound: with r places left, every r/100 creates. So the bound holds to
// about a hundredth of what was left, for each process.
type bounds struct {
	mu   sync.Mutex
	seen map[nonce.Submitter]*seenRoom
}

type seenRoom struct {
	until  time.Time // by the monotonic clock
	passes int       // creates that need not look
}

// roomFor is how long a queue seen with room is believed to have some.
const roomFor = time.Second

// unseen says that the queue of s must be looked at.
func (b *bounds) unseen(s nonce.Submitter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	room, ok := b.seen[s]
	if !ok || room.passes == 0 || time.Now().After(room.until) {
		return true
	}
	room.passes--
	return false
}

// saw remembers how many places were left.
func (b *bounds) saw(s nonce.Submitter, left int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.seen) >= 10_000 { // forgetting costs a look and nothing else
		b.seen = nil
	}
	if b.seen == nil {
		b.seen = make(map[nonce.Submitter]*seenRoom)
	}
	b.seen[s] = &seenRoom{time.Now().Add(roomFor), left / 100}
}

package evm

import (
	"sync/atomic"
	"time"
)

// askAgain is how long a node is not asked for what it refused: behind one address
// there may be several nodes, of which some offer it. Asking in vain costs one
// round trip.
const askAgain = 2 * time.Minute

// offer is whether the node offers what not every node does, as far as it has
// shown.
type offer struct{ refusedAt atomic.Pointer[time.Time] }

func (o *offer) offered() bool {
	at := o.refusedAt.Load()
	return at == nil || time.Since(*at) > askAgain
}

func (o *offer) refused() { o.refusedAt.Store(new(time.Now())) }

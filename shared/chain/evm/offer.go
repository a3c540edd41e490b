package evm

import (
	"sync/atomic"
	"time"
)

// askAgain is how long a node is not asked again for a call that it refused. Several nodes may share
// one address, and some may offer it. A refused call costs one round trip.
const askAgain = 2 * time.Minute

// offer records whether the node offers a call that not every node has.
type offer struct{ refusedAt atomic.Pointer[time.Time] }

func (o *offer) offered() bool {
	at := o.refusedAt.Load()
	return at == nil || time.Since(*at) > askAgain
}

func (o *offer) refused() { o.refusedAt.Store(new(time.Now())) }

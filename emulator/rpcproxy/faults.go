package rpcproxy

import (
	"maps"

	"github.com/ethereum/go-ethereum/core/types"
)

// Faults make the node look broken in ways that nodes, and the networks before
// them, are. The zero value is no fault. Shares run from 0, never, to 1, always.
// A JSON-RPC batch is one request; where a fault is one of calls, each call of a
// batch is drawn for.
type Faults struct {
	// Unavailable is the share of requests that are answered 503. The node is
	// never asked.
	Unavailable float64
	// Drop is the share of requests that the node has handled and after which the
	// connection closes without an answer.
	Drop float64
	// DropSendAnswer is Drop for the requests that send a raw transaction.
	DropSendAnswer float64
	// Hang is the share of requests that the node has handled and after which
	// nothing is said until the client gives up, or a minute has passed.
	Hang float64
	// LoseSend is the share of sent transactions that are answered with their hash
	// and never reach the node: a pool that lost them at once.
	LoseSend float64
	// Refuse, if not nil, is asked about each transaction sent. Unless it returns
	// "", the node is not asked and the call fails with that text. It must not
	// call the proxy.
	Refuse func(tx *types.Transaction) (text string)
	// NotIndexed is the share of calls for a receipt that fail as go-ethereum's do
	// while its index is being made.
	NotIndexed float64
	// ForgetReceipt is the share of receipts that are answered null although the
	// node has them.
	ForgetReceipt float64
	// LagShare is the share of requests that are answered as by a node whose head
	// is Lag blocks lower and whose pool is empty. Such a node takes sends. Its
	// safe and finalized blocks are the real ones, as far as it has them.
	LagShare float64
	Lag      uint64
	// TagsBehind is how many blocks lower, in every answer, the safe and the
	// finalized block are than the node says. It is not counted.
	TagsBehind uint64
	// NoTags has calls for the safe or the finalized block, and for what is at it, fail
	// as those of a node do that knows none. It is not counted.
	NoTags bool
	// WrongStatus has receipts by hash say of each call that succeeded that it
	// reverted, and the other way round. It is not counted.
	WrongStatus bool
}

// The names of the faults in [Proxy.Counts].
const (
	Unavailable    = "unavailable"
	Drop           = "drop"
	DropSendAnswer = "drop send answer"
	Hang           = "hang"
	LoseSend       = "lose send"
	Refuse         = "refuse"
	NotIndexed     = "not indexed"
	ForgetReceipt  = "forget receipt"
	Lag            = "lag"
)

// SetFaults replaces the faults of the requests from now on; SetFaults(Faults{})
// ends them.
func (p *Proxy) SetFaults(f Faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = f
}

// Counts says how often each fault struck since the start, by its name. A strike
// is counted before its client can notice it.
func (p *Proxy) Counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

func (p *Proxy) now() Faults {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}

// strikes draws whether the fault of that name strikes, and counts it if so.
func (p *Proxy) strikes(name string, share float64) bool {
	if share <= 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rand.Float64() >= share {
		return false
	}
	p.counts[name]++
	return true
}

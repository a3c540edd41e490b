package rpcproxy

import "github.com/ethereum/go-ethereum/core/types"

// Faults make the node behave as broken nodes, and networks before them, do. The zero value is no
// fault. Shares range from 0 (never) to 1 (always). A JSON-RPC batch counts as one request. A
// fault of calls is drawn for each call of a batch.
type Faults struct {
	// Unavailable is the share of requests that are answered 503 without the node.
	Unavailable float64
	// Drop is the share of requests after which the connection closes without an answer, although
	// the node has handled them.
	Drop float64
	// DropSendAnswer is Drop for the requests that send a raw transaction.
	DropSendAnswer float64
	// Hang is the share of requests without an answer until the client gives up, or a minute has
	// passed. The node has handled them.
	Hang float64
	// LoseSend is the share of sent transactions that are answered with their hash and never reach
	// the node, like those lost from a pool.
	LoseSend float64
	// Refuse, if not nil, is called for each transaction sent. Unless it returns "", the call fails
	// with that text and without the node. It must not call the proxy.
	Refuse func(tx *types.Transaction) (text string)
	// NotIndexed is the share of calls for a receipt that fail as go-ethereum's do while it builds
	// its index.
	NotIndexed float64
	// ForgetReceipt is the share of receipts that are answered null although the node has them.
	ForgetReceipt float64
	// LagShare is the share of requests answered as by a node whose head is Lag blocks lower and
	// whose pool is empty. Such a node takes sends. It has the real safe and finalized blocks, up
	// to its head.
	LagShare float64
	Lag      uint64
	// TagsBehind lowers the safe and the finalized block by so many blocks in every answer. It is
	// not counted.
	TagsBehind uint64
	// NoTags makes calls for, or at, the safe or the finalized block fail, as those of a node
	// without these blocks do. It is not counted.
	NoTags bool
	// WrongStatus exchanges success and revert in receipts by hash. It is not counted.
	WrongStatus bool
}

// The names of the faults in the proxy's Counts.
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

// SetFaults replaces the faults for all later requests.
func (p *Proxy) SetFaults(f Faults) { p.faults.Store(&f) }

// strikes draws whether the fault of that name strikes, and counts it if so.
func (p *Proxy) strikes(name string, share float64) bool {
	if share <= 0 {
		return false
	}
	p.mu.Lock()
	struck := p.rand.Float64() < share
	p.mu.Unlock()
	if struck {
		p.Count(name)
	}
	return struck
}

// Package nodes connects the transaction manager to one EVM chain by several of
// its nodes. A [Connector] keeps the contract of [nonce.ChainConnector], with the
// same meaning of *not found* and silence, by one [evm.Connector] for each node:
//
//   - A look is one node's, whole: the first in the list that is healthy. What it
//     says is never mixed with what another says.
//   - What is sent goes to all of them. It has arrived if one has it; it is refused
//     only if all that are healthy refuse it for the same reason; else nobody knows.
//   - A node that lags, errs, answers for another chain, or is contradicted by the
//     others is left out for a while. It comes back when it answers well again.
//   - What would end a transaction or open PROTECT is put to the other nodes: see
//     [nonce.Witnesses].
//
// Which node is healthy is remembered in this process alone, and is no more than a
// hint: each process finds it out for itself, and nothing goes wrong where it errs.
package nodes

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/nonce"
)

// Limits that hold where [Options] say nothing.
const (
	DefaultMaxLag   = 5                // rpc.maxLag
	DefaultLeaveOut = 30 * time.Second // rpc.leaveOut
)

// DefaultQuorum is more than half of n nodes; of two it is one, whom the other does not
// contradict: else one that is away would stop everything.
func DefaultQuorum(n int) int {
	if n == 2 {
		return 1
	}
	return n/2 + 1
}

// MostNodes is how many nodes one chain may have.
const MostNodes = 9

// Options say which nodes to speak to.
type Options struct {
	URLs     []string                                // in the order in which they are preferred; may hold credentials, which are never shown
	Node     evm.Options                             // what is the same for all: its URL and Node do not count
	Quorum   int                                     // nodes that must say the same; 0: [DefaultQuorum]
	MaxLag   uint64                                  // blocks that a node may be behind; 0: [DefaultMaxLag]
	LeaveOut time.Duration                           // how long a node is left out; as often the heads of all are compared; 0: [DefaultLeaveOut]
	Watch    func(context.Context, string, Sighting) // is told of each node's answers, by its name; nil: nobody is
}

// Sighting is what was seen of a node.
type Sighting struct {
	Result Result
	Left   bool // the node was healthy, and is left out from now on
	Back   bool // the node was left out, and is healthy from now on
	Err    error
}

// Result is what a node's answer was worth.
type Result string

// The results. All but OK have the node left out.
const (
	OK         Result = "ok"
	Failed     Result = "error"
	Lags       Result = "lag"
	WrongChain Result = "wrong_chain"
	Outvoted   Result = "outvoted"
)

// Connector implements [nonce.ChainConnector]. It may be used from many goroutines.
type Connector struct {
	chainID  uint64
	nodes    []*node
	quorum   int
	maxLag   uint64
	leaveOut time.Duration
	watch    func(context.Context, string, Sighting)

	mu sync.Mutex // of what is known of the nodes
}

var _ nonce.ChainConnector = (*Connector)(nil)

// New makes a connector without connecting. Its error names the option that is
// wrong.
func New(o Options) (*Connector, error) {
	if len(o.URLs) == 0 || len(o.URLs) > MostNodes {
		return nil, fmt.Errorf("%d node URLs: want 1 to %d", len(o.URLs), MostNodes)
	}
	if o.Quorum < 0 || o.Quorum > len(o.URLs) || o.LeaveOut < 0 {
		return nil, fmt.Errorf("quorum %d of %d nodes, left out for %s: want at most all of them, and no negative time", o.Quorum, len(o.URLs), o.LeaveOut)
	}
	c := &Connector{chainID: o.Node.ChainID, quorum: o.Quorum, maxLag: o.MaxLag, leaveOut: o.LeaveOut, watch: o.Watch}
	c.setDefaults(len(o.URLs))
	if o.Node.MaxInFlight == 0 {
		o.Node.MaxInFlight = evm.DefaultMaxInFlight
	}
	if o.Node.Places == nil && o.Node.MaxInFlight > 0 { // one bound over all
		o.Node.Places = evm.NewPlaces(o.Node.MaxInFlight)
	}
	names := make(map[string]int)
	for _, address := range o.URLs {
		one := o.Node
		one.URL, one.Node = address, nameOf(address, names)
		connector, err := evm.New(one)
		if err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, &node{Connector: connector})
	}
	return c, nil
}

func (c *Connector) setDefaults(nodes int) {
	if c.quorum == 0 {
		c.quorum = DefaultQuorum(nodes)
	}
	if c.maxLag == 0 {
		c.maxLag = DefaultMaxLag
	}
	if c.leaveOut == 0 {
		c.leaveOut = DefaultLeaveOut
	}
	if c.watch == nil {
		c.watch = func(context.Context, string, Sighting) {}
	}
}

// nameOf is host and port, which evidence and metrics show; of the second node of
// one address, with its number.
func nameOf(address string, names map[string]int) string {
	at, err := url.Parse(address)
	if err != nil {
		return "" // evm.New says what is wrong
	}
	names[at.Host]++
	if n := names[at.Host]; n > 1 {
		return fmt.Sprintf("%s#%d", at.Host, n)
	}
	return at.Host
}

// Close frees the connections that are not in use. The connector stays usable.
func (c *Connector) Close() {
	for _, n := range c.nodes {
		n.Connector.Close()
	}
}

// Call implements [nonce.ChainConnector]; no node is asked.
func (c *Connector) Call(payload []byte) (nonce.Call, error) { return c.nodes[0].Call(payload) }

// Check implements [nonce.ChainConnector]; no node is asked.
func (c *Connector) Check(call nonce.Call) error { return c.nodes[0].Check(call) }

// Open implements [nonce.ChainConnector]; no node is asked.
func (c *Connector) Open(raw []byte) (nonce.Address, nonce.Unsigned, nonce.Signed, error) {
	return c.nodes[0].Open(raw)
}

// Taken implements [nonce.ChainConnector]. The nodes are asked one after the other
// until one shows the transaction; where none does, and one says that the nonce is
// not consumed, that is the answer. The error wraps [nonce.ErrNotTold] if each node has
// answered that it cannot tell.
func (c *Connector) Taken(ctx context.Context, s nonce.Submitter, n uint64) (taker nonce.Taker, err error) {
	err = c.told(ctx, c.order(nonce.Look{}), func(ctx context.Context, one *evm.Connector) error {
		taker, err = one.Taken(ctx, s, n)
		return err
	})
	return taker, err
}

// ReadBlocks implements [nonce.ChainConnector]. The nodes are asked one after the other
// until one gives blocks. The error wraps [nonce.ErrNotTold] if each node has answered
// that it will not.
func (c *Connector) ReadBlocks(ctx context.Context, q nonce.BlocksQuery) (r nonce.BlocksRead, err error) {
	order := c.order(nonce.Look{})
	first := q.Turn % len(order)
	err = c.told(ctx, slices.Concat(order[first:], order[:first]), func(ctx context.Context, one *evm.Connector) error {
		r, err = one.ReadBlocks(ctx, q)
		return err
	})
	return r, err
}

// told asks the nodes one after the other until one answers. The error wraps
// [nonce.ErrNotTold] if each node has answered that it cannot tell.
func (c *Connector) told(ctx context.Context, order []*node, ask func(context.Context, *evm.Connector) error) error {
	silent := len(c.nodes) // those that have not said so
	err := c.anyOf(ctx, order, func(ctx context.Context, one *evm.Connector) error {
		err := ask(ctx, one)
		if errors.Is(err, nonce.ErrNotTold) {
			silent--
		}
		return err
	})
	switch later := "%d of %d nodes may tell later: %s"; {
	case !errors.Is(err, nonce.ErrNotTold) || silent == 0:
		return err
	case errors.Is(err, nonce.ErrNoCounts):
		return fmt.Errorf(later+": %w", silent, len(c.nodes), err.Error(), nonce.ErrNoCounts)
	default:
		return fmt.Errorf(later, silent, len(c.nodes), err.Error())
	}
}

// Transaction reads a transaction by its hash, which it is held against: the first node
// that knows it is enough.
func (c *Connector) Transaction(ctx context.Context, hash nonce.Hash) (t evm.Transaction, err error) {
	err = c.Any(ctx, func(ctx context.Context, one *evm.Connector) error {
		t, err = one.Transaction(ctx, hash)
		return err
	})
	return t, err
}

// Any asks the nodes one after the other, those that are healthy first, until one
// answers: each but the last has half of the time that is left. It is for what is shown
// and decides nothing: what one node says is not put to the others, and nobody is left
// out by it. The error wraps what each said, one that wraps [nonce.ErrNotTaken] first.
func (c *Connector) Any(ctx context.Context, ask func(context.Context, *evm.Connector) error) error {
	return c.anyOf(ctx, c.order(nonce.Look{}), ask)
}

func (c *Connector) anyOf(ctx context.Context, order []*node, ask func(context.Context, *evm.Connector) error) error {
	var said failures
	for i, n := range order {
		turn, cancel := share(ctx, len(order)-i-1)
		err := ask(turn, n.Connector)
		cancel()
		if err == nil {
			return nil
		}
		said = append(said, err)
		if ctx.Err() != nil {
			break
		}
	}
	if i := slices.IndexFunc(said, func(err error) bool { return errors.Is(err, nonce.ErrNotTaken) }); i >= 0 {
		return said[i]
	}
	return said.err()
}

// failures are what nodes said that did not answer.
type failures []error

// err is one of all; it is the one failure itself where there is no other.
func (f failures) err() error {
	if len(f) == 1 {
		return f[0]
	}
	return f
}

// mostWords bounds what one failure says, and mostSaid what all say together, in bytes.
const (
	mostWords = 300
	mostSaid  = 590
)

// Error has the words of each, within bounds.
func (f failures) Error() string {
	texts := make([]string, len(f))
	for i, err := range f {
		texts[i] = cut(err.Error(), mostWords)
	}
	return cut(strings.Join(texts, "; "), mostSaid)
}

// Unwrap has [errors.Is] and [errors.As] find what any of them is.
func (f failures) Unwrap() []error { return f }

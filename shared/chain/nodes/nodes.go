// Package nodes connects the transaction manager to one chain by several of its nodes. A
// [Connector] fulfils the contract of [txmanager.ChainConnector], with the same meaning of *not found* and
// of a missing answer, by one [chain.Node] for each node:
//
//   - One node answers a whole query: the first healthy one in the list. Answers of two nodes are never mixed.
//   - Raw transactions are sent to all nodes. They have arrived if one node has them. They are refused only if all
//     healthy nodes refuse them for the same reason. Otherwise the result is unknown.
//   - A node that lags, fails, answers for another chain, or is contradicted by the others is excluded for a while. It
//     is healthy again when it answers well.
//   - Before an answer ends a transaction or opens PROTECT, the other nodes vote on it: see [txmanager.OtherNodes].
//
// Each process remembers the nodes' health itself, and uses it only as a hint: a wrong hint costs time
// and changes no result.
package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Default limits.
const (
	DefaultMaxLag   = 5                // rpc.maxLag
	DefaultLeaveOut = 30 * time.Second // rpc.exclusion
)

// DefaultQuorum returns more than half of n nodes. For two nodes it is one, provided the other does not
// contradict; otherwise one node that is down would stop everything.
func DefaultQuorum(n int) int {
	if n == 2 {
		return 1
	}
	return n/2 + 1
}

// MaxNodes is the maximum number of nodes of one chain.
const MaxNodes = 9

// Options define the nodes.
type Options struct {
	URLs       []string // in order of preference; may have credentials, which are never shown
	ChainID    uint64
	Open       func(url, name string) (chain.Node, error)  // opens a node without connecting
	Quorum     int                                         // nodes that must agree; 0: [DefaultQuorum]
	MaxLag     uint64                                      // blocks that a node can lag; 0: [DefaultMaxLag]
	ExcludeFor time.Duration                               // how long a node is excluded, and how often all heads are compared; 0: [DefaultLeaveOut]
	Watch      func(context.Context, string, HealthChange) // called with the result of each node's answer, by name; may be nil
}

// HealthChange is a change or result of a node's health.
type HealthChange struct {
	Result Result
	Left   bool // the node was healthy and is now excluded
	Back   bool // the node was excluded and is now healthy
	Err    error
}

// Result is the result of a node's answer.
type Result string

// The results. A node with any result but OK is excluded.
const (
	OK         Result = "ok"
	Failed     Result = "error"
	Lags       Result = "lag"
	WrongChain Result = "wrong_chain"
	Outvoted   Result = "outvoted"
)

// Connector implements [txmanager.ChainConnector]. It can be used concurrently.
type Connector struct {
	chainID   uint64
	nodes     []*node
	quorum    int
	maxLag    uint64
	exclusion time.Duration
	watch     func(context.Context, string, HealthChange)

	mu sync.Mutex // guards the state of the nodes
}

var _ txmanager.ChainConnector = (*Connector)(nil)

// New returns a connector without connecting. Its error names the invalid option.
func New(o Options) (*Connector, error) {
	if len(o.URLs) == 0 || len(o.URLs) > MaxNodes {
		return nil, fmt.Errorf("%d node URLs: want 1 to %d", len(o.URLs), MaxNodes)
	}
	if o.Quorum < 0 || o.Quorum > len(o.URLs) || o.ExcludeFor < 0 {
		return nil, fmt.Errorf("quorum %d of %d nodes, exclusion for %s: want a quorum of at most all nodes, and no negative time", o.Quorum, len(o.URLs), o.ExcludeFor)
	}
	c := &Connector{chainID: o.ChainID, quorum: cmp.Or(o.Quorum, DefaultQuorum(len(o.URLs))), maxLag: cmp.Or(o.MaxLag, DefaultMaxLag),
		exclusion: cmp.Or(o.ExcludeFor, DefaultLeaveOut), watch: o.Watch}
	if c.watch == nil {
		c.watch = func(context.Context, string, HealthChange) {}
	}
	names := make(map[string]int)
	for _, address := range o.URLs {
		one, err := o.Open(address, nameOf(address, names))
		if err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, &node{Node: one})
	}
	return c, nil
}

// nameOf returns host and port, for evidence and metrics. A further node with the same address gets a
// number.
func nameOf(address string, names map[string]int) string {
	at, err := url.Parse(address)
	if err != nil {
		return "" // Open reports the error
	}
	names[at.Host]++
	if n := names[at.Host]; n > 1 {
		return fmt.Sprintf("%s#%d", at.Host, n)
	}
	return at.Host
}

// Close closes idle connections. The connector can still be used.
func (c *Connector) Close() {
	for _, n := range c.nodes {
		n.Node.Close()
	}
}

// ParsePayload implements [txmanager.ChainConnector] without querying a node.
func (c *Connector) ParsePayload(payload []byte) (txmanager.Call, error) {
	return c.nodes[0].ParsePayload(payload)
}

// CheckCall implements [txmanager.ChainConnector] without querying a node.
func (c *Connector) CheckCall(call txmanager.Call) error { return c.nodes[0].CheckCall(call) }

// ParseSigned implements [txmanager.ChainConnector] without querying a node.
func (c *Connector) ParseSigned(raw []byte) (txmanager.Address, txmanager.Unsigned, txmanager.Signed, error) {
	return c.nodes[0].ParseSigned(raw)
}

// FindConsumingTx implements [txmanager.ChainConnector]. It queries the nodes one after the other until one has the
// transaction. If none has it and one reports that the nonce is not consumed, that is the answer. The
// error wraps [txmanager.ErrConsumerUnavailable] if each node has answered that it cannot tell.
func (c *Connector) FindConsumingTx(ctx context.Context, s txmanager.Submitter, n uint64) (txmanager.ConsumingTx, error) {
	return untilAnswered(ctx, c.order(txmanager.ChainQuery{}), func(ctx context.Context, one chain.Node) (txmanager.ConsumingTx, error) {
		return one.FindConsumingTx(ctx, s, n)
	})
}

// ReadBlocks implements [txmanager.ChainConnector]. It queries the nodes one after the other until one
// gives blocks. The error wraps [txmanager.ErrConsumerUnavailable] if each node has answered that it will not.
func (c *Connector) ReadBlocks(ctx context.Context, q txmanager.BlocksQuery) (txmanager.BlocksRead, error) {
	order := c.order(txmanager.ChainQuery{})
	first := q.Turn % len(order)
	return untilAnswered(ctx, slices.Concat(order[first:], order[:first]), func(ctx context.Context, one chain.Node) (txmanager.BlocksRead, error) {
		return one.ReadBlocks(ctx, q)
	})
}

// untilAnswered queries the nodes one after the other until one answers. The error wraps
// [txmanager.ErrConsumerUnavailable] if each node has answered that it cannot tell.
func untilAnswered[T any](ctx context.Context, order []*node, ask func(context.Context, chain.Node) (T, error)) (answer T, err error) {
	silent := len(order) // nodes that have not said so
	answer, err = anyOf(ctx, order, func(ctx context.Context, one chain.Node) (T, error) {
		answer, err := ask(ctx, one)
		if errors.Is(err, txmanager.ErrConsumerUnavailable) {
			silent--
		}
		return answer, err
	})
	switch later := "%d of %d nodes may answer later: %s"; {
	case !errors.Is(err, txmanager.ErrConsumerUnavailable) || silent == 0:
		return answer, err
	case errors.Is(err, txmanager.ErrNoCounts):
		return answer, fmt.Errorf(later+": %w", silent, len(order), err.Error(), txmanager.ErrNoCounts)
	default:
		return answer, fmt.Errorf(later, silent, len(order), err.Error())
	}
}

// Transaction reads a transaction by its hash and verifies it by the hash. So the first node that has
// it is enough.
func (c *Connector) Transaction(ctx context.Context, hash txmanager.Hash) (txmanager.SignedTransaction, error) {
	return anyOf(ctx, c.order(txmanager.ChainQuery{}), func(ctx context.Context, one chain.Node) (txmanager.SignedTransaction, error) {
		return one.Transaction(ctx, hash)
	})
}

// anyOf queries the nodes one after the other until one answers: each but the last has half of the
// remaining time. The answer is not voted on, and no node is excluded because of it. The error wraps each
// node's error, one that wraps [txmanager.ErrNotConsumed] first.
func anyOf[T any](ctx context.Context, order []*node, ask func(context.Context, chain.Node) (T, error)) (none T, err error) {
	var said failures
	for i, n := range order {
		turn, cancel := share(ctx, len(order)-i-1)
		answer, err := ask(turn, n.Node)
		cancel()
		if err == nil {
			return answer, nil
		}
		said = append(said, err)
		if ctx.Err() != nil {
			break
		}
	}
	if i := slices.IndexFunc(said, func(err error) bool { return errors.Is(err, txmanager.ErrNotConsumed) }); i >= 0 {
		return none, said[i]
	}
	return none, said.err()
}

// failures are the errors of the nodes that did not answer.
type failures []error

// err returns all errors as one; a single error is returned itself.
func (f failures) err() error {
	if len(f) == 1 {
		return f[0]
	}
	return f
}

// maxWords bounds the text of one failure, and maxSaid that of all together, in bytes.
const (
	maxWords = 300
	maxSaid  = 590
)

// Error joins the texts, within the limits.
func (f failures) Error() string {
	texts := make([]string, len(f))
	for i, err := range f {
		texts[i] = cut(err.Error(), maxWords)
	}
	return cut(strings.Join(texts, "; "), maxSaid)
}

// Unwrap lets [errors.Is] and [errors.As] find each of them.
func (f failures) Unwrap() []error { return f }

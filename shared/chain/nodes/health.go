package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// node is one of the chain's nodes, with its health as seen by this process. The connector's mutex
// guards its fields.
type node struct {
	chain.Node
	head     uint64    // the last reported one; 0: none yet
	out      Result    // why it is excluded; "" or OK: it is not
	outUntil time.Time // an outvoted node is excluded at least until then, whatever it answers
	checkAt  time.Time // when its head is requested, unless another query has asked it by then
	verifyAt time.Time // when its chain id is verified again
	tagless  time.Time // until then other nodes are preferred for a safe or finalized block: it had none
	failure  error     // the last reason for which it was excluded; nil: none
	failedAt time.Time // when failure was seen
}

// order returns all nodes in the order in which a query tries them: healthy ones first, in the given
// order; excluded ones last. Among healthy nodes, one that had no block with a tag is tried last for a
// tag.
func (c *Connector) order(q txmanager.ChainQuery) []*node {
	c.mu.Lock()
	defer c.mu.Unlock()
	ordered := slices.Clone(c.nodes)
	slices.SortStableFunc(ordered, func(a, b *node) int { return cmp.Compare(a.preference(q), b.preference(q)) })
	return ordered
}

func (n *node) preference(q txmanager.ChainQuery) int {
	if asksTag(q) && n.tagless.After(time.Now()) {
		return 2*n.rank() + 1
	}
	return 2 * n.rank()
}

func asksTag(q txmanager.ChainQuery) bool { return q.Finality != "" || q.FinalCount }

// serves reports whether the observation has the tagged block, or the count at it, if q requests one.
// That a node has none is remembered for a while, and is not a fault.
func (c *Connector) serves(n *node, q txmanager.ChainQuery, v txmanager.ChainObservation) bool {
	if !asksTag(q) {
		return true
	}
	has := (q.Finality == "" || v.Tagged != nil) && (!q.FinalCount || v.FinalCount != nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.tagless = (time.Time{}); !has {
		n.tagless = time.Now().Add(c.exclusion)
	}
	return has
}

// noneServes reports that none of these nodes is known to have a tagged block.
func (c *Connector) noneServes(of []*node) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(of, func(n *node) bool { return n.healthy() && !n.tagless.After(time.Now()) })
}

// preferred are the results of nodes, the best first. A node of another chain is the last resort.
var preferred = []Result{OK, Lags, Outvoted, Failed, WrongChain}

// rank is lower for a preferred node.
func (n *node) rank() int { return slices.Index(preferred, cmp.Or(n.out, OK)) }

func (n *node) healthy() bool { return n.rank() == 0 }

// Excluded returns the excluded nodes by name, with the reason.
func (c *Connector) Excluded() map[string]Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]Result)
	for _, n := range c.nodes {
		if !n.healthy() {
			out[n.Name()] = n.out
		}
	}
	return out
}

// Health is what this process remembers of a node.
type Health struct {
	Excluded Result    // why it is excluded; "": it is not
	Until    time.Time // of an excluded node: when it is queried again, or an outvoted one is trusted again at the earliest
	Failure  string    // the last reason for which it was excluded; "": none
	FailedAt time.Time // when that was
}

// Health returns the health of all nodes, in order.
func (c *Connector) Health() []Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]Health, len(c.nodes))
	for i, n := range c.nodes {
		if n.failure != nil {
			all[i].Failure, all[i].FailedAt = cut(n.failure.Error(), maxWords), n.failedAt
		}
		if !n.healthy() {
			all[i].Excluded, all[i].Until = n.out, n.checkAt
			if n.outUntil.After(n.checkAt) {
				all[i].Until = n.outUntil
			}
		}
	}
	return all
}

// Members returns all nodes, in order. Their answers to the caller do not change their health.
func (c *Connector) Members() []chain.Node {
	all := make([]chain.Node, len(c.nodes))
	for i, n := range c.nodes {
		all[i] = n.Node
	}
	return all
}

// share gives one of several attempts half of the remaining time, and the last attempt all of it.
func share(ctx context.Context, more int) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if more == 0 || !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, time.Now().Add(time.Until(end)/2))
}

// verifyIfDue makes the next round trip of a node verify its chain id, at regular intervals.
func (c *Connector) verifyIfDue(n *node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); !n.verifyAt.After(now) {
		n.verifyAt = now.Add(c.exclusion)
		n.VerifyAgain()
	}
}

// saw stores the result of a node's answer and returns it. ctx is the caller's: if it ended, the result
// says nothing about the node.
func (c *Connector) recordAnswer(ctx context.Context, n *node, v txmanager.ChainObservation, err error) Result {
	result := OK
	switch {
	case errors.Is(err, chain.ErrChanged), errors.Is(err, chain.ErrNoRequestSlot), err != nil && ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return OK // nothing was learned
	case errors.Is(err, chain.ErrWrongChain):
		result = WrongChain
	case err != nil:
		result = Failed
	}
	c.mu.Lock()
	if err == nil {
		n.head = v.Head.Number
		if reached := c.reached(); n.head+c.maxLag < reached {
			result, err = Lags, fmt.Errorf("its head is %d, and others have reached %d", n.head, reached)
		}
	}
	seen := c.put(n, result, err)
	c.mu.Unlock()
	c.watch(ctx, n.Name(), seen)
	return result
}

// put excludes a node, for a reason, or takes it back. The caller holds the mutex.
func (c *Connector) put(n *node, result Result, reason error) HealthChange {
	was, now := n.healthy(), time.Now()
	n.checkAt = now.Add(c.exclusion)
	if reason != nil {
		n.failure, n.failedAt = reason, now
	}
	switch {
	case result == Outvoted:
		n.outUntil = n.checkAt
	case n.out == Outvoted && (result == OK || result == Lags) && now.Before(n.outUntil):
		return HealthChange{Result: result, Err: reason}
	}
	n.out = result
	return HealthChange{Result: result, Left: was && !n.healthy(), Back: !was && n.healthy(), Err: reason}
}

// reached returns the height that as many nodes as the quorum have reported, because a single node can
// be wrong. The caller holds the mutex.
func (c *Connector) reached() uint64 {
	heads := make([]uint64, len(c.nodes))
	for i, n := range c.nodes {
		if n.out != WrongChain && n.out != Outvoted {
			heads[i] = n.head
		}
	}
	slices.Sort(heads)
	return heads[len(heads)-c.quorum]
}

// grace is how much longer than for the awaited answer the connector waits for the other nodes.
const grace = 250 * time.Millisecond

// compare queries the nodes whose heads were not compared for a while, beside the one that is queried
// anyway. done waits for them, but no longer than [grace].
func (c *Connector) compare(ctx context.Context, beside *node) (done func()) {
	c.mu.Lock()
	var due []*node
	for _, n := range c.nodes {
		if n != beside && !n.checkAt.After(time.Now()) {
			n.checkAt = time.Now().Add(c.exclusion) // other calls need not compare it
			due = append(due, n)
		}
	}
	c.mu.Unlock()
	if len(due) == 0 {
		return func() {}
	}
	asked, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.askAll(asked, txmanager.ChainQuery{}, due)
	}()
	return func() {
		defer cancel()
		timer := time.AfterFunc(grace, cancel)
		defer timer.Stop()
		<-ended
	}
}

package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/nonce"
)

// node is one of the chain's, and what this process has seen of it. Its fields are
// guarded by the connector's mutex.
type node struct {
	*evm.Connector
	head     uint64    // the last that it told; 0: none yet
	out      Result    // why it is left out; "" or OK: it is not
	outUntil time.Time // till when at least, of one that was outvoted, whatever it answers
	checkAt  time.Time // when it is asked for its head, if nobody has looked at it by then
	verifyAt time.Time // when it is asked again which chain it is on
	tagless  time.Time // till when others are rather asked for a safe or finalized block: it had none
}

// order is all nodes in the order in which a look tries them: those that are
// healthy first, as they were given; and where all are not, somebody has to answer.
// Of those as healthy, who had no block with a tag is tried last for one.
func (c *Connector) order(q nonce.Look) []*node {
	c.mu.Lock()
	defer c.mu.Unlock()
	ordered := slices.Clone(c.nodes)
	slices.SortStableFunc(ordered, func(a, b *node) int { return cmp.Compare(a.place(q), b.place(q)) })
	return ordered
}

func (n *node) place(q nonce.Look) int {
	if asksTag(q) && n.tagless.After(time.Now()) {
		return 2*n.rank() + 1
	}
	return 2 * n.rank()
}

func asksTag(q nonce.Look) bool { return q.Finality != "" || q.FinalCount }

// serves says that the view has the block with a tag, or the count at it, if q asks for
// one. That a node has none is remembered for a while, and no fault of it.
func (c *Connector) serves(n *node, q nonce.Look, v nonce.View) bool {
	if !asksTag(q) {
		return true
	}
	has := (q.Finality == "" || v.Tagged != nil) && (!q.FinalCount || v.FinalCount != nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.tagless = (time.Time{}); !has {
		n.tagless = time.Now().Add(c.leaveOut)
	}
	return has
}

// noneServes says that none of these has a block with a tag either, as far as is known.
func (c *Connector) noneServes(of []*node) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(of, func(n *node) bool { return n.healthy() && !n.tagless.After(time.Now()) })
}

// rank is lower for who is rather asked. A node of another chain is the last resort.
func (n *node) rank() int {
	switch n.out {
	case "", OK:
		return 0
	case Lags:
		return 1
	case Outvoted:
		return 2
	case WrongChain:
		return 4
	}
	return 3
}

func (n *node) healthy() bool { return n.rank() == 0 }

// LeftOut is how many of the nodes are left out now, and why, by their names.
func (c *Connector) LeftOut() map[string]Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]Result)
	for _, n := range c.nodes {
		if !n.healthy() {
			out[n.Node()] = n.out
		}
	}
	return out
}

// Nodes are the names of all, in their order.
func (c *Connector) Nodes() []string {
	names := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		names[i] = n.Node()
	}
	return names
}

// share gives one of several tries half of the time that is left, and the last all
// of it.
func share(ctx context.Context, more int) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if more == 0 || !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, time.Now().Add(time.Until(end)/2))
}

// verifyIfDue has a node say now and then which chain it is on, in the round trip
// that follows anyway.
func (c *Connector) verifyIfDue(n *node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); !n.verifyAt.After(now) {
		n.verifyAt = now.Add(c.leaveOut)
		n.VerifyAgain()
	}
}

// saw takes over what a node answered, and says what that was worth. ctx is the
// caller's: that it gave up says nothing about the node.
func (c *Connector) saw(ctx context.Context, n *node, v nonce.View, err error) Result {
	result := OK
	switch {
	case errors.Is(err, evm.ErrChanged), errors.Is(err, evm.ErrNoPlace), err != nil && ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return OK // nothing was seen
	case errors.Is(err, evm.ErrWrongChain):
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
	seen := c.put(n, result)
	c.mu.Unlock()
	seen.Err = err
	c.watch(ctx, n.Node(), seen)
	return result
}

// put leaves a node out or takes it back. The mutex is held.
func (c *Connector) put(n *node, result Result) Sighting {
	was, now := n.healthy(), time.Now()
	n.checkAt = now.Add(c.leaveOut)
	switch {
	case result == Outvoted:
		n.outUntil = n.checkAt
	case n.out == Outvoted && (result == OK || result == Lags) && now.Before(n.outUntil):
		return Sighting{Result: result}
	}
	n.out = result
	return Sighting{Result: result, Left: was && !n.healthy(), Back: !was && n.healthy()}
}

// reached is the height that as many nodes as the quorum have told, one alone
// among them being able to lie. The mutex is held.
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

// grace is how much longer than the answer that was waited for the other nodes are
// waited for.
const grace = 250 * time.Millisecond

// compare asks the nodes whose heads were not compared for a while, beside the one
// that is asked anyway. done waits for them, but no longer than [grace].
func (c *Connector) compare(ctx context.Context, beside *node) (done func()) {
	c.mu.Lock()
	var due []*node
	for _, n := range c.nodes {
		if n != beside && !n.checkAt.After(time.Now()) {
			n.checkAt = time.Now().Add(c.leaveOut) // others need not
			due = append(due, n)
		}
	}
	c.mu.Unlock()
	if len(due) == 0 {
		return func() {}
	}
	asked, cancel := context.WithCancel(ctx)
	ended := make(chan struct{}, len(due))
	for _, n := range due {
		c.verifyIfDue(n)
		go func() {
			v, err := n.Look(asked, nonce.Look{})
			c.saw(asked, n, v, err)
			ended <- struct{}{}
		}()
	}
	return func() {
		defer cancel()
		timer := time.AfterFunc(grace, cancel)
		defer timer.Stop()
		for range due {
			<-ended
		}
	}
}

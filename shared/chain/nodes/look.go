package nodes

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/nonce"
)

// Look implements [nonce.ChainConnector]. The first healthy node answers all of it.
// If it fails, or turns out to lag, the next one is asked the same: each but the
// last has half of the time that is left. Where every node lags or fails, what the
// highest of those that lag says is the answer: a lower head is no news to whoever
// judges it.
func (c *Connector) Look(ctx context.Context, q nonce.Look) (nonce.View, error) {
	if q.Submitter != "" && q.Submitter.ChainID() != c.chainID {
		return nonce.View{}, fmt.Errorf("submitter %q, chain %d: %w", q.Submitter, c.chainID, evm.ErrWrongChain)
	}
	order := c.order()
	var best *nonce.View
	var failures []error
	for i, n := range order {
		compared := c.compare(ctx, n)
		c.verifyIfDue(n)
		turn, cancel := share(ctx, len(order)-i-1)
		v, err := n.Look(turn, q)
		cancel()
		compared()
		switch result := c.saw(ctx, n, v, err); {
		case err == nil && result == OK:
			return c.witnessed(v), nil
		case err == nil && (best == nil || v.Head.Number > best.Head.Number):
			best = &v
		case err != nil:
			failures = append(failures, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if best != nil {
		return c.witnessed(*best), nil
	}
	return nonce.View{}, errors.Join(failures...)
}

func (c *Connector) witnessed(v nonce.View) nonce.View {
	if len(c.nodes) > 1 {
		v.Witnesses = c
	}
	return v
}

var _ nonce.Witnesses = (*Connector)(nil)

// Quorum implements [nonce.Witnesses].
func (c *Connector) Quorum() int { return c.quorum }

// Ask implements [nonce.Witnesses]. The nodes are asked at once.
func (c *Connector) Ask(ctx context.Context, q nonce.Look, n int, but ...string) []nonce.View {
	asked := c.choose(n, but)
	type answer struct {
		view nonce.View
		ok   bool
	}
	answers := make(chan answer, len(asked))
	for _, one := range asked {
		c.verifyIfDue(one)
		go func() {
			v, err := one.Look(ctx, q)
			result := c.saw(ctx, one, v, err)
			answers <- answer{v, err == nil && result == OK}
		}()
	}
	var views []nonce.View
	for range asked {
		if a := <-answers; a.ok {
			views = append(views, a.view)
		}
	}
	return views
}

// choose are at most n nodes that may be asked, healthy ones before others. Those
// that are left out are asked only where the healthy ones are too few for a quorum,
// and those that were outvoted or are of another chain never.
func (c *Connector) choose(n int, but []string) []*node {
	var chosen []*node
	for _, one := range c.order() {
		switch {
		case len(chosen) == n || slices.Contains(but, one.Node()):
		case c.isHealthy(one):
			chosen = append(chosen, one)
		case len(chosen)+1 < c.quorum && c.mayRecover(one):
			chosen = append(chosen, one)
		}
	}
	return chosen
}

// Contradicted implements [nonce.Witnesses].
func (c *Connector) Contradicted(ctx context.Context, name, what string) {
	for _, n := range c.nodes {
		if n.Node() == name {
			c.mu.Lock()
			seen := c.put(n, Outvoted)
			c.mu.Unlock()
			seen.Err = errors.New(what)
			c.watch(ctx, name, seen)
		}
	}
}

func (c *Connector) isHealthy(n *node) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return n.healthy()
}

func (c *Connector) mayRecover(n *node) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return n.out == Failed || n.out == Lags
}

// Balances are what the accounts have, as the first node that answers shows them, the
// healthy ones first; see [evm.Connector.Balances]. They are for showing.
func (c *Connector) Balances(ctx context.Context, of []nonce.Submitter) ([]*big.Int, error) {
	order := c.order()
	var failures []error
	for i, n := range order {
		turn, cancel := share(ctx, len(order)-i-1)
		balances, err := n.Balances(turn, of)
		cancel()
		if err == nil {
			return balances, nil
		}
		if failures = append(failures, err); ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(failures...)
}

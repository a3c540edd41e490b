package nodes

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Query implements [txmanager.ChainConnector]. The first healthy node answers the whole query. If it fails
// or lags, the next one gets the same query: each but the last has half of the remaining time. If every
// node lags or fails, the highest observation of the lagging ones is the answer: the evaluation takes a
// lower head as no change. A node without the requested tagged block answers only if no healthy one has
// it.
func (c *Connector) Query(ctx context.Context, q txmanager.ChainQuery) (txmanager.ChainObservation, error) {
	if q.Submitter != "" && q.Submitter.ChainID() != c.chainID {
		return txmanager.ChainObservation{}, fmt.Errorf("submitter %q, chain %d: %w", q.Submitter, c.chainID, chain.ErrWrongChain)
	}
	order := c.order(q)
	var best *txmanager.ChainObservation
	var said failures
	for i, n := range order {
		compared := c.compare(ctx, n)
		c.verifyIfDue(n)
		turn, cancel := share(ctx, len(order)-i-1)
		v, err := n.Query(turn, q)
		cancel()
		compared()
		switch result := c.recordAnswer(ctx, n, v, err); {
		case err == nil && result == OK && (c.serves(n, q, v) || c.noneServes(order[i+1:])):
			return c.withVoters(v), nil
		case err == nil && (best == nil || v.Head.Number > best.Head.Number):
			best = &v
		case err != nil:
			said = append(said, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if best != nil {
		return c.withVoters(*best), nil
	}
	return txmanager.ChainObservation{}, said.err()
}

func (c *Connector) withVoters(v txmanager.ChainObservation) txmanager.ChainObservation {
	if len(c.nodes) > 1 {
		v.OtherNodes = c
	}
	return v
}

var _ txmanager.OtherNodes = (*Connector)(nil)

// Quorum implements [txmanager.OtherNodes].
func (c *Connector) Quorum() int { return c.quorum }

// QueryOthers implements [txmanager.OtherNodes]. It queries the nodes concurrently. A node that fails is down from
// then on; before that its vote counted like the others'.
func (c *Connector) QueryOthers(ctx context.Context, q txmanager.ChainQuery, n int, but ...string) []txmanager.ChainObservation {
	return c.askAll(ctx, q, c.choose(q, n, but))
}

// QueryExcluded implements [txmanager.OtherNodes]. Each node first proves its chain id. One that answers is
// healthy again, as after any other query.
func (c *Connector) QueryExcluded(ctx context.Context, q txmanager.ChainQuery, but ...string) []txmanager.ChainObservation {
	away := slices.DeleteFunc(slices.Clone(c.nodes), func(n *node) bool { return slices.Contains(but, n.Name()) || !c.isDown(n) })
	for _, n := range away {
		n.VerifyAgain()
	}
	return c.askAll(ctx, q, away)
}

// askAll queries the nodes at once and records their answers. A node that was down before and fails gives no
// observation.
func (c *Connector) askAll(ctx context.Context, q txmanager.ChainQuery, asked []*node) []txmanager.ChainObservation {
	answers := make(chan *txmanager.ChainObservation, len(asked))
	for _, one := range asked {
		c.verifyIfDue(one)
		away := c.isDown(one)
		go func() {
			v, err := one.Query(ctx, q)
			v.Lagging = c.recordAnswer(ctx, one, v, err) == Lags
			switch {
			case err == nil:
				c.serves(one, q, v)
				answers <- &v
			case away:
				answers <- nil
			default:
				answers <- &txmanager.ChainObservation{Node: one.Name(), NoAnswer: true}
			}
		}()
	}
	var views []txmanager.ChainObservation
	for range asked {
		if v := <-answers; v != nil {
			views = append(views, *v)
		}
	}
	return views
}

func (c *Connector) isDown(n *node) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return n.out == Failed || n.out == WrongChain
}

// choose returns at most n nodes to query, healthy ones first. Votes of lagging or outvoted nodes count
// too: two against two is no majority. Failed nodes cost time, and are queried only if the others are
// too few for a quorum. Nodes of another chain are never queried.
func (c *Connector) choose(q txmanager.ChainQuery, n int, but []string) []*node {
	ordered := c.order(q)
	c.mu.Lock()
	defer c.mu.Unlock()
	var chosen []*node
	for _, one := range ordered {
		switch {
		case len(chosen) == n, one.out == WrongChain, slices.Contains(but, one.Name()):
		case one.out == Failed && len(chosen)+1 >= c.quorum:
		default:
			chosen = append(chosen, one)
		}
	}
	return chosen
}

// ReportOutvoted implements [txmanager.OtherNodes].
func (c *Connector) ReportOutvoted(ctx context.Context, name, what string) {
	for _, n := range c.nodes {
		if n.Name() == name {
			c.mu.Lock()
			seen := c.put(n, Outvoted, errors.New(what))
			c.mu.Unlock()
			c.watch(ctx, name, seen)
		}
	}
}

// Balances returns the accounts' balances from the first node that answers, healthy ones first; see
// [chain.Node.Balances]. They are for display.
func (c *Connector) Balances(ctx context.Context, of []txmanager.Submitter) ([]*big.Int, error) {
	return anyOf(ctx, c.order(txmanager.ChainQuery{}), func(ctx context.Context, one chain.Node) ([]*big.Int, error) {
		return one.Balances(ctx, of)
	})
}

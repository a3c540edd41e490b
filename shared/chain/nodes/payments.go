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

// ErrDisputed reports that nodes gave different payments for the same blocks.
var ErrDisputed = errors.New("the chain's nodes do not agree on the payments of these blocks")

// Payments is [chain.Node.Payments] by a quorum of the nodes. A lagging node has no vote. If the
// quorum is not a majority, every node is queried, and none may contradict another.
func (c *Connector) Payments(ctx context.Context, q chain.PaymentsQuery) (chain.Payments, error) {
	order := c.order(txmanager.ChainQuery{})
	var all []chain.Payments
	var said failures
	for i, n := range order {
		turn, cancel := share(ctx, len(order)-i-1)
		p, err := n.Payments(turn, q)
		cancel()
		switch {
		case err != nil:
			said = append(said, err)
		case len(all) > 0 && !p.WentBack && !all[0].WentBack && p.End < all[0].End:
			said = append(said, fmt.Errorf("node %s has final blocks up to %d only", n.Name(), p.Final))
		default:
			if len(all) == 0 && !p.WentBack {
				q.UpTo, q.MaxBlocks = p.End, 0
			}
			all = append(all, p)
		}
		if agreed := agreedPayments(all); c.isEnough(len(agreed), len(all), i == len(order)-1) {
			return leastSent(agreed), nil
		}
	}
	if len(all) > 0 && len(agreedPayments(all)) < len(all) {
		return chain.Payments{}, fmt.Errorf("payments of %s after block %d: %w", q.Payer, q.After, ErrDisputed)
	}
	return chain.Payments{}, fmt.Errorf("payments of %s after block %d: %d nodes answered, want %d: %w", q.Payer, q.After, len(all), c.quorum, said.err())
}

// isEnough reports whether agreed equal answers of all decide. The parameter last is true
// if every node was queried.
func (c *Connector) isEnough(agreed, all int, last bool) bool {
	return agreed >= c.quorum && (2*c.quorum > len(c.nodes) || last && agreed == all)
}

// agreedPayments returns the largest set of equal answers.
func agreedPayments(all []chain.Payments) (limit []chain.Payments) {
	for _, p := range all {
		same := slices.DeleteFunc(slices.Clone(all), func(o chain.Payments) bool { return !samePayments(p, o) })
		if len(same) > len(limit) {
			limit = same
		}
	}
	return limit
}

func samePayments(a, b chain.Payments) bool {
	return a.End == b.End && a.EndHash == b.EndHash && a.WentBack == b.WentBack && slices.EqualFunc(a.Found, b.Found, func(a, b chain.Payment) bool {
		return a.TxHash == b.TxHash && a.LogIndex == b.LogIndex && a.BlockHash == b.BlockHash && a.BlockNumber == b.BlockNumber &&
			equal(a.Token, b.Token) && equal(a.To, b.To) && a.Amount.Cmp(b.Amount) == 0
	})
}

func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// leastSent returns the answer with the lowest count: a count that is too low costs reads, one that is
// too high would hide a payment.
func leastSent(all []chain.Payments) chain.Payments {
	return slices.MinFunc(all, func(a, b chain.Payments) int { return cmp.Compare(a.Sent, b.Sent) })
}

// PaymentsStart queries the nodes one after the other until one answers. With several nodes it omits
// the count, because a wrong count from one node could hide a payment.
func (c *Connector) PaymentsStart(ctx context.Context, q chain.PaymentsQuery, before time.Time) (s chain.PaymentsStart, err error) {
	s, err = anyOf(ctx, c.order(txmanager.ChainQuery{}), func(ctx context.Context, one chain.Node) (chain.PaymentsStart, error) {
		return one.PaymentsStart(ctx, q, before)
	})
	if len(c.nodes) > 1 {
		s.Sent = 0
	}
	return s, err
}

package evm

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// ReadBlocks implements [txmanager.ChainConnector]. It requests the last final block, and then ten blocks
// in each round trip. If a round trip fails, it returns the blocks read before.
func (c *Connector) ReadBlocks(ctx context.Context, q txmanager.BlocksQuery) (txmanager.BlocksRead, error) {
	r, err := c.readBlocks(ctx, q)
	if err != nil {
		return txmanager.BlocksRead{}, fmt.Errorf("read blocks after %d for transactions of %s, by node %s: %w", q.After, q.Submitter, c.node, short{err})
	}
	return r, nil
}

func (c *Connector) readBlocks(ctx context.Context, q txmanager.BlocksQuery) (r txmanager.BlocksRead, err error) {
	if q.Submitter.ChainID() != c.chainID {
		return r, fmt.Errorf("submitter %q, chain %d: %w", q.Submitter, c.chainID, chain.ErrWrongChain)
	}
	r = txmanager.BlocksRead{Node: c.node, End: q.After, Transactions: make(map[uint64]txmanager.ConsumingTx)}
	if r.Final, err = c.lastFinal(ctx); err != nil {
		return r, err
	}
	if !q.OlderThan.IsZero() {
		r.End, err = c.lastBefore(ctx, r.Final, q.OlderThan)
		return r, cannotTell(err)
	}
	if r.Final < q.After { // this node lags and knows nothing of later blocks
		return r, fmt.Errorf("its last final block is %d", r.Final)
	}
	for last := min(r.Final, q.After+uint64(max(q.MaxBlocks, 0))); r.End < last; {
		end := min(last, r.End+blocksAtOnce)
		txs, err := c.sentIn(ctx, q.Submitter.Address(), blocksAfter(r.End, end))
		switch {
		case err != nil && r.End > q.After:
			return r, nil
		case err != nil:
			return r, cannotTell(err)
		}
		for _, tx := range txs {
			if r.Transactions[uint64(tx.Nonce)], err = tx.consumer(c.node); err != nil {
				return r, err
			}
		}
		r.End = end
	}
	return r, nil
}

// lastFinal returns the last final block: the one with the tag, or, on a chain that is declared to have
// no tag, the one depth below the head.
func (c *Connector) lastFinal(ctx context.Context) (uint64, error) {
	tag := "finalized"
	if c.depth != nil {
		tag = "latest"
	}
	asked := askBlock(tag)
	var b block
	if err := c.roundTrip(ctx, []*call{asked}); err != nil {
		return 0, err
	}
	if err := asked.into(&b); err != nil {
		return 0, fmt.Errorf("the %s block: %w", tag, err)
	}
	if c.depth == nil {
		return uint64(b.Number), nil
	}
	height, _ := finalHeight(b.header(), c.depth) // 0 if the chain has too few blocks
	return height, nil
}

// lastBefore returns the last block up to final that is older than a time, or the first block of the
// chain. It reads only headers.
func (c *Connector) lastBefore(ctx context.Context, final uint64, before time.Time) (uint64, error) {
	s := &search{c: c, high: final + 1} // the block at low is old enough, or is the first
	for s.low+1 < s.high {
		heights := s.spread()
		calls := askEach(heights, askHeight)
		if err := c.roundTrip(ctx, calls); err != nil {
			return 0, err
		}
		for i, at := range heights {
			var b block
			if err := calls[i].into(&b); err != nil {
				return 0, fmt.Errorf("block %d: %w", at, err)
			}
			if int64(b.Time) >= before.Unix() {
				s.high = at
				break
			}
			s.low = at
		}
	}
	return s.low, nil
}

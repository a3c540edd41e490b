package faults

import (
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"time"

	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
)

func chainFaults() []Fault {
	return []Fault{
		{"reorg, transactions return", 2, reorg(returnToPool)},
		{"reorg, transactions in other blocks", 2, reorg(moveToOtherBlocks)},
		{"reorg, transactions vanish", 2, reorg(vanish)},
		{"mempool lost", 2, func(_ context.Context, w *World, _ *rand.Rand) (int, error) {
			w.Stack.Chain.DropPool()
			return 1, nil
		}},
		{"mining stopped", 2, func(ctx context.Context, w *World, r *rand.Rand) (int, error) {
			defer w.stopMining()()
			retry.Pause(ctx, randomDuration(r, 2*time.Second, 8*time.Second))
			return 1, nil
		}},
	}
}

// stopMining stops the mining until the last fault that stopped it ends.
func (w *World) stopMining() (end func()) {
	return w.mining.begin(func(stopped *bool) { *stopped = true })
}

// txFate is where the transactions of replaced blocks go in a reorg.
type txFate int

const (
	returnToPool      txFate = iota // they return to the pool
	moveToOtherBlocks               // they are in other blocks of the new chain
	vanish                          // no node has them any more
)

// reorg replaces the last depth blocks by depth+1 others: the head's height never falls.
func reorg(f txFate) inject {
	return func(ctx context.Context, w *World, r *rand.Rand) (int, error) {
		depth := 1 + r.Uint64N(w.MaxReorgDepth)
		until(ctx, targetTimeout, func() bool { return w.Stack.Chain.Head() > depth })
		defer w.stopMining()()
		var err error
		for range 3 { // a block can be mined at the same moment
			if err = w.reorg(ctx, r, f, depth); err == nil {
				return 1, nil
			}
		}
		return 0, err
	}
}

func (w *World) reorg(ctx context.Context, r *rand.Rand, f txFate, depth uint64) error {
	blocks := make([][][]byte, depth+1)
	if f == moveToOtherBlocks {
		raws, err := lastTransactions(ctx, w.Stack.Chain.URL(), depth)
		if err != nil {
			return err
		}
		at := 0
		for _, raw := range raws { // keep their order, as their nonces require
			at += r.IntN(len(blocks) - at)
			blocks[at] = append(blocks[at], raw)
		}
	}
	if err := w.Stack.Chain.Reorg(depth, blocks...); err != nil {
		return err
	}
	if f == vanish {
		w.Stack.Chain.DropPool()
	}
	return nil
}

// lastTransactions returns the raw transactions of the last blocks, in order.
func lastTransactions(ctx context.Context, url string, blocks uint64) (raws [][]byte, err error) {
	client, err := ethclient.DialContext(ctx, url)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	head, err := client.BlockNumber(ctx)
	if err != nil {
		return nil, err
	}
	if head < blocks {
		return nil, fmt.Errorf("the chain has %d blocks: too few for a reorg of %d", head, blocks)
	}
	for n := head - blocks + 1; n <= head; n++ {
		block, err := client.BlockByNumber(ctx, new(big.Int).SetUint64(n))
		if err != nil {
			return nil, err
		}
		for _, tx := range block.Transactions() {
			raw, err := tx.MarshalBinary()
			if err != nil {
				return nil, err
			}
			raws = append(raws, raw)
		}
	}
	return raws, nil
}

package faults

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/chainscan"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/chain/devchain"
)

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
	return func(ctx context.Context, w *World, r *rand.Rand) int {
		depth := 1 + r.Uint64N(w.MaxReorgDepth)
		until(ctx, targetTimeout, func() bool { return w.Stack.Chain.Head() > depth })
		defer w.stopMining()()
		var err error
		for range 3 { // a block can be mined at the same moment
			if err = w.reorg(ctx, r, f, depth); err == nil {
				break
			}
		}
		return struckOnce(err)
	}
}

func (w *World) reorg(ctx context.Context, r *rand.Rand, f txFate, depth uint64) (err error) {
	defer steps.Return(&err)
	blocks := make([][][]byte, depth+1)
	if f == moveToOtherBlocks {
		at := 0
		for _, raw := range lastTransactions(ctx, w.Stack.Chain, depth) { // keep their order, as their nonces require
			at += r.IntN(len(blocks) - at)
			blocks[at] = append(blocks[at], raw)
		}
	}
	steps.OK(w.Stack.Chain.Reorg(depth, blocks...))
	if f == vanish {
		w.Stack.Chain.DropPool()
	}
	return nil
}

// lastTransactions returns the raw transactions of the last blocks, in order.
func lastTransactions(ctx context.Context, chain *devchain.Chain, blocks uint64) (raws [][]byte) {
	head := chain.Head()
	if head < blocks {
		steps.Stopf("the chain has %d blocks: too few for a reorg of %d", head, blocks)
	}
	isOlder := func(tx chainscan.Tx) bool { return tx.Receipt.BlockNumber.Uint64() <= head-blocks }
	for _, tx := range slices.DeleteFunc(steps.Value(chainscan.Read(ctx, chain.URL(), isOlder)).Txs, isOlder) {
		raws = append(raws, steps.Value(tx.MarshalBinary()))
	}
	return raws
}

func dropPool(_ context.Context, w *World, _ *rand.Rand) int {
	w.Stack.Chain.DropPool()
	return 1
}

// node makes a node misbehave for a while, and until it struck once. Among several nodes it
// prefers the first one, which is queried first. It counts every faulty answer.
func node(name string, draw func(*rpcproxy.Faults, *rand.Rand)) inject {
	return func(ctx context.Context, w *World, r *rand.Rand) int {
		i, seed := r.IntN(2)*r.IntN(len(w.nodes)), r.Uint64()
		proxy := w.Stack.Nodes[i]
		before := proxy.Counts()[name]
		end := w.nodes[i].begin(func(f *rpcproxy.Faults) { draw(f, rand.New(rand.NewPCG(seed, seed))) })
		retry.Pause(ctx, randomDuration(r, time.Second, 5*time.Second))
		until(ctx, targetTimeout, func() bool { return proxy.Counts()[name] > before })
		end()
		sum := 0
		for _, n := range w.Stack.Nodes {
			sum += n.Counts()[name]
		}
		return w.strikes.claim(name, sum)
	}
}

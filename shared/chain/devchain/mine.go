package devchain

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/miner"
)

// finalizedEvery is the distance of finalized blocks. The last but one block whose number is a multiple of it
// is finalized, so that at least as many blocks can be replaced. The head is safe.
const finalizedEvery = 32

// finalizedAt returns the finalized block for a head at this height.
func finalizedAt(head uint64) uint64 {
	return (max(head/finalizedEvery, 1) - 1) * finalizedEvery
}

// Mine adds n blocks from the pool. When it returns, the pool has processed the new head.
func (c *Chain) Mine(n int) error {
	c.mining.Lock()
	defer c.mining.Unlock()
	return c.mine(n)
}

func (c *Chain) mine(n int) error {
	for range n {
		if err := c.eth.TxPool().Sync(); err != nil {
			return fmt.Errorf("mine: %w", err)
		}
		block, err := c.build(c.head(), nil, false)
		if err == nil {
			err = c.setHead(block)
		}
		if err != nil {
			return fmt.Errorf("mine: %w", err)
		}
	}
	return nil
}

// MineExactly adds one block with exactly these raw transactions in this order, independent of the pool.
// Without any it adds an empty block. Each transaction must be valid in its place.
func (c *Chain) MineExactly(raws ...[]byte) error { return c.Reorg(0, raws) }

// Reorg replaces the last depth blocks by new ones in one step, without a visible head in between. Each new
// block has exactly the raw transactions given for it. Transactions of the replaced blocks return to the
// pool, as in any go-ethereum node; [Chain.DropPool] removes them. Safe blocks can be replaced, finalized
// ones cannot: the node moves them to a separate store that no reorg reaches.
func (c *Chain) Reorg(depth uint64, blocks ...[][]byte) error {
	c.mining.Lock()
	defer c.mining.Unlock()
	head := c.head()
	if n := head.Number.Uint64(); depth > n-finalizedAt(n) || len(blocks) == 0 {
		return fmt.Errorf("reorg of %d blocks to %d at head %d: want at least one new block, and none replaced up to the finalized %d",
			depth, len(blocks), n, finalizedAt(n))
	}
	parent := c.eth.BlockChain().GetHeaderByNumber(head.Number.Uint64() - depth)
	var last *types.Block
	for _, raws := range blocks {
		txs, err := decode(raws)
		if err != nil {
			return fmt.Errorf("reorg: %w", err)
		}
		if last, err = c.build(parent, txs, true); err != nil {
			return fmt.Errorf("reorg: block %d: %w", parent.Number.Uint64()+1, err)
		}
		parent = last.Header()
	}
	return c.setHead(last)
}

// SyncPool waits until the pool has processed each sent transaction: only then do pending counts include it.
func (c *Chain) SyncPool() error {
	c.mining.Lock() // of two calls of Sync at once, one never returns
	defer c.mining.Unlock()
	return c.eth.TxPool().Sync()
}

// DropPool removes every transaction that is not in a block.
func (c *Chain) DropPool() {
	c.mining.Lock()
	defer c.mining.Unlock()
	c.eth.TxPool().Clear()
}

// StopMining stops the blocks of BlockTime until [Chain.StartMining]. When it returns none is under way.
func (c *Chain) StopMining() { c.pause(true) }

// StartMining starts the blocks of BlockTime again.
func (c *Chain) StartMining() { c.pause(false) }

func (c *Chain) pause(paused bool) {
	c.mining.Lock()
	defer c.mining.Unlock()
	c.paused = paused
}

// Head returns the number of the latest block.
func (c *Chain) Head() uint64 { return c.head().Number.Uint64() }

// WaitBlock waits until the head is at block n or above. Its error is that of ctx.
func (c *Chain) WaitBlock(ctx context.Context, n uint64) error {
	heads := make(chan core.ChainHeadEvent, 1)
	sub := c.eth.BlockChain().SubscribeChainHeadEvent(heads)
	defer sub.Unsubscribe()
	for c.Head() < n {
		select {
		case <-heads:
		case <-sub.Err():
			return fmt.Errorf("wait for block %d: %w", n, errors.New("the chain was closed"))
		case <-ctx.Done():
			return fmt.Errorf("wait for block %d at block %d: %w", n, c.Head(), ctx.Err())
		}
	}
	return nil
}

func (c *Chain) tick(ctx context.Context, every time.Duration) {
	// Blocks are made on the clock's tick, which their timestamps record.
	select {
	case <-ctx.Done():
		return
	case <-time.After(time.Until(time.Now().Truncate(every).Add(every))):
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.mining.Lock()
			if !c.paused {
				_ = c.mine(1) // fails only when the chain is being closed
			}
			c.mining.Unlock()
		}
	}
}

func (c *Chain) head() *types.Header { return c.eth.BlockChain().CurrentBlock() }

// build makes and stores a block without making it the head. An exact block has only the given transactions;
// any other takes the pool's.
func (c *Chain) build(parent *types.Header, txs []*types.Transaction, exact bool) (*types.Block, error) {
	args := &miner.BuildPayloadArgs{
		Parent:     parent.Hash(),
		Timestamp:  max(parent.Time+1, uint64(time.Now().Unix())),
		BeaconRoot: new(common.Hash),
	}
	_, _ = rand.Read(args.Random[:]) // never fails; makes siblings differ
	block, _, err := c.eth.Miner().BuildTestingPayload(args, txs, exact && len(txs) == 0, nil)
	if err != nil {
		return nil, err
	}
	_, err = c.eth.BlockChain().InsertBlockWithoutSetHead(context.Background(), block, false)
	return block, err
}

// setHead makes block the head and waits until the pool has processed it.
func (c *Chain) setHead(block *types.Block) error {
	chain := c.eth.BlockChain()
	if _, err := chain.SetCanonical(block); err != nil {
		return err
	}
	chain.SetSafe(block.Header())
	chain.SetFinalized(chain.GetHeaderByNumber(finalizedAt(block.NumberU64())))
	return c.eth.TxPool().Sync()
}

func decode(raws [][]byte) ([]*types.Transaction, error) {
	txs := make([]*types.Transaction, len(raws))
	for i, raw := range raws {
		txs[i] = new(types.Transaction)
		if err := txs[i].UnmarshalBinary(raw); err != nil {
			return nil, fmt.Errorf("transaction %d: %w", i, err)
		}
	}
	return txs, nil
}

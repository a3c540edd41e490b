package anvil

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
)

// callTime bounds one call to the node, which is on this machine.
const callTime = 20 * time.Second

// Mine adds n blocks from the pool.
func (c *Chain) Mine(n int) error {
	c.mining.Lock()
	defer c.mining.Unlock()
	return c.call(nil, "anvil_mine", hexutil.Uint64(n))
}

// Reorg replaces the last len(blocks) blocks by as many new ones in one step. Each new block has exactly the
// raw transactions given for it. Transactions of the replaced blocks are gone. In
// go-ethereum they return to the pool. anvil has no reorg to another height, and none that replaces the genesis block.
// Each transaction must be valid in its place: anvil silently omits others, which is an error here, after the
// reorg.
//
// The pool is not updated: a transaction that followed a removed one is still in the account's pending count
// until the next block.
func (c *Chain) Reorg(blocks ...[][]byte) error {
	c.mining.Lock()
	defer c.mining.Unlock()
	pairs := [][2]any{}
	for i, raws := range blocks {
		for _, raw := range raws {
			pairs = append(pairs, [2]any{hexutil.Bytes(raw), i})
		}
	}
	// With the same fee recipient a new block could equal the old one.
	var recipient common.Address
	_, _ = rand.Read(recipient[:]) // never fails
	if err := c.call(nil, "anvil_setCoinbase", recipient); err != nil {
		return fmt.Errorf("reorg: %w", err)
	}
	if err := c.call(nil, "anvil_reorg", len(blocks), pairs); err != nil {
		return fmt.Errorf("reorg of %d blocks: %w", len(blocks), err)
	}
	return c.hold(blocks)
}

// hold checks that the chain has every transaction of the blocks.
func (c *Chain) hold(blocks [][][]byte) error {
	for i, raws := range blocks {
		for j, raw := range raws {
			var receipt *struct{}
			hash := crypto.Keccak256Hash(raw)
			if err := c.call(&receipt, "eth_getTransactionReceipt", hash); err != nil {
				return fmt.Errorf("reorg: %w", err)
			}
			if receipt == nil {
				return fmt.Errorf("reorg: transaction %d of new block %d, %s, is not valid there and was omitted", j, i, hash)
			}
		}
	}
	return nil
}

// DropPool removes every transaction that is not in a block.
func (c *Chain) DropPool() error { return c.call(nil, "anvil_dropAllTransactions") }

func (c *Chain) call(result any, method string, args ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	if err := c.client.CallContext(ctx, result, method, args...); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

// Package chainscan reads the transactions of a whole chain from one node.
package chainscan

import (
	"context"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Tx is one mined transaction.
type Tx struct {
	*types.Transaction

	From    txmanager.Address
	Receipt *types.Receipt
}

// Succeeded reports whether the transaction was carried out.
func (tx Tx) Succeeded() bool { return tx.Receipt.Status == types.ReceiptStatusSuccessful }

// Chain is one canonical chain.
type Chain struct {
	ID   uint64
	Head uint64 // the number of its last block
	Txs  []Tx   // in the order of the chain
}

// From returns the transactions of one sender.
func (c Chain) From(sender txmanager.Address) []Tx {
	return slices.DeleteFunc(slices.Clone(c.Txs), func(tx Tx) bool { return tx.From != sender })
}

// Read follows parent hashes from the head to the genesis block, so that a reorg meanwhile cannot
// mix two chains. It ends earlier after a block with a transaction that is enough; nil: none is.
func Read(ctx context.Context, url string, enough func(Tx) bool) (c Chain, err error) {
	client, err := ethclient.DialContext(ctx, url)
	if err != nil {
		return c, err
	}
	defer client.Close()
	chainID, err := client.ChainID(ctx)
	if err != nil {
		return c, fmt.Errorf("ask for its id: %w", err)
	}
	block, err := client.BlockByNumber(ctx, nil)
	if err != nil {
		return c, fmt.Errorf("read the head: %w", err)
	}
	c.ID, c.Head = chainID.Uint64(), block.NumberU64()
	signer := types.LatestSignerForChainID(chainID)
	for read := 0; block.NumberU64() > 0; read = len(c.Txs) {
		if err := c.add(ctx, client, block, signer); err != nil {
			return c, fmt.Errorf("read block %d: %w", block.NumberU64(), err)
		}
		if enough != nil && slices.ContainsFunc(c.Txs[read:], enough) {
			break
		}
		if block, err = client.BlockByHash(ctx, block.ParentHash()); err != nil {
			return c, fmt.Errorf("read a parent block: %w", err)
		}
	}
	slices.Reverse(c.Txs)
	return c, nil
}

// add appends the block's transactions, last first.
func (c *Chain) add(ctx context.Context, client *ethclient.Client, block *types.Block, signer types.Signer) error {
	if len(block.Transactions()) == 0 {
		return nil
	}
	receipts, err := client.BlockReceipts(ctx, rpc.BlockNumberOrHashWithHash(block.Hash(), false))
	if err != nil {
		return err
	}
	if len(receipts) != len(block.Transactions()) {
		return fmt.Errorf("got %d receipts for %d transactions", len(receipts), len(block.Transactions()))
	}
	for i, tx := range slices.Backward(block.Transactions()) {
		from, err := types.Sender(signer, tx)
		if err != nil {
			return fmt.Errorf("sender of %s: %w", tx.Hash(), err)
		}
		c.Txs = append(c.Txs, Tx{tx, eip155.Address(from), receipts[i]})
	}
	return nil
}

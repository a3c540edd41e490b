// Package chainscan reads the transactions of a whole chain from one node.
package chainscan

import (
	"context"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/fencepost/fencepost/emulator/stack/steps"
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
	defer steps.Return(&err)
	client := steps.Value(ethclient.DialContext(ctx, url))
	defer client.Close()
	chainID, err := client.ChainID(ctx)
	steps.OK(err, "ask for its id")
	block, err := client.BlockByNumber(ctx, nil)
	steps.OK(err, "read the head")
	c.ID, c.Head = chainID.Uint64(), block.NumberU64()
	signer := types.LatestSignerForChainID(chainID)
	for read := 0; block.NumberU64() > 0; read = len(c.Txs) {
		steps.OK(c.add(ctx, client, block, signer), "read block ", block.NumberU64())
		if enough != nil && slices.ContainsFunc(c.Txs[read:], enough) {
			break
		}
		block, err = client.BlockByHash(ctx, block.ParentHash())
		steps.OK(err, "read a parent block")
	}
	slices.Reverse(c.Txs)
	return c, nil
}

// add appends the block's transactions, last first.
func (c *Chain) add(ctx context.Context, client *ethclient.Client, block *types.Block, signer types.Signer) (err error) {
	defer steps.Return(&err)
	if len(block.Transactions()) == 0 {
		return nil
	}
	receipts := steps.Value(client.BlockReceipts(ctx, rpc.BlockNumberOrHashWithHash(block.Hash(), false)))
	if len(receipts) != len(block.Transactions()) {
		return fmt.Errorf("got %d receipts for %d transactions", len(receipts), len(block.Transactions()))
	}
	for i, tx := range slices.Backward(block.Transactions()) {
		from, err := types.Sender(signer, tx)
		steps.OK(err, "sender of ", tx.Hash())
		c.Txs = append(c.Txs, Tx{tx, eip155.Address(from), receipts[i]})
	}
	return nil
}

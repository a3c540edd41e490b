// Package chainscan reads the transactions of a whole chain from one node.
package chainscan

import (
	"context"
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
)

// Tx is one mined transaction.
type Tx struct {
	*types.Transaction

	ChainID uint64
	From    common.Address
	Receipt *types.Receipt
}

// Each visits the transactions in the order of the chain, from the first block to the head. It visits only those
// of the sender, unless sender is nil.
func Each(ctx context.Context, url string, sender *common.Address, visit func(Tx)) error {
	client, err := ethclient.DialContext(ctx, url)
	if err != nil {
		return err
	}
	defer client.Close()
	chainID, err := client.ChainID(ctx)
	if err != nil {
		return err
	}
	head, err := client.BlockNumber(ctx)
	if err != nil {
		return err
	}
	signer := types.LatestSignerForChainID(chainID)
	for n := range head + 1 {
		block, err := client.BlockByNumber(ctx, new(big.Int).SetUint64(n))
		if err != nil {
			return fmt.Errorf("read block %d: %w", n, err)
		}
		for _, tx := range block.Transactions() {
			from, err := types.Sender(signer, tx)
			if err != nil {
				return fmt.Errorf("read the sender of %s: %w", tx.Hash(), err)
			}
			if sender != nil && from != *sender {
				continue
			}
			receipt, err := client.TransactionReceipt(ctx, tx.Hash())
			if err != nil {
				return fmt.Errorf("read the receipt of %s: %w", tx.Hash(), err)
			}
			visit(Tx{Transaction: tx, ChainID: chainID.Uint64(), From: from, Receipt: receipt})
		}
	}
	return nil
}

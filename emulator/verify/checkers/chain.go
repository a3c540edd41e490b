package checkers

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

// mined is one transaction in the canonical chain.
type mined struct {
	tx        *types.Transaction
	block     txmanager.Hash
	succeeded bool
}

func (m mined) hash() txmanager.Hash { return txmanager.Hash(m.tx.Hash()) }

// readChain follows parent hashes from the head to the genesis block, so that a reorg meanwhile cannot
// mix two chains. It returns the transactions of each submitter in the chain's order.
func readChain(ctx context.Context, url string, of []txmanager.Submitter) (head uint64, found map[txmanager.Submitter][]mined, err error) {
	client, err := ethclient.DialContext(ctx, url)
	if err != nil {
		return 0, nil, err
	}
	defer client.Close()
	chainID, err := client.ChainID(ctx)
	if err != nil {
		return 0, nil, fmt.Errorf("ask for its id: %w", err)
	}
	for _, s := range of {
		if s.ChainID() != chainID.Uint64() {
			return 0, nil, fmt.Errorf("the node is of chain %s, not of %s's", chainID, s)
		}
	}
	block, err := client.BlockByNumber(ctx, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("read the head: %w", err)
	}
	signer := types.LatestSignerForChainID(chainID)
	head, found = block.NumberU64(), make(map[txmanager.Submitter][]mined)
	for block.NumberU64() > 0 {
		if err := readBlock(ctx, client, block, signer, of, found); err != nil {
			return 0, nil, fmt.Errorf("read block %d: %w", block.NumberU64(), err)
		}
		if block, err = client.BlockByHash(ctx, block.ParentHash()); err != nil {
			return 0, nil, fmt.Errorf("read a parent block: %w", err)
		}
	}
	for _, txs := range found {
		slices.Reverse(txs)
	}
	return head, found, nil
}

// readBlock appends the block's transactions of the submitters, last first.
func readBlock(ctx context.Context, client *ethclient.Client, block *types.Block, signer types.Signer, of []txmanager.Submitter, found map[txmanager.Submitter][]mined) error {
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
		for _, s := range of {
			if s.Address() == eip155.Address(from) {
				found[s] = append(found[s], mined{tx, txmanager.Hash(block.Hash()), receipts[i].Status == types.ReceiptStatusSuccessful})
			}
		}
	}
	return nil
}

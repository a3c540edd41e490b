package evm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Transaction reads the transaction with that hash. A node cannot falsify it: its parts are compared
// with the hash, and the signer is computed from them. The error wraps [txmanager.ErrNoTransaction] if the node
// has none.
func (c *Connector) Transaction(ctx context.Context, hash txmanager.Hash) (t txmanager.SignedTransaction, err error) {
	asked := ask("eth_getTransactionByHash", hash.String())
	if err := c.roundTrip(ctx, []*call{asked}); err != nil {
		return t, fmt.Errorf("read transaction %s: %w", hash, err)
	}
	if asked.null() {
		return t, fmt.Errorf("node %s, %s: %w", c.node, hash, txmanager.ErrNoTransaction)
	}
	var raw json.RawMessage
	if err := asked.into(&raw); err != nil {
		return t, fmt.Errorf("read transaction %s: %w", hash, short{err})
	}
	tx := new(types.Transaction)
	if err := tx.UnmarshalJSON(raw); err != nil {
		return t, fmt.Errorf("read transaction %s: %w", hash, short{err})
	}
	if txmanager.Hash(tx.Hash()) != hash {
		return t, fmt.Errorf("read transaction %s: node %s gave another one, %s", hash, c.node, tx.Hash())
	}
	from, err := types.Sender(types.LatestSignerForChainID(tx.ChainId()), tx)
	if err != nil || tx.ChainId().Uint64() != c.chainID {
		return t, fmt.Errorf("read transaction %s: it is not signed for chain %d: %w", hash, c.chainID, errors.Join(err, chain.ErrWrongChain))
	}
	t = txmanager.SignedTransaction{From: eip155.Address(from), Nonce: tx.Nonce(), Tx: txmanager.ConsumingTx{Hash: hash, Node: c.node, ValueWei: tx.Value().String(), Data: tx.Data()}}
	t.Tx.To = addressOf(tx.To())
	return t, nil
}

// addressOf returns an address in canonical form; nil for nil.
func addressOf(a *common.Address) *txmanager.Address {
	if a == nil {
		return nil
	}
	return new(eip155.Address(*a))
}

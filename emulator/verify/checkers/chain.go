package checkers

import (
	"context"
	"fmt"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/emulator/verify/chainscan"
	"github.com/fencepost/fencepost/shared/txmanager"
)

type mined struct {
	tx        *types.Transaction
	block     txmanager.Hash
	succeeded bool
}

func (m mined) hash() txmanager.Hash { return txmanager.Hash(m.tx.Hash()) }

// readChain returns the transactions of each submitter in the chain's order.
func readChain(ctx context.Context, url string, of []txmanager.Submitter) (head uint64, found map[txmanager.Submitter][]mined, err error) {
	chain, err := chainscan.Read(ctx, url, nil)
	if err != nil {
		return 0, nil, err
	}
	found = make(map[txmanager.Submitter][]mined)
	for _, s := range of {
		if s.ChainID() != chain.ID {
			return 0, nil, fmt.Errorf("the node is of chain %d, not of %s's", chain.ID, s)
		}
		for _, tx := range chain.From(s.Address()) {
			found[s] = append(found[s], mined{tx.Transaction, txmanager.Hash(tx.Receipt.BlockHash), tx.Succeeded()})
		}
	}
	return chain.Head, found, nil
}

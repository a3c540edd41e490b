package evm

import (
	"context"
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Balances returns the accounts' balances at the node's head, in wei and in order, with one round trip
// for each full batch. They are for display: different ones may be of different blocks. If the node
// does not give one, the call fails.
func (c *Connector) Balances(ctx context.Context, of []txmanager.Submitter) ([]*big.Int, error) {
	for _, s := range of {
		if s.ChainID() != c.chainID {
			return nil, fmt.Errorf("balance of %q, chain %d: %w", s, c.chainID, chain.ErrWrongChain)
		}
	}
	calls := askEach(of, func(s txmanager.Submitter) *call { return ask("eth_getBalance", s.Address().String(), "latest") })
	if err := c.roundTrips(ctx, calls); err != nil {
		return nil, fmt.Errorf("balances by node %s: %w", c.node, err)
	}
	balances := make([]*big.Int, len(of))
	for i, a := range calls {
		var balance hexutil.Big
		if err := a.into(&balance); err != nil {
			return nil, fmt.Errorf("balance of %s by node %s: %w", of[i], c.node, err)
		}
		balances[i] = balance.ToInt()
	}
	return balances, nil
}

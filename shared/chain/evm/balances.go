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
	calls := make([]*call, len(of))
	for i, s := range of {
		if s.ChainID() != c.chainID {
			return nil, fmt.Errorf("balance of %q, chain %d: %w", s, c.chainID, chain.ErrWrongChain)
		}
		calls[i] = ask("eth_getBalance", s.Address().String(), "latest")
	}
	for _, batch := range c.split(calls) {
		if err := c.roundTrip(ctx, batch); err != nil {
			return nil, fmt.Errorf("balances by node %s: %w", c.node, err)
		}
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

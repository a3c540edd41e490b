package evm

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// account holds the calls about one account.
type account struct{ latest, pending, balance, code, price, history *call }

func askAccount(address txmanager.Address, f Fees) *account {
	a := address.String()
	asked := &account{
		latest:  ask("eth_getTransactionCount", a, "latest"),
		pending: ask("eth_getTransactionCount", a, "pending"),
		balance: ask("eth_getBalance", a, "latest"),
		code:    ask("eth_getCode", a, "latest"),
		price:   ask("eth_maxPriorityFeePerGas"),
	}
	switch {
	case f.Legacy:
		asked.price = ask("eth_gasPrice")
	case f.HistoryBlocks > 0:
		asked.history = ask("eth_feeHistory", hexutil.EncodeUint64(uint64(f.HistoryBlocks)), "latest", []int{f.Percentile})
	}
	return asked
}

// calls returns the calls in order; nil for those that are not made.
func (a *account) calls() []*call {
	if a == nil {
		return nil
	}
	return []*call{a.latest, a.pending, a.balance, a.code, a.price, a.history}
}

func (a *account) answer(head block, f Fees) (txmanager.Account, error) {
	var latest, pending hexutil.Uint64
	var balance, price hexutil.Big
	var code hexutil.Bytes
	err := errors.Join(a.latest.into(&latest), a.pending.into(&pending), a.balance.into(&balance), a.code.into(&code))
	paid := historyTip(a.history)
	if paid == nil { // if the history has a tip, the node's suggestion may be missing
		err = errors.Join(err, a.price.into(&price))
	}
	if err != nil {
		return txmanager.Account{}, err
	}
	said := txmanager.Account{LatestCount: uint64(latest), PendingCount: uint64(pending), BalanceWei: balance.ToInt(),
		HasCode: len(code) > 0, BaseFeeWei: (*big.Int)(head.BaseFee), TipWei: price.ToInt()}
	switch {
	case f.Legacy:
		said.GasPriceWei, said.TipWei = price.ToInt(), nil
	case head.BaseFee == nil:
		return txmanager.Account{}, fmt.Errorf("block %d has no base fee: want a chain with EIP-1559, or chain.feeKind=legacy", uint64(head.Number))
	case paid != nil:
		said.TipWei = paid
	}
	if said.BaseFeeWei == nil {
		said.BaseFeeWei = new(big.Int)
	}
	return said, nil
}

// historyTip returns the median of the blocks' tips at the percentile, without empty blocks. It returns
// nil if no block has one, or the node does not offer the call.
func historyTip(a *call) *big.Int {
	var history struct {
		Reward [][]*hexutil.Big `json:"reward"`
		Ratio  []float64        `json:"gasUsedRatio"` // only whether it is 0
	}
	if a == nil || a.into(&history) != nil || len(history.Ratio) != len(history.Reward) {
		return nil
	}
	var tips []*big.Int
	for i, reward := range history.Reward {
		if history.Ratio[i] > 0 && len(reward) == 1 && reward[0] != nil && reward[0].ToInt().Sign() >= 0 {
			tips = append(tips, reward[0].ToInt())
		}
	}
	if len(tips) == 0 {
		return nil
	}
	slices.SortFunc(tips, (*big.Int).Cmp)
	return tips[len(tips)/2]
}

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

package stack

import (
	"context"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/devchain/contracts"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// ETH is the chain's own coin. Only a stack with payouts has it.
var ETH = transfer.Asset{ID: 4, Name: "ETH", Precision: 8, MinUnits: 1, MaxUnits: 1_000_000_000_000, Active: true, Enabled: true}

// The decimals of paid-out assets on the chain.
const (
	coinDecimals  = 18
	tokenDecimals = 6
)

// payable deploys USDT's contract, and returns the assets of a stack with payouts. USDT is paid out by the
// contract, and ETH as the coin.
func (s *Stack) payable(ctx context.Context) []transfer.Asset {
	s.Payer = eip155.NewSubmitter(s.Chain.ChainID(), s.payer.Address)
	s.Token = steps.Value(s.Deploy(ctx, contracts.Token()))
	return []transfer.Asset{s.PaidBy(USDT, s.Token), BTC, JPY, s.PaidOut(ETH)}
}

// PayerAccount returns the payer with its key, for a foreign signer in tests.
func (s *Stack) PayerAccount() devchain.Account { return s.payer }

// PaidOut returns the asset with terms for payouts as the chain's coin, for [Stack.AddAsset].
func (s *Stack) PaidOut(a transfer.Asset) transfer.Asset {
	a.Payout = &transfer.PayoutTerms{Submitter: string(s.Payer), ChainID: s.Chain.ChainID(), Decimals: coinDecimals}
	return a
}

// PaidBy returns the asset with terms for payouts as the token of that contract.
func (s *Stack) PaidBy(a transfer.Asset, token txmanager.Address) transfer.Asset {
	a.Payout = &transfer.PayoutTerms{Submitter: string(s.Payer), ChainID: s.Chain.ChainID(), Token: token.String(), Decimals: max(tokenDecimals, a.Precision)}
	return a
}

// Deploy deploys a contract in a block that is mined at once, and returns its address.
func (s *Stack) Deploy(ctx context.Context, code []byte) (txmanager.Address, error) {
	s.deploying.Lock()
	defer s.deploying.Unlock()
	return contracts.Deploy(ctx, s.Chain, s.deployer, code)
}

package stack

import (
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/params"

	"github.com/fencepost/fencepost/shared/chain/devchain"
)

// Payment is one of wei at the nonce. It pays at most 200 gwei more than its tip.
func (s *Stack) Payment(nonce uint64, to common.Address, wei, tipGwei int64) *types.DynamicFeeTx {
	return &types.DynamicFeeTx{
		ChainID: new(big.Int).SetUint64(s.Chain.ChainID()), Nonce: nonce, To: &to, Value: big.NewInt(wei), Gas: params.TxGas,
		GasTipCap: big.NewInt(tipGwei * params.GWei), GasFeeCap: big.NewInt((200 + tipGwei) * params.GWei),
	}
}

// Sign signs by the account's key, as a program does that sends past the transaction manager.
func (s *Stack) Sign(by devchain.Account, inner types.TxData) *types.Transaction {
	return types.MustSignNewTx(by.Key, types.LatestSignerForChainID(new(big.Int).SetUint64(s.Chain.ChainID())), inner)
}

package contracts

import (
	"bytes"
	"context"
	"fmt"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Deploy deploys the code in a separate block and returns its address. The account makes one transaction,
// and must not make others at the same time.
func Deploy(ctx context.Context, chain *devchain.Chain, from devchain.Account, code []byte) (txmanager.Address, error) {
	client, err := ethclient.DialContext(ctx, chain.URL())
	if err != nil {
		return eip155.Address([20]byte{}), err
	}
	defer client.Close()
	n, err := client.NonceAt(ctx, common.Address(eip155.MustBytes(from.Address)), nil)
	if err != nil {
		return eip155.Address([20]byte{}), err
	}
	id := new(big.Int).SetUint64(chain.ChainID())
	raw, err := types.MustSignNewTx(from.Key, types.LatestSignerForChainID(id), &types.DynamicFeeTx{
		ChainID: id, Nonce: n, Gas: 500_000, GasFeeCap: big.NewInt(50e9), GasTipCap: big.NewInt(2e9), Data: deploying(code),
	}).MarshalBinary()
	if err != nil {
		return eip155.Address([20]byte{}), err
	}
	if err := chain.MineExactly(raw); err != nil {
		return eip155.Address([20]byte{}), fmt.Errorf("deploy a contract: %w", err)
	}
	at := crypto.CreateAddress(common.Address(eip155.MustBytes(from.Address)), n)
	if on, err := client.CodeAt(ctx, at, nil); err != nil || !bytes.Equal(on, code) {
		return eip155.Address([20]byte{}), fmt.Errorf("deploy a contract: at %s is %x, %w; want %x", at, on, err, code)
	}
	return eip155.Address(at), nil
}

// deploying returns the init code that deploys code.
func deploying(code []byte) []byte {
	return slices.Concat([]byte{
		0x61, byte(len(code) >> 8), byte(len(code)), // push the length
		0x80, 0x60, 0x0a, 0x5f, 0x39, // memory[0:] = the code from 10 on
		0x5f, 0xf3, // return it
	}, code)
}

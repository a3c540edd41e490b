package storetest

import (
	"crypto/sha256"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Signed stands for a signed transaction for nonce n of s. Its bytes are data without a
// signature, and its hash is that of data.
func Signed(s txmanager.Submitter, n uint64, data string) txmanager.Signed {
	raw := Bytes(s.ChainID(), n, eip155.Address([20]byte{9}), 1, data)
	return txmanager.Signed{Hash: sha256.Sum256([]byte(data)), Raw: raw}
}

// Bytes are the unsigned bytes of a transaction with that call.
func Bytes(chainID, n uint64, to txmanager.Address, valueWei int64, data string) []byte {
	raw, err := types.NewTx(&types.DynamicFeeTx{
		ChainID: new(big.Int).SetUint64(chainID), Nonce: n, To: (*common.Address)(eip155.Recipient(&to)), Value: big.NewInt(valueWei), Data: []byte(data), Gas: 21_000,
		GasFeeCap: big.NewInt(1), GasTipCap: big.NewInt(1), V: new(big.Int), R: big.NewInt(1), S: big.NewInt(1),
	}).MarshalBinary()
	if err != nil {
		panic(err) // of its own making
	}
	return raw
}

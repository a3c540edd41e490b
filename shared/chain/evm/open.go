package evm

import (
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/params"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// maxRaw is the largest transaction that nodes accept, in bytes.
const maxRaw = 128 << 10

// ParseSigned implements [txmanager.ChainConnector]. It accepts transactions that pay a fee and make one call.
// These are legacy ones with a chain id (EIP-155), those with an access list (EIP-2930), and those
// with a dynamic fee (EIP-1559), each in its one encoding. A gas price is both the fee cap and the
// tip cap. Blobs are not stored here, and a transaction that delegates accounts would let their
// nonces change without the manager.
func (c *Connector) ParseSigned(raw []byte) (from txmanager.Address, tx txmanager.Unsigned, s txmanager.Signed, err error) {
	if len(raw) > maxRaw {
		return from, tx, s, fmt.Errorf("its bytes are %d: no node holds more than %d", len(raw), maxRaw)
	}
	signed := new(types.Transaction)
	if err := signed.UnmarshalBinary(raw); err != nil {
		return from, tx, s, fmt.Errorf("its bytes are no signed transaction: %w", err)
	}
	switch signed.Type() {
	case types.LegacyTxType, types.AccessListTxType, types.DynamicFeeTxType:
	default:
		return from, tx, s, fmt.Errorf("its bytes are a transaction of type %d: want 0, 1 or 2", signed.Type())
	}
	if !signed.Protected() {
		return from, tx, s, errors.New("its bytes name no chain: any could take them (EIP-155)")
	}
	if !signed.ChainId().IsUint64() {
		return from, tx, s, errors.New("its bytes are for a chain id of more than 64 bits")
	}
	sender, err := types.Sender(types.LatestSignerForChainID(signed.ChainId()), signed)
	if err != nil {
		return from, tx, s, fmt.Errorf("its bytes are not signed: %w", err)
	}
	tx = txmanager.Unsigned{
		ChainID: signed.ChainId().Uint64(), Nonce: signed.Nonce(), To: addressOf(signed.To()), Value: signed.Value(), Data: signed.Data(),
		Gas: signed.Gas(), Legacy: signed.Type() == types.LegacyTxType, FeeCapWei: signed.GasFeeCap(), TipCapWei: signed.GasTipCap(),
	}
	call := txmanager.Call{To: tx.To, Value: tx.Value, Data: tx.Data, Gas: tx.Gas, FeeCapWei: tx.FeeCapWei, TipCapWei: tx.TipCapWei}
	if err := checkCall(call); err != nil {
		return from, tx, s, fmt.Errorf("no node takes its bytes: %w", err)
	}
	list := signed.AccessList() // EIP-2930
	access := params.TxAccessListAddressGas*uint64(len(list)) + params.TxAccessListStorageKeyGas*uint64(list.StorageKeys())
	if least := intrinsicGas(call) + access; tx.Gas < least {
		return from, tx, s, fmt.Errorf("no node takes its bytes: their gas is %d, and %d are charged before the call begins", tx.Gas, least)
	}
	return eip155.Address(sender), tx, txmanager.Signed{Hash: txmanager.Hash(signed.Hash()), Raw: raw}, nil
}

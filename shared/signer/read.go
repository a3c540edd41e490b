package signer

import (
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/shared/nonce"
)

// Read reads bytes that somebody signed for s elsewhere: with their hash, the nonce
// they are for, and what they may cost at most. It takes legacy transactions that name
// their chain (EIP-155), and those of EIP-2930 and EIP-1559. It refuses what s has not
// signed, what is for another chain, and other types: one that sets code could let
// others move the account's nonce, and one with blobs is not carried in these bytes.
func Read(s nonce.Submitter, raw []byte) (signed nonce.Signed, n uint64, gas nonce.GasParams, err error) {
	tx := new(types.Transaction)
	if err := tx.UnmarshalBinary(raw); err != nil {
		return signed, 0, gas, fmt.Errorf("signed bytes for %s: %w", s, err)
	}
	switch {
	case tx.Type() > types.DynamicFeeTxType:
		return signed, 0, gas, fmt.Errorf("signed bytes for %s: type %d is not taken: want 0, 1 or 2", s, tx.Type())
	case !tx.Protected():
		return signed, 0, gas, fmt.Errorf("signed bytes for %s: they name no chain, and could be sent on any", s)
	case tx.ChainId().Cmp(new(big.Int).SetUint64(s.ChainID())) != 0:
		return signed, 0, gas, fmt.Errorf("signed bytes for %s: they are for chain %s", s, tx.ChainId())
	}
	sender, err := types.Sender(types.LatestSignerForChainID(tx.ChainId()), tx)
	if err != nil {
		return signed, 0, gas, fmt.Errorf("signed bytes for %s: %w", s, err)
	}
	if nonce.Address(sender) != s.Address() {
		return signed, 0, gas, fmt.Errorf("signed bytes for %s: signed by %s", s, nonce.Address(sender))
	}
	gas = nonce.GasParams{Gas: tx.Gas(), FeeCapWei: tx.GasFeeCap(), TipCapWei: tx.GasTipCap(), ValueWei: tx.Value()}
	return nonce.Signed{Hash: nonce.Hash(tx.Hash()), Raw: raw}, tx.Nonce(), gas, nil
}

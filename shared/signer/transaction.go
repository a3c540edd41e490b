package signer

import (
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Digest returns the hash to sign for tx: the Keccak-256 of its type and all its fields.
func Digest(s txmanager.Submitter, tx txmanager.Unsigned) (txmanager.Hash, error) {
	asked, err := unsigned(s, tx)
	if err != nil {
		return txmanager.Hash{}, err
	}
	return txmanager.Hash(by(tx).Hash(asked)), nil
}

// Attach joins tx and a signature of its [Digest] (r, s, and v of 0 or 1; 32, 32 and 1 bytes). It
// verifies the result as [Verify] does.
func Attach(s txmanager.Submitter, tx txmanager.Unsigned, signature []byte) (txmanager.Signed, error) {
	asked, err := unsigned(s, tx)
	if err != nil {
		return txmanager.Signed{}, err
	}
	signed, err := asked.WithSignature(by(tx), signature)
	if err != nil {
		return txmanager.Signed{}, fmt.Errorf("signature for %s: %w", s, err)
	}
	raw, err := signed.MarshalBinary()
	if err != nil {
		return txmanager.Signed{}, fmt.Errorf("signature for %s: %w", s, err)
	}
	return Verify(s, tx, raw)
}

// Verify checks that raw is exactly tx, signed by s, and returns it with its hash. A signer outside the
// process may be wrong or compromised, so its result is stored only after this check.
func Verify(s txmanager.Submitter, tx txmanager.Unsigned, raw []byte) (txmanager.Signed, error) {
	asked, err := unsigned(s, tx)
	if err != nil {
		return txmanager.Signed{}, err
	}
	signed := new(types.Transaction)
	if err := signed.UnmarshalBinary(raw); err != nil {
		return txmanager.Signed{}, fmt.Errorf("signature for %s: %w", s, err)
	}
	// The signing hash covers the type and every field, and nothing else.
	chain := by(tx)
	if signed.Type() != asked.Type() || chain.Hash(signed) != chain.Hash(asked) {
		return txmanager.Signed{}, fmt.Errorf("signature for %s: the signer returned another transaction than nonce %d as asked for", s, tx.Nonce)
	}
	if !signed.Protected() {
		return txmanager.Signed{}, fmt.Errorf("signature for %s: the signer named no chain: any could take it (EIP-155)", s)
	}
	sender, err := types.Sender(chain, signed)
	if err != nil {
		return txmanager.Signed{}, fmt.Errorf("signature for %s: %w", s, err)
	}
	if eip155.Address(sender) != s.Address() {
		return txmanager.Signed{}, fmt.Errorf("signature for %s: signed by %s", s, eip155.Address(sender))
	}
	return txmanager.Signed{Hash: txmanager.Hash(signed.Hash()), Raw: raw}, nil
}

// unsigned returns tx in go-ethereum's form (https://eips.ethereum.org/EIPS/eip-1559, and eip-155 for
// legacy form), if it is for s's chain.
func unsigned(s txmanager.Submitter, tx txmanager.Unsigned) (*types.Transaction, error) {
	if tx.ChainID != s.ChainID() {
		return nil, fmt.Errorf("sign for %s: the transaction is for chain %d", s, tx.ChainID)
	}
	for name, n := range map[string]*big.Int{"value": tx.Value, "fee cap": tx.FeeCapWei, "tip cap": tx.TipCapWei} {
		if n == nil || n.Sign() < 0 || n.BitLen() > 256 {
			return nil, fmt.Errorf("sign for %s: %s %v: want a number of wei from 0 to 2^256-1", s, name, n)
		}
	}
	var to *common.Address
	if tx.To != nil {
		a, err := eip155.Bytes(*tx.To)
		if err != nil {
			return nil, fmt.Errorf("sign for %s: %w", s, err)
		}
		to = (*common.Address)(&a)
	}
	if tx.Legacy {
		return types.NewTx(&types.LegacyTx{
			Nonce: tx.Nonce, To: to, Value: tx.Value, Data: tx.Data, Gas: tx.Gas, GasPrice: tx.FeeCapWei,
		}), nil
	}
	return types.NewTx(&types.DynamicFeeTx{
		ChainID: new(big.Int).SetUint64(tx.ChainID), Nonce: tx.Nonce, To: to, Value: tx.Value,
		Data: tx.Data, Gas: tx.Gas, GasFeeCap: tx.FeeCapWei, GasTipCap: tx.TipCapWei,
	}), nil
}

// by returns go-ethereum's signer for tx's chain.
func by(tx txmanager.Unsigned) types.Signer {
	return types.LatestSignerForChainID(new(big.Int).SetUint64(tx.ChainID))
}

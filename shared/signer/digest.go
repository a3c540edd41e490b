package signer

import (
	"fmt"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// Digest returns the hash to sign for tx: the Keccak-256 of its type and all its fields.
func Digest(s txmanager.Submitter, tx txmanager.Unsigned) (txmanager.Hash, error) {
	data, err := unsigned(s, tx)
	if err != nil {
		return txmanager.Hash{}, err
	}
	return txmanager.Hash(by(tx).Hash(types.NewTx(data))), nil
}

// Attach joins tx and a signature of its [Digest] (r, s, and v of 0 or 1; 32, 32 and 1 bytes). It
// verifies the result as [Verify] does.
func Attach(s txmanager.Submitter, tx txmanager.Unsigned, signature []byte) (txmanager.Signed, error) {
	data, err := unsigned(s, tx)
	if err != nil {
		return txmanager.Signed{}, err
	}
	signed, err := types.NewTx(data).WithSignature(by(tx), signature)
	if err != nil {
		return txmanager.Signed{}, fmt.Errorf("signature for %s: %w", s, err)
	}
	raw, err := signed.MarshalBinary()
	if err != nil {
		return txmanager.Signed{}, fmt.Errorf("signature for %s: %w", s, err)
	}
	return Verify(s, tx, raw)
}

// unsigned returns tx in go-ethereum's form, if it is for s's chain.
func unsigned(s txmanager.Submitter, tx txmanager.Unsigned) (types.TxData, error) {
	if tx.ChainID != s.ChainID() {
		return nil, fmt.Errorf("sign for %s: the transaction is for chain %d", s, tx.ChainID)
	}
	data, err := inner(tx)
	if err != nil {
		return nil, fmt.Errorf("sign for %s: %w", s, err)
	}
	return data, nil
}

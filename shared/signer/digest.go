package signer

import (
	"fmt"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/shared/nonce"
)

// Digest returns the hash to sign for tx: the Keccak-256 of its type and all its fields.
func Digest(s nonce.Submitter, tx nonce.Unsigned) (nonce.Hash, error) {
	data, err := unsigned(s, tx)
	if err != nil {
		return nonce.Hash{}, err
	}
	return nonce.Hash(by(tx).Hash(types.NewTx(data))), nil
}

// Attach joins tx and a signature of its [Digest] (r, s, and v of 0 or 1; 32, 32 and 1 bytes). It
// verifies the result as [Verify] does.
func Attach(s nonce.Submitter, tx nonce.Unsigned, signature []byte) (nonce.Signed, error) {
	data, err := unsigned(s, tx)
	if err != nil {
		return nonce.Signed{}, err
	}
	signed, err := types.NewTx(data).WithSignature(by(tx), signature)
	if err != nil {
		return nonce.Signed{}, fmt.Errorf("signature for %s: %w", s, err)
	}
	raw, err := signed.MarshalBinary()
	if err != nil {
		return nonce.Signed{}, fmt.Errorf("signature for %s: %w", s, err)
	}
	return Verify(s, tx, raw)
}

// unsigned returns tx in go-ethereum's form, if it is for s's chain.
func unsigned(s nonce.Submitter, tx nonce.Unsigned) (types.TxData, error) {
	if tx.ChainID != s.ChainID() {
		return nil, fmt.Errorf("sign for %s: the transaction is for chain %d", s, tx.ChainID)
	}
	data, err := inner(tx)
	if err != nil {
		return nil, fmt.Errorf("sign for %s: %w", s, err)
	}
	return data, nil
}

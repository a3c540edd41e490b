package signer

import (
	"fmt"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/shared/nonce"
)

// Verify checks that raw is exactly tx, signed by s, and returns it with its hash. A signer outside the
// process may be wrong or compromised, so its result is stored only after this check.
func Verify(s nonce.Submitter, tx nonce.Unsigned, raw []byte) (nonce.Signed, error) {
	data, err := unsigned(s, tx)
	if err != nil {
		return nonce.Signed{}, err
	}
	signed := new(types.Transaction)
	if err := signed.UnmarshalBinary(raw); err != nil {
		return nonce.Signed{}, fmt.Errorf("signature for %s: %w", s, err)
	}
	// The signing hash covers the type and every field, and nothing else.
	chain, asked := by(tx), types.NewTx(data)
	if signed.Type() != asked.Type() || chain.Hash(signed) != chain.Hash(asked) {
		return nonce.Signed{}, fmt.Errorf("signature for %s: the signer returned another transaction than nonce %d as asked for", s, tx.Nonce)
	}
	if !signed.Protected() {
		return nonce.Signed{}, fmt.Errorf("signature for %s: the signer named no chain: any could take it (EIP-155)", s)
	}
	sender, err := types.Sender(chain, signed)
	if err != nil {
		return nonce.Signed{}, fmt.Errorf("signature for %s: %w", s, err)
	}
	if nonce.Address(sender) != s.Address() {
		return nonce.Signed{}, fmt.Errorf("signature for %s: signed by %s", s, nonce.Address(sender))
	}
	return nonce.Signed{Hash: nonce.Hash(signed.Hash()), Raw: raw}, nil
}

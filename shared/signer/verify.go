package signer

import (
	"fmt"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

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

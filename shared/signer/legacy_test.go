package signer_test

import (
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// A legacy transaction is accepted only with a chain id, and only if that form was requested.
func TestVerifyAcceptsLegacyOnlyIfRequested(t *testing.T) {
	t.Parallel()
	key := check.Value(crypto.GenerateKey())(t)
	s := eip155.NewSubmitter(5, eip155.Address(crypto.PubkeyToAddress(key.PublicKey)))
	price := big.NewInt(3)
	asked := txmanager.Unsigned{ChainID: 5, Nonce: 7, To: new(eip155.Address([20]byte{9})), Value: big.NewInt(1), Gas: 21_000, Legacy: true, FeeCapWei: price, TipCapWei: price}
	dynamic := asked
	dynamic.Legacy = false
	inner := &types.LegacyTx{Nonce: 7, To: &common.Address{9}, Value: big.NewInt(1), Gas: 21_000, GasPrice: price}
	for name, c := range map[string]struct {
		by    types.Signer
		asked txmanager.Unsigned
		want  bool
	}{
		"for the chain":           {types.NewEIP155Signer(big.NewInt(5)), asked, true},
		"for another chain":       {types.NewEIP155Signer(big.NewInt(6)), asked, false},
		"for any chain":           {types.HomesteadSigner{}, asked, false},
		"a fee cap was asked for": {types.NewEIP155Signer(big.NewInt(5)), dynamic, false},
	} {
		raw := check.Value(types.MustSignNewTx(key, c.by, inner).MarshalBinary())(t)
		if _, err := signer.Verify(s, c.asked, raw); (err == nil) != c.want {
			t.Errorf("%s: got %v, want it accepted: %v", name, err, c.want)
		}
	}
}

package evm

import (
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rlp"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Signed bytes give the signer and the call. Bytes of other types, truncated or extended ones, and
// those without a chain id are refused.
func TestOpen(t *testing.T) {
	t.Parallel()
	key := check.Value(crypto.GenerateKey())(t)
	to, five := common.Address{19: 9}, big.NewInt(5)
	sign := func(s types.Signer, inner types.TxData) []byte {
		return check.Value(types.MustSignNewTx(key, s, inner).MarshalBinary())(t)
	}
	here := types.LatestSignerForChainID(five)
	dynamic := sign(here, &types.DynamicFeeTx{ChainID: five, Nonce: 7, To: &to, Value: big.NewInt(1), Gas: 30_000, GasFeeCap: big.NewInt(3), GasTipCap: big.NewInt(2), Data: []byte{1}})
	want := txmanager.Unsigned{ChainID: 5, Nonce: 7, To: new(eip155.Address([20]byte{19: 9})), Value: big.NewInt(1), Data: []byte{1}, Gas: 30_000, FeeCapWei: big.NewInt(3), TipCapWei: big.NewInt(2)}
	list := types.AccessList{{Address: to, StorageKeys: []common.Hash{{1}}}}
	enough := txmanager.Unsigned{ChainID: 5, Nonce: 7, To: new(eip155.Address([20]byte{19: 9})), Value: new(big.Int), Data: []byte{}, Gas: 21_000 + 2_400 + 1_900, FeeCapWei: big.NewInt(3), TipCapWei: big.NewInt(3)}
	priced := want
	priced.TipCapWei = big.NewInt(3)
	legacy := priced
	legacy.Legacy = true
	for name, c := range map[string]struct {
		raw  []byte
		want *txmanager.Unsigned
	}{
		"dynamic fee":                        {dynamic, &want},
		"legacy":                             {sign(here, &types.LegacyTx{Nonce: 7, To: &to, Value: big.NewInt(1), Gas: 30_000, GasPrice: big.NewInt(3), Data: []byte{1}}), &legacy},
		"access list":                        {sign(here, &types.AccessListTx{ChainID: five, Nonce: 7, To: &to, Value: big.NewInt(1), Gas: 30_000, GasPrice: big.NewInt(3), Data: []byte{1}}), &priced},
		"for any chain":                      {sign(types.HomesteadSigner{}, &types.LegacyTx{Nonce: 7, To: &to, Value: big.NewInt(1), Gas: 30_000, GasPrice: big.NewInt(3)}), nil},
		"delegation":                         {delegating(t, to), nil},
		"too little gas":                     {sign(here, &types.DynamicFeeTx{ChainID: five, Nonce: 7, To: &to, Gas: 20_999, GasFeeCap: big.NewInt(3), GasTipCap: big.NewInt(2)}), nil},
		"enough gas for its access list":     {sign(here, &types.AccessListTx{ChainID: five, Nonce: 7, To: &to, Gas: enough.Gas, GasPrice: big.NewInt(3), AccessList: list}), &enough},
		"too little gas for its access list": {sign(here, &types.AccessListTx{ChainID: five, Nonce: 7, To: &to, Gas: 21_000 + 2_400 + 1_900 - 1, GasPrice: big.NewInt(3), AccessList: list}), nil},
		"more than a node holds":             {sign(here, &types.DynamicFeeTx{ChainID: five, Nonce: 7, To: &to, Gas: 1 << 24, GasFeeCap: big.NewInt(3), GasTipCap: big.NewInt(2), Data: make([]byte, 127<<10+1)}), nil},
		"a long list":                        {sign(here, &types.AccessListTx{ChainID: five, Nonce: 7, To: &to, Gas: 1 << 24, GasPrice: big.NewInt(3), AccessList: types.AccessList{{StorageKeys: make([]common.Hash, 4000)}}}), nil},
		"tip above fee":                      {sign(here, &types.DynamicFeeTx{ChainID: five, Nonce: 7, To: &to, Gas: 30_000, GasFeeCap: big.NewInt(3), GasTipCap: big.NewInt(4)}), nil},
		"cut":                                {dynamic[:len(dynamic)-1], nil},
		"a byte more":                        {append(dynamic[:len(dynamic):len(dynamic)], 0), nil},
		"nothing":                            {nil, nil},
		"another encoding":                   {[]byte("{}"), nil},
	} {
		from, tx, s, err := new(Connector).ParseSigned(c.raw)
		switch {
		case c.want == nil:
			if err == nil {
				t.Errorf("%s: got %+v, want an error", name, tx)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		default:
			if from != eip155.Address(crypto.PubkeyToAddress(key.PublicKey)) || s.Hash != txmanager.Hash(crypto.Keccak256Hash(c.raw)) {
				t.Errorf("%s: got signed by %s with hash %s, want the key's account and the bytes' hash", name, from, s.Hash)
			}
			check.Same(t, name, tx, *c.want, check.BigInts)
		}
	}
}

// delegating is a transaction that sets an account's code (EIP-7702).
func delegating(t *testing.T, to common.Address) []byte {
	t.Helper()
	type authorization struct {
		ChainID *big.Int
		Address common.Address
		Nonce   uint64
		V       uint8
		R, S    *big.Int
	}
	one := big.NewInt(1)
	body, err := rlp.EncodeToBytes(struct {
		ChainID        *big.Int
		Nonce          uint64
		TipCap, FeeCap *big.Int
		Gas            uint64
		To             common.Address
		Value          *big.Int
		Data           []byte
		AccessList     types.AccessList
		Authorizations []authorization
		V, R, S        *big.Int
	}{big.NewInt(5), 7, one, one, 60_000, to, new(big.Int), nil, types.AccessList{}, []authorization{{one, to, 0, 0, one, one}}, new(big.Int), one, one})
	check.OK(t)(err)
	raw := append([]byte{types.SetCodeTxType}, body...)
	if tx := new(types.Transaction); tx.UnmarshalBinary(raw) != nil || tx.Type() != types.SetCodeTxType {
		t.Fatalf("%x is no delegation: the test proves nothing", raw)
	}
	return raw
}

package signer_test

import (
	"bytes"
	"math/big"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/shared/nonce"
	"github.com/fencepost/fencepost/shared/signer"
)

// Bytes that somebody signed elsewhere are taken with all that they may cost, if the
// submitter signed them for its chain, and refused otherwise.
func TestReadSignedBytes(t *testing.T) {
	t.Parallel()
	key, address := newKey(t)
	stranger, _ := newKey(t)
	s := nonce.NewSubmitter(1337, address)
	to, one := common.Address{7}, big.NewInt(1)
	legacy := &types.LegacyTx{Nonce: 5, To: &to, Value: one, Gas: 21_000, GasPrice: big.NewInt(9)}
	dynamic := &types.DynamicFeeTx{ChainID: big.NewInt(1337), Nonce: 5, To: &to, Value: one, Gas: 21_000, GasFeeCap: big.NewInt(9), GasTipCap: big.NewInt(2)}
	listed := &types.AccessListTx{ChainID: big.NewInt(1337), Nonce: 5, To: &to, Value: one, Gas: 21_000, GasPrice: big.NewInt(9)}
	otherChain := *dynamic
	otherChain.ChainID = big.NewInt(1)
	delegates := &types.SetCodeTx{Nonce: 5, To: to, Gas: 50_000, AuthList: []types.SetCodeAuthorization{{}}}
	delegates.ChainID, delegates.Value = fresh(delegates.ChainID).SetUint64(1337), fresh(delegates.Value)
	delegates.GasFeeCap, delegates.GasTipCap = fresh(delegates.GasFeeCap), fresh(delegates.GasTipCap)
	here, there := types.LatestSignerForChainID(big.NewInt(1337)), types.LatestSignerForChainID(big.NewInt(1))
	for name, c := range map[string]struct {
		tx   *types.Transaction
		want string // part of why it is refused; "": it is taken
	}{
		"EIP-1559":                    {types.MustSignNewTx(key, here, dynamic), ""},
		"EIP-2930":                    {types.MustSignNewTx(key, here, listed), ""},
		"legacy":                      {types.MustSignNewTx(key, here, legacy), ""},
		"legacy, for no chain":        {types.MustSignNewTx(key, types.HomesteadSigner{}, legacy), "no chain"},
		"legacy, for another chain":   {types.MustSignNewTx(key, there, legacy), "chain 1"},
		"EIP-1559, for another chain": {types.MustSignNewTx(key, there, &otherChain), "chain 1"},
		"by a stranger":               {types.MustSignNewTx(stranger, here, dynamic), "signed by"},
		"sets code":                   {types.MustSignNewTx(key, here, delegates), "type 4"},
	} {
		raw, err := c.tx.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		signed, n, gas, err := signer.Read(s, raw)
		switch {
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want it refused: %s", name, err, c.want)
		case c.want != "":
		case err != nil:
			t.Errorf("%s: got %v, want it taken", name, err)
		case signed.Hash != nonce.Hash(c.tx.Hash()) || !bytes.Equal(signed.Raw, raw) || n != 5:
			t.Errorf("%s: got %s for nonce %d, want %s for 5", name, signed.Hash, n, c.tx.Hash())
		case gas.Gas != 21_000 || gas.FeeCapWei.Int64() != 9 || gas.ValueWei.Int64() != 1:
			t.Errorf("%s: got %+v, want 21000 gas at 9 wei, and 1 wei", name, gas)
		}
	}
	for name, raw := range map[string][]byte{"nothing": nil, "no transaction": {0xc0}, "cut short": {2, 0xf8}} {
		if _, _, _, err := signer.Read(s, raw); err == nil {
			t.Errorf("%s: got it taken", name)
		}
	}
}

// fresh is a number of the type of the one given, which need not be named.
func fresh[T any](*T) *T { return new(T) }

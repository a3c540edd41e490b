package signer_test

import (
	"crypto/ecdsa"
	"encoding/hex"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/signer/signertest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

func newKey(t *testing.T) (*ecdsa.PrivateKey, txmanager.Address) {
	t.Helper()
	key := check.Value(crypto.GenerateKey())(t)
	return key, eip155.Address(crypto.PubkeyToAddress(key.PublicKey))
}

func hexOf(key *ecdsa.PrivateKey) string { return hex.EncodeToString(crypto.FromECDSA(key)) }

// The local signer fulfils the contract of all signers.
func TestLocalSignerFulfilsTheContract(t *testing.T) {
	t.Parallel()
	signertest.Run(t, func(t *testing.T) signertest.Fixture {
		key, address := newKey(t)
		s := eip155.NewSubmitter(1337, address)
		local := check.Value(signer.NewLocal(map[txmanager.Submitter]*ecdsa.PrivateKey{s: key}))(t)
		return signertest.Fixture{Signer: local, Submitter: s, Secrets: []string{hexOf(key), key.D.String()}}
	})
}

// Printing a signer, by pointer or by value, never shows a key.
func TestLocalPrintsNoKey(t *testing.T) {
	t.Parallel()
	key, address := newKey(t)
	s := eip155.NewSubmitter(1, address)
	local := check.Value(signer.NewLocal(map[txmanager.Submitter]*ecdsa.PrivateKey{s: key}))(t)
	check.Equal(t, "in process", local.InProcess(s), true)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x", "%q"} {
		for _, printed := range []any{local, *local} {
			check.Equal(t, fmt.Sprintf("%s of %T", verb, printed), fmt.Sprintf(verb, printed), "local signer of 1 keys")
		}
	}
}

// A key of another account is rejected at once.
func TestNewLocalRejectsTheKeyOfAnotherAccount(t *testing.T) {
	t.Parallel()
	key, _ := newKey(t)
	_, other := newKey(t)
	for _, k := range []*ecdsa.PrivateKey{key, nil} {
		if _, err := signer.NewLocal(map[txmanager.Submitter]*ecdsa.PrivateKey{eip155.NewSubmitter(1, other): k}); err == nil {
			t.Errorf("key %t of another account: got nil, want an error", k != nil)
		}
	}
}

func TestLoadKeysReadsEachLine(t *testing.T) {
	t.Parallel()
	key, address := newKey(t)
	one, ten := eip155.NewSubmitter(1, address), eip155.NewSubmitter(10, address)
	path := filepath.Join(t.TempDir(), "keys")
	text := fmt.Sprintf("# payouts\n\n%s=%s\r\n  eip155:10:%s = 0x%s  \n", one, hexOf(key), strings.ToUpper(ten.Address().String()[2:]), hexOf(key))
	text = strings.Replace(text, "eip155:10:", "eip155:10:0x", 1)
	check.OK(t)(os.WriteFile(path, []byte(text), 0o600))
	keys := check.Value(signer.LoadKeys(path))(t)
	if len(keys) != 2 || !keys[one].Equal(key) || !keys[ten].Equal(key) {
		t.Errorf("keys: got those of %d accounts, want %s and %s", len(keys), one, ten)
	}
	if _, err := signer.LoadKeys(path + "-gone"); err == nil {
		t.Error("missing file: got nil, want an error")
	}
}

// An error names the line and never contains its text.
func TestLoadKeysErrorsNameTheLine(t *testing.T) {
	t.Parallel()
	key, address := newKey(t)
	other, _ := newKey(t)
	s, secret, path := eip155.NewSubmitter(1, address), hexOf(key), filepath.Join(t.TempDir(), "keys")
	for name, text := range map[string]string{
		"turned round":   secret + "=" + string(s),
		"no account":     secret,
		"key as address": "eip155:1:0x" + secret + "=" + address.String(),
		"key as chain":   "eip155:" + secret + ":" + address.String() + "=",
		"bare address":   address.String() + "=" + secret,
		"short":          string(s) + "=" + secret[:62],
		"long":           string(s) + "=" + secret + "00",
		"not hex":        string(s) + "=" + secret[:63] + "g",
		"zero":           string(s) + "=" + strings.Repeat("0", 64),
		"another's":      string(s) + "=" + hexOf(other),
		"twice":          fmt.Sprintf("%s=%s\n%s=%s", s, secret, s, secret),
		"too large":      strings.Repeat("# "+secret+"\n", 20_000),
		"one large line": "#" + strings.Repeat(" ", 1<<20),
	} {
		check.OK(t)(os.WriteFile(path, []byte(text), 0o600))
		_, err := signer.LoadKeys(path)
		if err == nil || !strings.Contains(err.Error(), "key file") {
			t.Errorf("%s: got %v, want an error of the key file", name, err)
			continue
		}
		for _, hidden := range []string{secret[:16], secret[40:60], hexOf(other)[:16]} {
			if strings.Contains(err.Error(), hidden) {
				t.Errorf("%s: got %q, want nothing of the line", name, err)
			}
		}
	}
}

// Verify refuses bytes that differ in any way from the request.
func TestVerifyRejectsAnyDifference(t *testing.T) {
	t.Parallel()
	key, address := newKey(t)
	other, _ := newKey(t)
	s := eip155.NewSubmitter(5, address)
	asked := txmanager.Unsigned{ChainID: 5, Nonce: 7, To: new(eip155.Address([20]byte{9})), Value: big.NewInt(1), Data: []byte{1}, Gas: 21_000,
		FeeCapWei: big.NewInt(3), TipCapWei: big.NewInt(2)}
	sign := func(key *ecdsa.PrivateKey, edit func(*types.DynamicFeeTx)) []byte {
		inner := &types.DynamicFeeTx{ChainID: big.NewInt(5), Nonce: 7, To: &common.Address{9}, Value: big.NewInt(1), Data: []byte{1},
			Gas: 21_000, GasFeeCap: big.NewInt(3), GasTipCap: big.NewInt(2)}
		edit(inner)
		tx := check.Value(types.SignNewTx(key, types.LatestSignerForChainID(inner.ChainID), inner))(t)
		return check.Value(tx.MarshalBinary())(t)
	}
	same := func(*types.DynamicFeeTx) {}
	good := sign(key, same)
	check.Equal(t, "as asked for: hash", check.Value(signer.Verify(s, asked, good))(t).Hash, txmanager.Hash(crypto.Keccak256(good)))
	for name, raw := range map[string][]byte{
		"chain":       sign(key, func(tx *types.DynamicFeeTx) { tx.ChainID = big.NewInt(6) }),
		"nonce":       sign(key, func(tx *types.DynamicFeeTx) { tx.Nonce = 8 }),
		"to":          sign(key, func(tx *types.DynamicFeeTx) { tx.To = &common.Address{8} }),
		"deployment":  sign(key, func(tx *types.DynamicFeeTx) { tx.To = nil }),
		"value":       sign(key, func(tx *types.DynamicFeeTx) { tx.Value = big.NewInt(2) }),
		"data":        sign(key, func(tx *types.DynamicFeeTx) { tx.Data = nil }),
		"gas":         sign(key, func(tx *types.DynamicFeeTx) { tx.Gas++ }),
		"fee cap":     sign(key, func(tx *types.DynamicFeeTx) { tx.GasFeeCap = big.NewInt(4) }),
		"tip cap":     sign(key, func(tx *types.DynamicFeeTx) { tx.GasTipCap = big.NewInt(1) }),
		"access list": sign(key, func(tx *types.DynamicFeeTx) { tx.AccessList = types.AccessList{{}} }),
		"signer":      sign(other, same),
		"more":        append(good[:len(good):len(good)], 0),
		"less":        good[:len(good)-1],
		"nothing":     nil,
	} {
		if _, err := signer.Verify(s, asked, raw); err == nil {
			t.Errorf("another %s: got nil, want an error", name)
		}
	}
	if _, err := signer.Verify(eip155.NewSubmitter(6, address), asked, good); err == nil {
		t.Error("submitter of another chain: got nil, want an error")
	}
}

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

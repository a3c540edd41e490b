// Package signertest is the contract of [signer.Service] as tests, for every implementation.
package signertest

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Fixture is a signer that can sign for Submitter.
type Fixture struct {
	Signer    signer.Service
	Submitter txmanager.Submitter
	Secrets   []string // texts that must never be shown: the key, in each of its forms
}

// Run runs the contract. newFixture is called once for each test.
func Run(t *testing.T, newFixture func(t *testing.T) Fixture) {
	for name, test := range map[string]func(*testing.T, Fixture){
		"SignsWhatIsAsked":  testSigns,
		"UnknownSubmitter":  testUnknownSubmitter,
		"WrongChain":        testWrongChain,
		"BadAmounts":        testBadAmounts,
		"ContextEnds":       testContextEnds,
		"SideBySide":        testSideBySide,
		"InProcessIsStable": testInProcess,
		"Check":             testCheck,
		"PrintsNoSecret":    testPrintsNoSecret,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newFixture(t))
		})
	}
}

// transfer returns a transaction for the submitter's chain.
func (f Fixture) transfer(n uint64) txmanager.Unsigned {
	return txmanager.Unsigned{ChainID: f.Submitter.ChainID(), Nonce: n, To: new(eip155.Address([20]byte{0xfe})), Value: big.NewInt(5), Data: []byte{1, 2},
		Gas: 50_000, FeeCapWei: big.NewInt(3e9), TipCapWei: big.NewInt(1e9)}
}

// check decodes the bytes with go-ethereum alone.
func (f Fixture) check(t *testing.T, asked txmanager.Unsigned, got txmanager.Signed) {
	t.Helper()
	tx := new(types.Transaction)
	if err := tx.UnmarshalBinary(got.Raw); err != nil {
		t.Errorf("nonce %d: %v", asked.Nonce, err)
		return
	}
	sender, err := types.Sender(types.LatestSignerForChainID(new(big.Int).SetUint64(asked.ChainID)), tx)
	if err != nil || eip155.Address(sender) != f.Submitter.Address() {
		t.Errorf("nonce %d: sender got %s, %v, want %s", asked.Nonce, sender, err, f.Submitter.Address())
	}
	check.Equal(t, fmt.Sprintf("nonce %d: hash", asked.Nonce), got.Hash, txmanager.Hash(crypto.Keccak256(got.Raw)))
	signed := txmanager.Unsigned{
		ChainID: tx.ChainId().Uint64(), Nonce: tx.Nonce(), Value: tx.Value(), Data: tx.Data(), Gas: tx.Gas(),
		Legacy: tx.Type() == types.LegacyTxType, FeeCapWei: tx.GasFeeCap(), TipCapWei: tx.GasTipCap(),
	}
	if tx.To() != nil {
		signed.To = new(eip155.Address(*tx.To()))
	}
	check.Same(t, "transaction", signed, asked, check.BigInts, cmpopts.EquateEmpty())
	if !asked.Legacy {
		check.Equal(t, "type", tx.Type(), types.DynamicFeeTxType) // it may have an access list
		check.Equal(t, "entries of the access list", len(tx.AccessList()), 0)
	}
}

func testSigns(t *testing.T, f Fixture) {
	deploy := f.transfer(1)
	deploy.To = nil
	bare := f.transfer(1 << 40)
	bare.Data, bare.Value = nil, new(big.Int)
	legacy := f.transfer(2)
	legacy.Legacy, legacy.TipCapWei = true, legacy.FeeCapWei
	for _, asked := range []txmanager.Unsigned{f.transfer(0), deploy, bare, legacy} {
		f.check(t, asked, check.Value(f.Signer.Sign(t.Context(), f.Submitter, asked))(t))
	}
}

func testUnknownSubmitter(t *testing.T, f Fixture) {
	unknownSubmitter := eip155.NewSubmitter(f.Submitter.ChainID(), eip155.Address([20]byte{0xba, 0xd0}))
	got, err := f.Signer.Sign(t.Context(), unknownSubmitter, f.transfer(0))
	if err == nil || got.Raw != nil {
		t.Errorf("got %d bytes, %v, want none and an error", len(got.Raw), err)
	}
	// A service over a network may not know the reason.
	if f.Signer.InProcess(unknownSubmitter) && !errors.Is(err, signer.ErrNoKey) {
		t.Errorf("in this process: got %v, want ErrNoKey", err)
	}
}

// Check gives the same answer as signing.
func testCheck(t *testing.T, f Fixture) {
	check.Err(t, "its own account", nil)(f.Signer.Check(t.Context(), f.Submitter))
	unknownSubmitter := eip155.NewSubmitter(f.Submitter.ChainID(), eip155.Address([20]byte{0xba, 0xd0}))
	check.Err(t, "another account", signer.ErrNoKey)(f.Signer.Check(t.Context(), unknownSubmitter))
}

func testWrongChain(t *testing.T, f Fixture) {
	asked := f.transfer(0)
	asked.ChainID++
	if got, err := f.Signer.Sign(t.Context(), f.Submitter, asked); err == nil || got.Raw != nil {
		t.Errorf("transaction of another chain: got %d bytes, %v, want an error", len(got.Raw), err)
	}
}

func testBadAmounts(t *testing.T, f Fixture) {
	for name, bad := range map[string]*big.Int{"none": nil, "negative": big.NewInt(-1), "too large": new(big.Int).Lsh(big.NewInt(1), 256)} {
		for i := range 3 {
			asked := f.transfer(0)
			*[]**big.Int{&asked.Value, &asked.FeeCapWei, &asked.TipCapWei}[i] = bad
			if _, err := f.Signer.Sign(t.Context(), f.Submitter, asked); err == nil {
				t.Errorf("amount %d %s: got nil, want an error", i, name)
			}
		}
	}
}

func testContextEnds(t *testing.T, f Fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check.Err(t, "sign", context.Canceled)(f.Signer.Sign(ctx, f.Submitter, f.transfer(0)))
}

func testSideBySide(t *testing.T, f Fixture) {
	var signing sync.WaitGroup
	for n := range uint64(20) {
		signing.Go(func() {
			got, err := f.Signer.Sign(t.Context(), f.Submitter, f.transfer(n))
			if err != nil {
				t.Errorf("nonce %d: got %v, want nil", n, err)
				return
			}
			f.check(t, f.transfer(n), got)
		})
	}
	signing.Wait()
}

func testInProcess(t *testing.T, f Fixture) {
	before := f.Signer.InProcess(f.Submitter)
	check.OK(t)(f.Signer.Sign(t.Context(), f.Submitter, f.transfer(0)))
	check.Equal(t, "after signing", f.Signer.InProcess(f.Submitter), before)
}

// Printing the signer, or any of its errors, never shows a secret.
func testPrintsNoSecret(t *testing.T, f Fixture) {
	if len(f.Secrets) == 0 {
		t.Skip("the fixture has no secrets")
	}
	_, noKey := f.Signer.Sign(t.Context(), eip155.NewSubmitter(1, eip155.Address([20]byte{})), f.transfer(0))
	wrong := f.transfer(0)
	wrong.ChainID++
	_, wrongChain := f.Signer.Sign(t.Context(), f.Submitter, wrong)
	holder := struct{ Signer any }{f.Signer}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x", "%q"} {
		printed := strings.ToLower(fmt.Sprintf(verb+verb+verb+verb, f.Signer, holder, noKey, wrongChain))
		for _, secret := range f.Secrets {
			if strings.Contains(printed, strings.ToLower(secret)) {
				t.Errorf("printed with %s: got a secret, want none", verb)
			}
		}
	}
}

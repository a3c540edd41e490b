package kms_test

import (
	"context"
	"crypto/ecdsa"
	"encoding/hex"
	"errors"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/emulator/fake/kms"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/signer"
	kmssigner "github.com/fencepost/fencepost/shared/signer/kms"
	"github.com/fencepost/fencepost/shared/signer/signertest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// rig is a Cloud KMS with one key, and a signer that uses it.
type rig struct {
	server    *kms.Server
	signer    *kmssigner.Key
	submitter txmanager.Submitter
	key       *ecdsa.PrivateKey
}

func start(t *testing.T, timeout time.Duration) rig {
	t.Helper()
	key := check.Value(crypto.GenerateKey())(t)
	server := check.Value(kms.Start())(t)
	client := kmssigner.New(kmssigner.Options{Endpoint: server.Addr(), Timeout: timeout})
	t.Cleanup(func() {
		check.OK(t)(client.Close())
		server.Close()
	})
	s := eip155.NewSubmitter(1337, eip155.Address(crypto.PubkeyToAddress(key.PublicKey)))
	return rig{server, client.Key(server.Add("treasury", key)), s, key}
}

func (h rig) transfer(n uint64) txmanager.Unsigned {
	return txmanager.Unsigned{ChainID: 1337, Nonce: n, To: new(eip155.Address([20]byte{9})), Value: big.NewInt(5), Gas: 21_000, FeeCapWei: big.NewInt(3), TipCapWei: big.NewInt(2)}
}

// A signer over Cloud KMS keeps the contract of all signers.
func TestKMSContract(t *testing.T) {
	t.Parallel()
	signertest.Run(t, func(t *testing.T) signertest.Fixture {
		h := start(t, 20*time.Second)
		return signertest.Fixture{Signer: h.signer, Submitter: h.submitter,
			Secrets: []string{hex.EncodeToString(crypto.FromECDSA(h.key)), h.key.D.String()}}
	})
}

// Nodes take only the lower of the two valid s (EIP-2), so the signer stores it whatever KMS sends.
func TestKMSLowersS(t *testing.T) {
	t.Parallel()
	half := new(big.Int).Rsh(crypto.S256().Params().N, 1)
	for _, fault := range []kms.Fault{kms.HighS, kms.LowS} {
		h := start(t, 20*time.Second)
		h.server.SetFault(fault)
		for n := range uint64(8) {
			got, err := h.signer.Sign(t.Context(), h.submitter, h.transfer(n))
			if err != nil {
				t.Fatalf("fault %d, nonce %d: %v", fault, n, err)
			}
			tx := new(types.Transaction)
			check.OK(t)(tx.UnmarshalBinary(got.Raw))
			if _, _, s := tx.RawSignatureValues(); s.Cmp(half) > 0 {
				t.Errorf("fault %d, nonce %d: got s %x above half the order, want the lower", fault, n, s)
			}
		}
	}
}

// A wrong answer of KMS, or a fault of the connection, never becomes a signed transaction.
func TestKMSFaults(t *testing.T) {
	t.Parallel()
	h := start(t, 20*time.Second)
	for name, fault := range map[string]kms.Fault{
		"bad checksum": kms.BadChecksum, "no checksum": kms.NoChecksum, "digest not verified": kms.Unverified, "another name": kms.AnotherName,
		"another key": kms.AnotherKey, "malformed": kms.Malformed, "more than DER": kms.TrailingDER, "r of 0": kms.ZeroR,
		"negative s": kms.NegativeS, "s out of range": kms.LargeS, "forbidden": kms.Forbidden,
	} {
		h.server.SetFault(fault)
		got, err := h.signer.Sign(t.Context(), h.submitter, h.transfer(1))
		if err == nil || got.Raw != nil {
			t.Errorf("%s: got %d bytes, %v, want an error", name, len(got.Raw), err)
		}
		if (fault == kms.AnotherKey) != errors.Is(err, signer.ErrNoKey) {
			t.Errorf("%s: got %v, want ErrNoKey only of another key", name, err)
		}
	}
	h.server.SetFault(kms.None)
	check.OK(t)(h.signer.Sign(t.Context(), h.submitter, h.transfer(1)))
}

// If KMS is down or does not answer, the call fails within the timeout. Once it is back, the same call
// succeeds.
func TestKMSCallEndsWithinTheTimeout(t *testing.T) {
	t.Parallel()
	for _, fault := range []kms.Fault{kms.Unavailable, kms.Hanging} {
		h := start(t, 300*time.Millisecond)
		check.OK(t)(h.signer.Sign(t.Context(), h.submitter, h.transfer(0)))
		h.server.SetFault(fault)
		began := time.Now()
		if _, err := h.signer.Sign(t.Context(), h.submitter, h.transfer(1)); err == nil {
			t.Errorf("fault %d: got nil, want an error", fault)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("fault %d: got an answer after %v, want it within the time-out", fault, took)
		}
		h.server.SetFault(kms.None)
		got, err := h.signer.Sign(t.Context(), h.submitter, h.transfer(1))
		if err != nil || got.Raw == nil {
			t.Errorf("fault %d, after its end: got %v, want it signed", fault, err)
		}
	}
}

// The caller's own deadline is kept too.
func TestKMSKeepsTheCallersDeadline(t *testing.T) {
	t.Parallel()
	h := start(t, time.Hour)
	h.server.SetFault(kms.Hanging)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := h.signer.Sign(ctx, h.submitter, h.transfer(1)); err == nil {
		t.Error("got nil, want an error")
	}
}

// Registration checks that the key version exists, has the right kind, and is the account's. If that is
// unknown, registration is not refused.
func TestKMSCheckFindsAWrongKey(t *testing.T) {
	t.Parallel()
	h := start(t, 300*time.Millisecond)
	client := kmssigner.New(kmssigner.Options{Endpoint: h.server.Addr(), Timeout: 300 * time.Millisecond})
	defer client.Close()
	if err := client.Key("projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1").Check(t.Context(), h.submitter); !errors.Is(err, signer.ErrNoKey) {
		t.Errorf("a version that is not there: got %v, want ErrNoKey", err)
	}
	refusals := []kms.Fault{kms.AnotherCurve, kms.Forbidden}
	for _, fault := range append(slices.Clone(refusals), kms.BadChecksum, kms.AnotherName, kms.Unavailable, kms.Hanging) {
		h.server.SetFault(fault)
		err := h.signer.Check(t.Context(), h.submitter)
		if err == nil || errors.Is(err, signer.ErrNoKey) != slices.Contains(refusals, fault) {
			t.Errorf("fault %d: got %v, want a refusal only of another curve or a missing right", fault, err)
		}
	}
}

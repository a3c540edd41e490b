package clef_test

import (
	"crypto/ecdsa"
	"encoding/hex"
	"os"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/emulator/clef"
	"github.com/fencepost/fencepost/shared/nonce"
	"github.com/fencepost/fencepost/shared/signer/remote"
	"github.com/fencepost/fencepost/shared/signer/signertest"
)

// A signer that asks clef itself keeps the contract of all signers.
func TestClefContract(t *testing.T) {
	t.Parallel()
	path := os.Getenv("FENCEPOST_TEST_CLEF")
	if path == "" {
		t.Skip("FENCEPOST_TEST_CLEF is not set to a clef program: go install github.com/ethereum/go-ethereum/cmd/clef@v1.16.7 makes one")
	}
	signertest.Run(t, func(t *testing.T) signertest.Fixture {
		key, err := crypto.GenerateKey()
		if err != nil {
			t.Fatal(err)
		}
		child, err := clef.Start(t.Context(), clef.Options{Path: path, ChainID: 1337, Keys: []*ecdsa.PrivateKey{key}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := child.Close(); err != nil {
				t.Error(err)
			}
		})
		s, err := remote.New(remote.Options{Name: "clef", URL: child.URL(), Method: remote.AccountSign, Timeout: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return signertest.Fixture{Signer: s, Submitter: nonce.NewSubmitter(1337, nonce.Address(crypto.PubkeyToAddress(key.PublicKey))),
			Secrets: []string{hex.EncodeToString(crypto.FromECDSA(key))}}
	})
}

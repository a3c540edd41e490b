package remotesigner_test

import (
	"crypto/ecdsa"
	"encoding/hex"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/emulator/fake/remotesigner"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/signer/remote"
	"github.com/fencepost/fencepost/shared/signer/signertest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const token = "0123456789abcdef-the-token"

// rig is a signing service with one account, and a signer that uses it.
type rig struct {
	server    *remotesigner.Server
	signer    *remote.Signer
	submitter txmanager.Submitter
	key       *ecdsa.PrivateKey
}

func start(t *testing.T, method string, timeout time.Duration) rig {
	t.Helper()
	key := check.Value(crypto.GenerateKey())(t)
	server := check.Value(remotesigner.Start(remotesigner.Options{Token: token, Keys: []*ecdsa.PrivateKey{key}, Clef: method == remote.AccountSign}))(t)
	t.Cleanup(func() { _ = server.Close() })
	s := check.Value(remote.New(remote.Options{Name: "treasury", URL: server.URL(), Method: method, BearerToken: token, Timeout: timeout}))(t)
	t.Cleanup(s.Close)
	return rig{server, s, eip155.NewSubmitter(1337, eip155.Address(crypto.PubkeyToAddress(key.PublicKey))), key}
}

func transfer(n uint64) txmanager.Unsigned {
	return txmanager.Unsigned{ChainID: 1337, Nonce: n, To: new(eip155.Address([20]byte{9})), Value: big.NewInt(5), Data: []byte{7}, Gas: 30_000, FeeCapWei: big.NewInt(3), TipCapWei: big.NewInt(2)}
}

// A signer over a service keeps the contract of all signers, with either style of answers.
func TestRemoteContract(t *testing.T) {
	t.Parallel()
	for name, method := range map[string]string{"web3signer": remote.EthSign, "clef": remote.AccountSign} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			signertest.Run(t, func(t *testing.T) signertest.Fixture {
				h := start(t, method, 20*time.Second)
				return signertest.Fixture{Signer: h.signer, Submitter: h.submitter, Secrets: []string{token, hex.EncodeToString(crypto.FromECDSA(h.key))}}
			})
		})
	}
}

// A wrong answer of the service, or a fault of the connection, never becomes a signed transaction.
func TestRemoteFaults(t *testing.T) {
	t.Parallel()
	h := start(t, remote.EthSign, 20*time.Second)
	for name, fault := range map[string]remotesigner.Fault{
		"receiver": remotesigner.AnotherRecipient, "data": remotesigner.AnotherData, "fee": remotesigner.MoreFee, "tip": remotesigner.MoreTip,
		"access list": remotesigner.AccessList, "high s": remotesigner.HighS, "status 500 with an answer": remotesigner.BrokenAnswer,
		"an answer and an error": remotesigner.BothAnswers,
		"nonce":                  remotesigner.AnotherNonce, "chain": remotesigner.AnotherChain, "value": remotesigner.AnotherValue, "gas": remotesigner.MoreGas,
		"type": remotesigner.LegacyType, "key": remotesigner.AnotherKey, "not JSON": remotesigner.NotJSON, "no result": remotesigner.NoResult,
		"status 500": remotesigner.Broken, "redirect": remotesigner.Elsewhere, "endless": remotesigner.Endless, "cut off": remotesigner.CutOff,
	} {
		h.server.SetFault(fault)
		if got, err := h.signer.Sign(t.Context(), h.submitter, transfer(1)); err == nil || got.Raw != nil {
			t.Errorf("%s: got %d bytes, %v, want an error", name, len(got.Raw), err)
		}
	}
	h.server.SetFault(remotesigner.None)
	check.OK(t)(h.signer.Sign(t.Context(), h.submitter, transfer(1)))
}

// If a service does not answer, the call fails within the timeout. Once it answers again, the same call
// succeeds.
func TestRemoteCallEndsWithinTheTimeout(t *testing.T) {
	t.Parallel()
	h := start(t, remote.EthSign, 200*time.Millisecond)
	h.server.SetFault(remotesigner.Hanging)
	if _, err := h.signer.Sign(t.Context(), h.submitter, transfer(1)); err == nil {
		t.Error("silent: got nil, want an error")
	}
	h.server.SetFault(remotesigner.None)
	check.OK(t)(h.signer.Sign(t.Context(), h.submitter, transfer(1)))
}

// A service without a list of accounts is accepted, and so is one that is down.
func TestRemoteCheckAcceptsAnUnavailableService(t *testing.T) {
	t.Parallel()
	h := start(t, remote.EthSign, 200*time.Millisecond)
	for fault, known := range map[remotesigner.Fault]bool{remotesigner.NoList: true, remotesigner.Broken: false, remotesigner.Hanging: false} {
		h.server.SetFault(fault)
		if err := h.signer.Check(t.Context(), h.submitter); (err == nil) != known || errors.Is(err, signer.ErrNoKey) {
			t.Errorf("fault %d: got %v, want nil %t and no ErrNoKey", fault, err, known)
		}
	}
}

// Another token is refused, and the error does not contain it.
func TestWrongRemoteTokenIsRefused(t *testing.T) {
	t.Parallel()
	h := start(t, remote.EthSign, 20*time.Second)
	other := check.Value(remote.New(remote.Options{Name: "treasury", URL: h.server.URL(), Method: remote.EthSign, BearerToken: "another", Timeout: time.Second}))(t)
	defer other.Close()
	if _, err := other.Sign(t.Context(), h.submitter, transfer(1)); err == nil || err.Error() != "sign for "+string(h.submitter)+" by remote signer treasury: it answered status 401" {
		t.Errorf("another token: got %v, want status 401", err)
	}
}

// The token does not reach a log, even if the service quotes it in an error.
func TestRemoteTokenIsNotQuoted(t *testing.T) {
	t.Parallel()
	h := start(t, remote.EthSign, 20*time.Second)
	h.server.SetFault(remotesigner.QuotedToken)
	_, err := h.signer.Sign(t.Context(), h.submitter, transfer(1))
	if err == nil || strings.Contains(err.Error(), token) || !strings.Contains(err.Error(), "not approved for Bearer") {
		t.Errorf("got %v, want the service's words without the token", err)
	}
}

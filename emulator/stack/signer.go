package stack

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/clef"
	"github.com/fencepost/fencepost/emulator/fake/kms"
	"github.com/fencepost/fencepost/emulator/fake/remotesigner"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/signer/remote"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// SignerKind is the kind of signer that has the keys of the stack's accounts.
type SignerKind string

// The kinds: the functions themselves, a Cloud KMS, or a signing service.
const (
	SignerLocal  SignerKind = "local"
	SignerKMS    SignerKind = "kms"
	SignerRemote SignerKind = "remote"
)

// macKeys is the variable of the keys of the intents' MACs.
const macKeys = "FENCEPOST_INTENTS_MAC_KEYS"

// remoteName is the signing service's name in registrations.
const remoteName = "emulator"

const clefWithin = 30 * time.Second

// SignedElsewhere reports whether another process than the functions signs.
func (s *Stack) SignedElsewhere() bool { return s.options.Signer == SignerRemote }

// holders returns the signing accounts with their keys.
func (s *Stack) holders() map[txmanager.Submitter]devchain.Account {
	all := map[txmanager.Submitter]devchain.Account{}
	for _, chain := range []*devchain.Chain{s.Chain, s.Second} {
		for i, sub := range s.submittersOn(chain) {
			all[sub] = s.accounts[i]
		}
	}
	if s.options.Payouts {
		all[eip155.NewSubmitter(s.Chain.ChainID(), s.payer.Address)] = s.payer
	}
	return all
}

// startSigner stores the keys where the options want them.
func (s *Stack) startSigner(ctx context.Context) {
	s.signers = make(map[txmanager.Submitter]string)
	key := make([]byte, 32)
	rand.Read(key) // never fails: crypto/rand
	s.settings[macKeys] = base64.StdEncoding.EncodeToString(key)
	switch s.options.Signer {
	case "", SignerLocal:
		s.signHere()
	case SignerKMS:
		s.signByKMS()
	case SignerRemote:
		s.signRemotely(ctx)
	default:
		steps.Stopf("signer %q: want %s, %s or %s", s.options.Signer, SignerLocal, SignerKMS, SignerRemote)
	}
}

// signHere writes the keys for the local signer.
func (s *Stack) signHere() {
	var text strings.Builder
	for sub, account := range s.holders() {
		fmt.Fprintf(&text, "%s=%s\n", sub, keyOf(account))
	}
	path := s.path("keys")
	s.settings["FENCEPOST_SIGNER_LOCAL_KEYS_FILE"] = path
	steps.OK(os.WriteFile(path, []byte(text.String()), 0o600))
}

func (s *Stack) signByKMS() {
	s.KMS = steps.Value(kms.Start())
	s.OnClose(func() error { s.KMS.Close(); return nil })
	for sub, account := range s.holders() {
		s.signers[sub] = "kms:" + s.KMS.Add(account.Address.String(), account.Key)
	}
	s.KMS.AddMAC("intents", []byte(rand.Text())) // for stacks with it in intents.macKeys
	s.settings["FENCEPOST_SIGNER_KMS_ENDPOINT"] = s.KMS.Addr()
}

func (s *Stack) signRemotely(ctx context.Context) {
	var keys []*ecdsa.PrivateKey
	for sub, account := range s.holders() {
		keys = append(keys, account.Key)
		s.signers[sub] = "remote:" + remoteName
	}
	list := steps.Value(json.Marshal(map[string]remote.Options{remoteName: s.startRemote(ctx, keys)}))
	path := s.path("remotes")
	s.settings["FENCEPOST_SIGNER_REMOTES_FILE"] = path
	steps.OK(os.WriteFile(path, list, 0o600))
}

// startRemote starts clef, or else the emulator's own signing service.
func (s *Stack) startRemote(ctx context.Context, keys []*ecdsa.PrivateKey) remote.Options {
	if s.options.Clef != "" {
		ctx, cancel := context.WithTimeout(ctx, clefWithin)
		defer cancel()
		child := steps.Value(clef.Start(ctx, clef.Options{Path: s.options.Clef, ChainID: s.Chain.ChainID(), Keys: keys}))
		s.OnClose(child.Close)
		return remote.Options{URL: child.URL(), Method: remote.AccountSign}
	}
	token := rand.Text()
	s.Signing = steps.Value(remotesigner.Start(remotesigner.Options{Token: token, Keys: keys}))
	s.OnClose(s.Signing.Close)
	return remote.Options{URL: s.Signing.URL(), BearerToken: token}
}

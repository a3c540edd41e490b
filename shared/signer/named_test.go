package signer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/signer/kms"
	"github.com/fencepost/fencepost/shared/signer/remote"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const someKey = "projects/p/locations/europe-west1/keyRings/r/cryptoKeys/k/cryptoKeyVersions/12"

// directory returns a directory with the local signer, Cloud KMS and the remote signer "treasury".
func directory(t *testing.T, local signer.Service) signer.Directory {
	t.Helper()
	list := filepath.Join(t.TempDir(), "remotes")
	check.OK(t)(os.WriteFile(list, []byte(`{"treasury": {"url": "http://127.0.0.1:1"}}`), 0o600))
	remotes := check.Value(remote.Kind(list, time.Second))(t)
	return check.Value(signer.NewDirectory(signer.LocalKind(local), kms.New(kms.Options{}).Kind(), remotes))(t)
}

// A registration's text selects the one signer that it names, or gives an error with the possible
// values.
func TestDirectorySelectsTheNamedSigner(t *testing.T) {
	t.Parallel()
	local := new(signer.Local)
	d := directory(t, local)
	for name, want := range map[string]string{"local": fmt.Sprint(local), "kms:" + someKey: "key " + someKey, "remote:treasury": "remote signer treasury"} {
		check.Equal(t, name, fmt.Sprint(check.Value(d.Named(name))(t)), want)
	}
	for _, name := range []string{
		"", "Local", "local:", "kms", "kms:", "kms:" + someKey + "0x", "kms:" + someKey[:len(someKey)-2] + "0", "kms:" + someKey + "/", "kms:/" + someKey,
		"kms: " + someKey, "remote", "remote:", "remote:other", "treasury",
	} {
		check.Err(t, fmt.Sprintf("%q", name), signer.ErrUnknownSigner)(d.Named(name))
	}
	for _, name := range []string{"local", "kms:" + someKey, "remote:treasury"} {
		check.Err(t, fmt.Sprintf("%q of nothing", name), signer.ErrUnknownSigner)((signer.Directory{}).Named(name))
	}
}

// A further kind needs no change of the directory, which lists its form for a name that it does not
// know. Two kinds of one name are refused.
func TestDirectoryTakesFurtherKinds(t *testing.T) {
	t.Parallel()
	local := new(signer.Local)
	vault := signer.Kind{Name: "vault", Key: "<path>", Signer: func(path string) (signer.Service, error) {
		if path != "treasury" {
			return nil, errors.New("no such path")
		}
		return local, nil
	}}
	d := check.Value(signer.NewDirectory(signer.LocalKind(new(signer.Local)), vault))(t)
	check.Equal(t, "the further kind", check.Value(d.Named("vault:treasury"))(t), signer.Service(local))
	for name, want := range map[string]string{"vault:other": "no such path", "other": "vault:<path>", "vault": "vault:<path>"} {
		if _, err := d.Named(name); !errors.Is(err, signer.ErrUnknownSigner) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want ErrUnknownSigner with %q", name, err, want)
		}
	}
	for _, kinds := range [][]signer.Kind{{vault, vault}, {{Name: "a:b"}}, {{}}} {
		if _, err := signer.NewDirectory(kinds...); err == nil {
			t.Errorf("%v: got no error", kinds)
		}
	}
}

// An unknown signer signs nothing, and no nonce is allocated before that is detected.
func TestUnknownSignerSignsNothing(t *testing.T) {
	t.Parallel()
	_, address := newKey(t)
	s := eip155.NewSubmitter(1, address)
	service := signer.Directory{}.For("remote:gone")
	if got, err := service.Sign(t.Context(), s, txmanager.Unsigned{ChainID: 1}); !errors.Is(err, signer.ErrUnknownSigner) || got.Raw != nil {
		t.Errorf("got %d bytes, %v, want ErrUnknownSigner", len(got.Raw), err)
	}
	check.Equal(t, "in process", service.InProcess(s), true)
}

// broken panics in every call.
type broken struct{}

func (broken) Sign(context.Context, txmanager.Submitter, txmanager.Unsigned) (txmanager.Signed, error) {
	panic("no key")
}
func (broken) Check(context.Context, txmanager.Submitter) error { panic("no key") }
func (broken) InProcess(txmanager.Submitter) bool               { panic("no key") }

// A panic of an added kind is an error of its call, and a key without a signer is an error.
func TestVerifiedRecoversEachCall(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(string) (signer.Service, error){
		"no signer": func(string) (signer.Service, error) { return nil, nil },
		"a panic":   func(string) (signer.Service, error) { panic("no file") },
	}
	for name, open := range kinds {
		if s, err := signer.Verified(signer.Kind{Name: "k", Signer: open}, signer.Verify).Signer("x"); err == nil {
			t.Errorf("%s: got %v, want an error", name, s)
		}
	}
	s, err := signer.Verified(signer.Kind{Name: "k", Signer: func(string) (signer.Service, error) { return broken{}, nil }}, signer.Verify).Signer("x")
	check.OK(t)(err)
	const account = txmanager.Submitter("eip155:1:0x0000000000000000000000000000000000000001")
	if _, err := s.Sign(t.Context(), account, txmanager.Unsigned{}); err == nil {
		t.Error("sign: got no error")
	}
	check.Equal(t, "check fails", s.Check(t.Context(), account) != nil, true)
	check.Equal(t, "in process", s.InProcess(account), false)
}

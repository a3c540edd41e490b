package signer_test

import (
	"errors"
	"testing"

	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const someKey = "projects/p/locations/europe-west1/keyRings/r/cryptoKeys/k/cryptoKeyVersions/12"

// A registration's text selects the one signer that it names, or gives an error with the possible
// values.
func TestDirectorySelectsTheNamedSigner(t *testing.T) {
	t.Parallel()
	local, byKMS, treasury := new(signer.Local), new(signer.Local), new(signer.Local)
	d := signer.Directory{
		Local: local, Remotes: map[string]signer.Service{"treasury": treasury},
		KMS: func(version string) signer.Service {
			if version != someKey {
				t.Errorf("key version: got %s, want %s", version, someKey)
			}
			return byKMS
		},
	}
	for name, want := range map[string]signer.Service{"local": local, "kms:" + someKey: byKMS, "remote:treasury": treasury} {
		if got, err := d.Named(name); err != nil || got != want {
			t.Errorf("%s: got %p, %v, want %p", name, got, err, want)
		}
	}
	for _, name := range []string{
		"", "Local", "local:", "kms", "kms:", "kms:" + someKey + "0x", "kms:" + someKey[:len(someKey)-2] + "0", "kms:" + someKey + "/", "kms:/" + someKey,
		"kms: " + someKey, "remote", "remote:", "remote:other", "treasury",
	} {
		if _, err := d.Named(name); !errors.Is(err, signer.ErrUnknownSigner) {
			t.Errorf("%q: got %v, want ErrUnknownSigner", name, err)
		}
	}
	for _, name := range []string{"local", "kms:" + someKey, "remote:treasury"} {
		if _, err := (signer.Directory{}).Named(name); !errors.Is(err, signer.ErrUnknownSigner) {
			t.Errorf("%q of nothing: got %v, want ErrUnknownSigner", name, err)
		}
	}
}

// An unknown signer signs nothing, and no nonce is allocated before that is detected.
func TestUnknownSignerSignsNothing(t *testing.T) {
	t.Parallel()
	_, address := newKey(t)
	s := txmanager.NewSubmitter(1, address)
	service := signer.Directory{}.For("remote:gone")
	if got, err := service.Sign(t.Context(), s, txmanager.Unsigned{ChainID: 1}); !errors.Is(err, signer.ErrUnknownSigner) || got.Raw != nil {
		t.Errorf("got %d bytes, %v, want ErrUnknownSigner", len(got.Raw), err)
	}
	if !service.InProcess(s) {
		t.Error("in process: got false, want true")
	}
}

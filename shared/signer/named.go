package signer

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// ErrUnknownSigner reports a registration's signer that this deployment does not have. The error's text
// lists the possible values.
var ErrUnknownSigner = errors.New("not a signer of this deployment")

// LocalName names the signer with keys in the process, in a registration.
const LocalName = "local"

// The prefixes of a key version of Cloud KMS, and of a remote signer's name.
const (
	kmsPrefix    = "kms:"
	remotePrefix = "remote:"
)

// keyVersion is the full name of a key version in Cloud KMS.
var keyVersion = regexp.MustCompile(`^projects/[^/\s]+/locations/[^/\s]+/keyRings/[^/\s]+/cryptoKeys/[^/\s]+/cryptoKeyVersions/[1-9][0-9]*$`)

// Service is a signer that reports beforehand whether it can sign for an account.
type Service interface {
	txmanager.Signer

	// Check reports whether the signer can sign for s, without signing. The error wraps [ErrNoKey] if
	// it cannot; after any other error the answer is unknown.
	Check(ctx context.Context, s txmanager.Submitter) error
}

// Directory holds the signers of a deployment. It is immutable.
type Directory struct {
	Local   Service                         // nil: none
	KMS     func(keyVersion string) Service // nil: none
	Remotes map[string]Service              // by name
}

// Named returns the signer that a registration names: "local"; "kms:" and the full name of a key
// version; or "remote:" and a name of the deployment's list. The error wraps [ErrUnknownSigner].
func (d Directory) Named(name string) (Service, error) {
	key, isKMS := strings.CutPrefix(name, kmsPrefix)
	remote, isRemote := strings.CutPrefix(name, remotePrefix)
	switch {
	case name == LocalName && d.Local != nil:
		return d.Local, nil
	case isKMS && d.KMS == nil:
		return nil, fmt.Errorf("%q: %w: it has no Cloud KMS", name, ErrUnknownSigner)
	case isKMS && !keyVersion.MatchString(key):
		return nil, fmt.Errorf("%q: %w: want kms:projects/P/locations/L/keyRings/R/cryptoKeys/K/cryptoKeyVersions/N", name, ErrUnknownSigner)
	case isKMS:
		return d.KMS(key), nil
	case isRemote && d.Remotes[remote] != nil:
		return d.Remotes[remote], nil
	case isRemote:
		return nil, fmt.Errorf("%q: %w: signer.remotesFile has no signer of that name", name, ErrUnknownSigner)
	}
	return nil, fmt.Errorf("%q: %w: want local, kms:<key version> or remote:<name>", name, ErrUnknownSigner)
}

// For returns the signer that a registration names. If there is none, it returns one that refuses to
// sign.
func (d Directory) For(name string) txmanager.Signer {
	service, err := d.Named(name)
	if err != nil {
		return none{err}
	}
	return service
}

// none counts as in-process, so that no nonce is allocated before its refusal.
type none struct{ err error }

func (n none) Sign(_ context.Context, s txmanager.Submitter, _ txmanager.Unsigned) (txmanager.Signed, error) {
	return txmanager.Signed{}, fmt.Errorf("sign for %s: %w", s, n.err)
}

func (n none) InProcess(txmanager.Submitter) bool { return true }

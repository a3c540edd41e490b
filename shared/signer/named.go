package signer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// ErrUnknownSigner reports a registration's signer that this deployment does not have. The error's text
// lists the possible values.
var ErrUnknownSigner = errors.New("not a signer of this deployment")

// LocalName names the signer with keys in the process, in a registration.
const LocalName = "local"

// Checker reports whether a signer can sign for an account, without signing. The error wraps [ErrNoKey]
// if it cannot. After any other error the answer is unknown.
type Checker interface {
	Check(ctx context.Context, s txmanager.Submitter) error
}

// Service is a signer that reports beforehand whether it can sign for an account.
type Service interface {
	txmanager.Signer
	Checker
}

// Kind is one kind of signer. A registration names its only signer by the kind's name, or one of several
// by the name, a colon and a key.
type Kind struct {
	Name string
	Key  string // the key's form, such as <name>; "": there is one signer

	// Signer returns the signer of the key. The error names the key's fault.
	Signer func(key string) (Service, error)
}

// LocalKind is the kind of the signer with keys in the process.
func LocalKind(local Service) Kind {
	return Kind{Name: LocalName, Signer: func(string) (Service, error) { return local, nil }}
}

// Directory holds the kinds of signers of a deployment. It is immutable.
type Directory struct{ kinds []Kind }

// NewDirectory returns the directory of these kinds, of which no two may have the same name.
func NewDirectory(kinds ...Kind) (Directory, error) {
	for i, k := range kinds {
		if k.Name == "" || strings.ContainsAny(k.Name, ": ") || slices.ContainsFunc(kinds[:i], func(other Kind) bool { return other.Name == k.Name }) {
			return Directory{}, fmt.Errorf("signer kind %q: want a name that no other kind has, without colon and space", k.Name)
		}
	}
	return Directory{kinds}, nil
}

// Named returns the signer that a registration names. The error wraps [ErrUnknownSigner].
func (d Directory) Named(name string) (Service, error) {
	prefix, key, keyed := strings.Cut(name, ":")
	var forms []string
	for _, k := range d.kinds {
		forms = append(forms, strings.TrimSuffix(k.Name+":"+k.Key, ":"))
		if k.Name != prefix || keyed != (k.Key != "") {
			continue
		}
		service, err := k.Signer(key)
		if err != nil {
			return nil, fmt.Errorf("%q: %w: %w", name, ErrUnknownSigner, err)
		}
		return service, nil
	}
	return nil, fmt.Errorf("%q: %w: want one of %s", name, ErrUnknownSigner, strings.Join(forms, ", "))
}

// Checker returns what checks the signer that a registration names. The error wraps [ErrUnknownSigner].
func (d Directory) Checker(name string) (Checker, error) { return d.Named(name) }

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

// Verified is kind with each answer of its signers checked by verify, such as [Verify]. A panic of its code becomes an
// error, and a key without a signer too. A signer whose InProcess panics is treated as one elsewhere.
func Verified(kind Kind, verify Verifier) Kind {
	open := kind.Signer
	kind.Signer = func(key string) (_ Service, err error) {
		defer recoverAs(&err, "open a signer of kind "+kind.Name)
		s, err := open(key)
		switch {
		case err != nil:
			return nil, err
		case s == nil:
			return nil, fmt.Errorf("the kind %s has no signer for this key", kind.Name)
		}
		return verified{s, verify}, nil
	}
	return kind
}

// Verifier checks that raw is exactly tx, signed by s, and returns it with its hash.
type Verifier func(s txmanager.Submitter, tx txmanager.Unsigned, raw []byte) (txmanager.Signed, error)

type verified struct {
	Service
	verify Verifier
}

// recoverAs makes a panic of the deferring function its error.
func recoverAs(err *error, what string) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s: the signer panicked: %v", what, p)
	}
}

// Sign implements [txmanager.Signer].
func (v verified) Sign(ctx context.Context, s txmanager.Submitter, tx txmanager.Unsigned) (_ txmanager.Signed, err error) {
	defer recoverAs(&err, "signature for "+string(s))
	signed, err := v.Service.Sign(ctx, s, tx)
	if err != nil {
		return txmanager.Signed{}, err
	}
	return v.verify(s, tx, signed.Raw)
}

// Check implements [Checker].
func (v verified) Check(ctx context.Context, s txmanager.Submitter) (err error) {
	defer recoverAs(&err, "check the key of "+string(s))
	return v.Service.Check(ctx, s)
}

// InProcess implements [txmanager.Signer].
func (v verified) InProcess(s txmanager.Submitter) (inProcess bool) {
	defer func() { _ = recover() }()
	return v.Service.InProcess(s)
}

package signer

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/shared/txmanager"
)

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

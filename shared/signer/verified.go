package signer

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// Verified is kind with each answer of its signers checked by [Verify]. A panic of a signer becomes an
// error.
func Verified(kind Kind) Kind {
	open := kind.Signer
	kind.Signer = func(key string) (Service, error) {
		s, err := open(key)
		if err != nil {
			return nil, err
		}
		return verified{s}, nil
	}
	return kind
}

type verified struct{ Service }

// Sign implements [txmanager.Signer].
func (v verified) Sign(ctx context.Context, s txmanager.Submitter, tx txmanager.Unsigned) (signed txmanager.Signed, err error) {
	defer func() {
		if p := recover(); p != nil {
			signed, err = txmanager.Signed{}, fmt.Errorf("signature for %s: the signer panicked: %v", s, p)
		}
	}()
	if signed, err = v.Service.Sign(ctx, s, tx); err != nil {
		return txmanager.Signed{}, err
	}
	return Verify(s, tx, signed.Raw)
}

// Package signer signs for submitters. An implementation of [txmanager.Signer] that calls
// another process checks the result with [Verify]: it returns only bytes that are exactly the requested
// transaction.
package signer

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// ErrNoKey reports a submitter that the signer cannot sign for.
var ErrNoKey = errors.New("no key")

// Local signs with keys in this process. It prints as the number of its keys, for any verb. It can be
// used concurrently.
type Local struct {
	keys map[txmanager.Submitter]*ecdsa.PrivateKey
}

var _ Service = (*Local)(nil)

// NewLocal returns a signer with keys. Each must be the key of its submitter's account: another key
// would sign what no chain accepts for that account.
func NewLocal(keys map[txmanager.Submitter]*ecdsa.PrivateKey) (*Local, error) {
	for s, key := range keys {
		if key == nil || eip155.Address(crypto.PubkeyToAddress(key.PublicKey)) != s.Address() {
			return nil, fmt.Errorf("the key given for %s is of another account", s)
		}
	}
	return &Local{keys: maps.Clone(keys)}, nil
}

// Sign implements [txmanager.Signer]. Without a key for s the error wraps [ErrNoKey]. Equal
// transactions get equal bytes (RFC 6979). They are not verified, because the key was verified to be
// the account's and no other process is involved.
func (l *Local) Sign(ctx context.Context, s txmanager.Submitter, tx txmanager.Unsigned) (txmanager.Signed, error) {
	if err := ctx.Err(); err != nil {
		return txmanager.Signed{}, fmt.Errorf("sign for %s: %w", s, err)
	}
	key, ok := l.keys[s]
	if !ok {
		return txmanager.Signed{}, fmt.Errorf("sign for %s: %w", s, ErrNoKey)
	}
	asked, err := unsigned(s, tx)
	if err != nil {
		return txmanager.Signed{}, err
	}
	signed, err := types.SignTx(asked, by(tx), key)
	if err != nil {
		return txmanager.Signed{}, fmt.Errorf("sign for %s: %w", s, err)
	}
	raw, err := signed.MarshalBinary()
	if err != nil {
		return txmanager.Signed{}, fmt.Errorf("sign for %s: %w", s, err)
	}
	return txmanager.Signed{Hash: txmanager.Hash(signed.Hash()), Raw: raw}, nil
}

// Check implements [Service]. A signer without any key, as in a function that never signs, returns an
// unknown result.
func (l *Local) Check(_ context.Context, s txmanager.Submitter) error {
	if _, ok := l.keys[s]; !ok && len(l.keys) > 0 {
		return fmt.Errorf("the local signer for %s: %w", s, ErrNoKey)
	}
	return nil
}

// InProcess implements [txmanager.Signer]: always true.
func (l *Local) InProcess(txmanager.Submitter) bool { return true }

// Format never prints a key.
func (l Local) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, l.String())
}

// String returns the number of keys as text.
func (l Local) String() string { return fmt.Sprintf("local signer of %d keys", len(l.keys)) }

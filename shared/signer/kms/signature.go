package kms

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/ethereum/go-ethereum/crypto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// order is the order of secp256k1's group; half is half of it, rounded down.
var (
	order = crypto.S256().Params().N
	half  = new(big.Int).Rsh(order, 1)
)

// recoverable converts a DER signature to r, s and v for the account a. Of the two equivalent s it
// takes the lower, since nodes reject the other (EIP-2). KMS does not return v, so the right one is
// found by recovering a. If neither recovers a, the key is of another account, and the error wraps
// [signer.ErrNoKey].
func recoverable(der []byte, digest txmanager.Hash, a txmanager.Address) ([]byte, error) {
	var parsed struct{ R, S *big.Int }
	rest, err := asn1.Unmarshal(der, &parsed)
	if err != nil || len(rest) > 0 {
		return nil, errors.New("the signature is not the DER form of two integers")
	}
	for _, n := range []*big.Int{parsed.R, parsed.S} {
		if n.Sign() <= 0 || n.Cmp(order) >= 0 {
			return nil, errors.New("the signature is out of range")
		}
	}
	if parsed.S.Cmp(half) > 0 {
		parsed.S.Sub(order, parsed.S)
	}
	signature := make([]byte, crypto.SignatureLength)
	parsed.R.FillBytes(signature[:32])
	parsed.S.FillBytes(signature[32:64])
	for v := range byte(2) {
		signature[64] = v
		public, err := crypto.SigToPub(digest[:], signature)
		if err == nil && eip155.Address(crypto.PubkeyToAddress(*public)) == a {
			return signature, nil
		}
	}
	return nil, fmt.Errorf("the signature is of another account than %s: %w", a, signer.ErrNoKey)
}

// The object ids of an elliptic-curve public key, and of secp256k1, which crypto/x509 does not support.
//
// Source: https://www.secg.org/sec2-v2.pdf, A.2.1
var (
	ecPublicKey = asn1.ObjectIdentifier{1, 2, 840, 10045, 2, 1}
	secp256k1   = asn1.ObjectIdentifier{1, 3, 132, 0, 10}
)

// AddressOf returns the account of a public key in PEM, as KMS returns it (RFC 5480). It refuses text before or after the key.
func AddressOf(text string) (txmanager.Address, error) {
	none := eip155.Address([20]byte{})
	block, rest := pem.Decode([]byte(text))
	switch {
	case block == nil || block.Type != "PUBLIC KEY":
		return none, errors.New("want a public key in PEM")
	case strings.LastIndex(strings.TrimSpace(text), "-----BEGIN ") != 0 || strings.TrimSpace(string(rest)) != "":
		return none, errors.New("want one public key in PEM, and no other text")
	}
	var info struct {
		Algorithm pkix.AlgorithmIdentifier
		Key       asn1.BitString
	}
	after, err := asn1.Unmarshal(block.Bytes, &info)
	if err != nil || len(after) > 0 {
		return none, errors.New("the PEM has no public key in DER, or bytes after it")
	}
	var curve asn1.ObjectIdentifier
	_, err = asn1.Unmarshal(info.Algorithm.Parameters.FullBytes, &curve)
	if err != nil || !info.Algorithm.Algorithm.Equal(ecPublicKey) || !curve.Equal(secp256k1) {
		return none, errors.New("the public key is on another curve, or of another kind: want secp256k1")
	}
	key, err := crypto.UnmarshalPubkey(info.Key.RightAlign())
	if err != nil {
		return none, errors.New("the public key is no point on secp256k1 in uncompressed form")
	}
	return eip155.Address(crypto.PubkeyToAddress(*key)), nil
}

// refused reports whether KMS has no key version of that name, denies access to it, or has it disabled.
func refused(err error) bool {
	return slices.Contains([]codes.Code{codes.NotFound, codes.PermissionDenied, codes.InvalidArgument, codes.FailedPrecondition}, status.Code(err))
}

package kms

import (
	"context"
	"encoding/asn1"
	"math/big"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Fault is one kind of wrong answer.
type Fault int

// The faults. None answers correctly, with high and low s in turn.
const (
	None         Fault = iota
	HighS              // always the higher s: valid, but no node takes it
	LowS               // always the lower s
	BadChecksum        // of the signature
	NoChecksum         // the answer has no checksum
	Unverified         // KMS did not compare the digest with its checksum
	AnotherName        // the key version has another name
	AnotherKey         // another key signs
	AnotherCurve       // the public key is on another curve
	Malformed          // not DER
	TrailingDER        // one byte after the DER form
	ZeroR              // r is 0
	NegativeS          // s is negative
	LargeS             // s is above the group's order
	Unavailable        // an error at once
	Forbidden          // permission denied
	Hanging            // no answer until the fault changes
)

// before returns the error, if the fault prevents an answer.
func (f Fault) before(ctx context.Context, release <-chan struct{}) error {
	switch f {
	case Forbidden:
		return status.Error(codes.PermissionDenied, "Permission 'cloudkms.cryptoKeyVersions.useToSign' denied.")
	case Hanging:
		select {
		case <-ctx.Done():
		case <-release:
		}
		fallthrough
	case Unavailable:
		return status.Error(codes.Unavailable, "The service is currently unavailable.")
	}
	return nil
}

// encode returns r and s in DER, or as the fault changes them.
func (f Fault) encode(r, s *big.Int) ([]byte, error) {
	switch f {
	case Malformed:
		return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...), nil
	case ZeroR:
		r = new(big.Int)
	case NegativeS:
		s = new(big.Int).Neg(s)
	case LargeS:
		s = new(big.Int).Lsh(s, 8)
	}
	der, err := asn1.Marshal(struct{ R, S *big.Int }{r, s})
	if f == TrailingDER {
		der = append(der, 0)
	}
	return der, err
}

// damage changes the name or the checksum in an answer, if the fault does.
func (f Fault) damage(name *string, sum *wrapperspb.Int64Value) {
	switch f {
	case BadChecksum:
		sum.Value ^= 1
	case AnotherName:
		*name += "0"
	}
}

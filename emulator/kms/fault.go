package kms

import (
	"context"
	"encoding/asn1"
	"math/big"

	"cloud.google.com/go/kms/apiv1/kmspb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Fault is one way to answer wrongly.
type Fault int

// The faults. None is all well, with low and high s in turns.
const (
	None         Fault = iota
	HighS              // always the higher s: as good, but no node takes it
	LowS               // always the lower s
	BadChecksum        // of what is sent
	NoChecksum         // none is sent
	Unverified         // KMS has not compared the digest with its checksum
	AnotherName        // of the key version
	AnotherKey         // signs
	AnotherCurve       // has the key, as its public half says
	Malformed          // not DER
	TrailingDER        // one byte more than the DER form
	ZeroR              // r is 0
	NegativeS          // s is below 0
	LargeS             // s is beyond the group's order
	Unavailable        // no answer, at once
	Forbidden          // refused, as without the right to sign
	Hanging            // no answer, until the fault is another
)

// before does what a fault does in place of an answer.
func (f Fault) before(ctx context.Context, release <-chan struct{}) error {
	switch f {
	case Unavailable:
		return status.Error(codes.Unavailable, "The service is currently unavailable.")
	case Forbidden:
		return status.Error(codes.PermissionDenied, "Permission 'cloudkms.cryptoKeyVersions.useToSign' denied.")
	case Hanging:
		select {
		case <-ctx.Done():
		case <-release:
		}
		return status.Error(codes.Unavailable, "The service is currently unavailable.")
	}
	return nil
}

// encode is r and s in DER, or what a fault makes of them.
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

// after spoils a whole answer.
func (f Fault) after(answer *kmspb.AsymmetricSignResponse) *kmspb.AsymmetricSignResponse {
	switch f {
	case BadChecksum:
		answer.SignatureCrc32C.Value ^= 1
	case NoChecksum:
		answer.SignatureCrc32C = nil
	case Unverified:
		answer.VerifiedDigestCrc32C = false
	case AnotherName:
		answer.Name += "0"
	}
	return answer
}

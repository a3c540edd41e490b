package kms

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"

	"cloud.google.com/go/kms/apiv1/kmspb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// AddMAC adds a key for HMAC_SHA256 as the first version of the named key, and returns the version's full
// name.
func (s *Server) AddMAC(name string, key []byte) string {
	return s.put(name, version{mac: key})
}

func (s *Server) mac(ctx context.Context, name string, data []byte, crc *wrapperspb.Int64Value) ([]byte, Fault, error) {
	v, fault, release := s.now(name)
	if err := fault.before(ctx, release); err != nil {
		return nil, fault, err
	}
	switch {
	case v.mac == nil:
		return nil, fault, status.Errorf(codes.NotFound, "CryptoKeyVersion %s not found.", name)
	case crc != nil && crc.GetValue() != checksum(data):
		return nil, fault, status.Error(codes.InvalidArgument, "The checksum in field data_crc32c did not match the data in field data.")
	}
	h := hmac.New(sha256.New, v.mac)
	h.Write(data)
	return h.Sum(nil), fault, nil
}

func (s *Server) MacSign(ctx context.Context, q *kmspb.MacSignRequest) (*kmspb.MacSignResponse, error) {
	sum, fault, err := s.mac(ctx, q.GetName(), q.GetData(), q.GetDataCrc32C())
	if err != nil {
		return nil, err
	}
	answer := &kmspb.MacSignResponse{
		Name: q.GetName(), Mac: sum, MacCrc32C: wrapperspb.Int64(checksum(sum)),
		VerifiedDataCrc32C: q.GetDataCrc32C() != nil, ProtectionLevel: kmspb.ProtectionLevel_HSM,
	}
	fault.damage(&answer.Name, answer.MacCrc32C)
	return answer, nil
}

func (s *Server) MacVerify(ctx context.Context, q *kmspb.MacVerifyRequest) (*kmspb.MacVerifyResponse, error) {
	sum, fault, err := s.mac(ctx, q.GetName(), q.GetData(), q.GetDataCrc32C())
	if err != nil {
		return nil, err
	}
	if crc := q.GetMacCrc32C(); crc != nil && crc.GetValue() != checksum(q.GetMac()) {
		return nil, status.Error(codes.InvalidArgument, "The checksum in field mac_crc32c did not match the data in field mac.")
	}
	right := hmac.Equal(sum, q.GetMac())
	answer := &kmspb.MacVerifyResponse{
		Name: q.GetName(), Success: right, VerifiedSuccessIntegrity: right,
		VerifiedDataCrc32C: q.GetDataCrc32C() != nil, VerifiedMacCrc32C: q.GetMacCrc32C() != nil, ProtectionLevel: kmspb.ProtectionLevel_HSM,
	}
	switch fault {
	case BadChecksum:
		answer.VerifiedSuccessIntegrity = !right
	case AnotherName:
		answer.Name += "0"
	}
	return answer, nil
}

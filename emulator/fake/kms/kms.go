// Package kms is the emulator's Cloud KMS over gRPC, as Google's client calls it. It signs digests with
// real keys on secp256k1, and returns their public keys.
//
// For tests it also answers wrongly in one chosen way; see [Fault].
package kms

import (
	"context"
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"hash/crc32"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/kms/apiv1/kmspb"
	"github.com/ethereum/go-ethereum/crypto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/fencepost/fencepost/emulator/fake/faultswitch"
)

// Server has keys by the full names of their versions. Several goroutines can use it. Make one with
// [Start].
type Server struct {
	kmspb.UnimplementedKeyManagementServiceServer

	server *grpc.Server
	addr   string

	keys  sync.Map     // each a version
	delay atomic.Int64 // in nanoseconds

	*faultswitch.Switch[Fault]
}

// version is the first version of a key: one to sign with, or one to make MACs with.
type version struct {
	signing *ecdsa.PrivateKey
	shown   bool // nobody here may sign with it
	mac     []byte
}

// Start serves on a free port of 127.0.0.1 until [Server.Close].
func Start() (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen as Cloud KMS: %w", err)
	}
	s := &Server{server: grpc.NewServer(), addr: l.Addr().String(), Switch: faultswitch.New[Fault]()}
	kmspb.RegisterKeyManagementServiceServer(s.server, s)
	go func() { _ = s.server.Serve(l) }() // ends with Close
	return s, nil
}

// Addr is host:port of the server.
func (s *Server) Addr() string { return s.addr }

// Close ends serving at once and releases requests that hang.
func (s *Server) Close() {
	s.SetFault(None)
	s.server.Stop()
}

// Add adds a key as the first version of the named key, and returns the version's full name.
func (s *Server) Add(name string, key *ecdsa.PrivateKey) string {
	return s.put(name, version{signing: key})
}

func (s *Server) put(name string, v version) string {
	full := Version(name)
	s.keys.Store(full, v)
	return full
}

// Show is [Server.Add] for a key of which the callers of this server may read the public half and may not sign:
// the right to sign is granted elsewhere.
func (s *Server) Show(name string, key *ecdsa.PrivateKey) string {
	return s.put(name, version{signing: key, shown: true})
}

// Import adds the key of one name under another name too, as an imported key, and returns the version's
// full name.
func (s *Server) Import(from, name string) string {
	return s.Add(name, s.find(Version(from)).signing)
}

// Version returns the full name of the first version of a key.
func Version(name string) string {
	return "projects/emulator/locations/local/keyRings/signers/cryptoKeys/" + name + "/cryptoKeyVersions/1"
}

// find returns the key version of that name, or a version without keys.
func (s *Server) find(name string) version {
	v, _ := s.keys.Load(name)
	known, _ := v.(version)
	return known
}

// SetDelay delays each later signature.
func (s *Server) SetDelay(d time.Duration) { s.delay.Store(int64(d)) }

// AsymmetricSign implements the call. Half of the signatures have the higher s, as those of KMS do.
func (s *Server) AsymmetricSign(ctx context.Context, q *kmspb.AsymmetricSignRequest) (*kmspb.AsymmetricSignResponse, error) {
	v := s.find(q.GetName())
	fault, release := s.Current()
	key := v.signing
	digest := q.GetDigest().GetSha256()
	s.Record(hex.EncodeToString(digest))
	if v.shown {
		fault = Forbidden
	}
	select {
	case <-time.After(time.Duration(s.delay.Load())):
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if err := fault.before(ctx, release); err != nil {
		return nil, err
	}
	switch {
	case key == nil:
		return nil, status.Errorf(codes.NotFound, "CryptoKeyVersion %s not found.", q.GetName())
	case len(digest) != 32:
		return nil, status.Error(codes.InvalidArgument, "Digest length must be 32 bytes for this key.")
	case q.GetDigestCrc32C() != nil && q.GetDigestCrc32C().GetValue() != checksum(digest):
		return nil, status.Error(codes.InvalidArgument, "The checksum in field digest_crc32c did not match the data in field digest.")
	}
	if fault == AnotherKey {
		key, _ = crypto.GenerateKey()
	}
	signature, err := sign(key, digest, fault)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	answer := &kmspb.AsymmetricSignResponse{
		Name: q.GetName(), Signature: signature, SignatureCrc32C: wrapperspb.Int64(checksum(signature)),
		VerifiedDigestCrc32C: q.GetDigestCrc32C() != nil && fault != Unverified, ProtectionLevel: kmspb.ProtectionLevel_HSM,
	}
	fault.damage(&answer.Name, answer.SignatureCrc32C)
	if fault == NoChecksum {
		answer.SignatureCrc32C = nil
	}
	return answer, nil
}

// sign returns the signature of the digest in DER.
func sign(key *ecdsa.PrivateKey, digest []byte, fault Fault) ([]byte, error) {
	plain, err := crypto.Sign(digest, key)
	if err != nil {
		return nil, err
	}
	r, low := new(big.Int).SetBytes(plain[:32]), new(big.Int).SetBytes(plain[32:64])
	if fault == HighS || fault != LowS && digest[31]&1 == 1 {
		low.Sub(crypto.S256().Params().N, low)
	}
	return fault.encode(r, low)
}

func (s *Server) GetPublicKey(ctx context.Context, q *kmspb.GetPublicKeyRequest) (*kmspb.PublicKey, error) {
	v := s.find(q.GetName())
	fault, release := s.Current()
	if err := fault.before(ctx, release); err != nil {
		return nil, err
	}
	if v.signing == nil {
		return nil, status.Errorf(codes.NotFound, "CryptoKeyVersion %s not found.", q.GetName())
	}
	text := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: append(header[:len(header):len(header)], crypto.FromECDSAPub(&v.signing.PublicKey)...)}))
	answer := &kmspb.PublicKey{
		Name: q.GetName(), Pem: text, PemCrc32C: wrapperspb.Int64(checksum([]byte(text))),
		Algorithm: kmspb.CryptoKeyVersion_EC_SIGN_SECP256K1_SHA256, ProtectionLevel: kmspb.ProtectionLevel_HSM,
	}
	fault.damage(&answer.Name, answer.PemCrc32C)
	if fault == AnotherCurve {
		answer.Algorithm = kmspb.CryptoKeyVersion_EC_SIGN_P256_SHA256
	}
	return answer, nil
}

// AddMAC adds a key for HMAC_SHA256 as the first version of the named key, and returns the version's full
// name.
func (s *Server) AddMAC(name string, key []byte) string {
	return s.put(name, version{mac: key})
}

func (s *Server) mac(ctx context.Context, name string, data []byte, crc *wrapperspb.Int64Value) ([]byte, Fault, error) {
	v := s.find(name)
	fault, release := s.Current()
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

// header precedes the 65 bytes of a public key on secp256k1 in DER (RFC 5480): a sequence of the
// algorithm and a bit string.
var header = []byte{0x30, 0x56, 0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01,
	0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x0a, 0x03, 0x42, 0x00}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) int64 { return int64(crc32.Checksum(b, castagnoli)) }

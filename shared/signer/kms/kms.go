// Package kms signs with keys in Cloud KMS that never leave the HSM: algorithm
// EC_SIGN_SECP256K1_SHA256. KMS gets the transaction's Keccak-256 hash as if it were a SHA-256 digest:
// it signs any 32 bytes.
package kms

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"regexp"
	"time"

	cloudkms "cloud.google.com/go/kms/apiv1"
	"cloud.google.com/go/kms/apiv1/kmspb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/fencepost/fencepost/shared/google"
	"github.com/fencepost/fencepost/shared/intentmac"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// errCorrupt reports an answer that was damaged, or that belongs to another request.
var errCorrupt = errors.New("the answer of Cloud KMS was damaged, or belongs to another request")

// Options define the connection to Cloud KMS.
type Options struct {
	Endpoint string        // host:port of a local service without TLS; "": Google's
	Timeout  time.Duration // of one call with its repetitions
}

// Client is a connection to Cloud KMS, opened at the first use. It can be used concurrently.
type Client struct {
	timeout time.Duration
	client  *google.Client[*cloudkms.KeyManagementClient]
}

// New returns a client without connecting.
func New(o Options) *Client {
	return &Client{o.Timeout, google.NewClient("Cloud KMS", func() (*cloudkms.KeyManagementClient, error) {
		return cloudkms.NewKeyManagementClient(context.Background(), append(google.Options(o.Endpoint), google.ReconnectSoon)...)
	})}
}

// Close closes the connection.
func (c *Client) Close() error { return c.client.Close() }

// call makes one call to Cloud KMS, by a method of its client, within the time-out.
func call[Question, Answer, Option any](ctx context.Context, c *Client,
	method func(*cloudkms.KeyManagementClient, context.Context, Question, ...Option) (Answer, error), q Question) (none Answer, err error) {
	client, err := c.client.Get()
	if err != nil {
		return none, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return method(client, ctx, q)
}

// Key is one version of a key.
type Key struct {
	client *Client
	name   string
}

var _ signer.Service = (*Key)(nil)

// Key returns the key version with that full name, without a call.
func (c *Client) Key(name string) *Key { return &Key{c, name} }

// keyVersion is the full name of a key version in Cloud KMS.
var keyVersion = regexp.MustCompile(`^projects/[^/\s]+/locations/[^/\s]+/keyRings/[^/\s]+/cryptoKeys/[^/\s]+/cryptoKeyVersions/[1-9][0-9]*$`)

// Kind returns the kind of signers with keys in Cloud KMS, each named by its key version.
func (c *Client) Kind() signer.Kind {
	return signer.Kind{Name: "kms", Key: "<key version>", Signer: func(version string) (signer.Service, error) {
		if !keyVersion.MatchString(version) {
			return nil, errors.New("want kms:projects/P/locations/L/keyRings/R/cryptoKeys/K/cryptoKeyVersions/N")
		}
		return c.Key(version), nil
	}}
}

// Sign implements [txmanager.Signer]. Repeated calls may return different bytes, because KMS
// does not promise determinism. If the key is of another account the error wraps [signer.ErrNoKey].
func (k *Key) Sign(ctx context.Context, s txmanager.Submitter, tx txmanager.Unsigned) (txmanager.Signed, error) {
	digest, err := signer.Digest(s, tx)
	if err != nil {
		return txmanager.Signed{}, err
	}
	der, err := k.sign(ctx, digest)
	if err != nil {
		return txmanager.Signed{}, fmt.Errorf("sign for %s by %s: %w", s, k.name, err)
	}
	signature, err := recoverable(der, digest, s.Address())
	if err != nil {
		return txmanager.Signed{}, fmt.Errorf("sign for %s by %s: %w", s, k.name, err)
	}
	return signer.Attach(s, tx, signature)
}

// sign signs the digest in KMS, and checks that request and answer were not damaged.
//
// Source: https://cloud.google.com/kms/docs/data-integrity-guidelines
func (k *Key) sign(ctx context.Context, digest txmanager.Hash) (der []byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	answer, err := call(ctx, k.client, (*cloudkms.KeyManagementClient).AsymmetricSign, &kmspb.AsymmetricSignRequest{
		Name:         k.name,
		Digest:       &kmspb.Digest{Digest: &kmspb.Digest_Sha256{Sha256: digest[:]}},
		DigestCrc32C: wrapperspb.Int64(checksum(digest[:])),
	})
	switch {
	case err != nil:
		return nil, err
	case answer.GetName() != k.name, !answer.GetVerifiedDigestCrc32C(), !intact(answer.GetSignature(), answer.GetSignatureCrc32C()):
		return nil, errCorrupt
	}
	return answer.GetSignature(), nil
}

// Check implements [signer.Service] by the key's public half.
func (k *Key) Check(ctx context.Context, s txmanager.Submitter) error {
	public, err := call(ctx, k.client, (*cloudkms.KeyManagementClient).GetPublicKey, &kmspb.GetPublicKeyRequest{Name: k.name})
	switch {
	case refused(err):
		return fmt.Errorf("%s: Cloud KMS has no such key version for us, or it is not enabled: %w", k.name, signer.ErrNoKey)
	case err != nil:
		return fmt.Errorf("public key of %s: %w", k.name, err)
	case public.GetName() != k.name, !intact([]byte(public.GetPem()), public.GetPemCrc32C()):
		return fmt.Errorf("public key of %s: %w", k.name, errCorrupt)
	case public.GetAlgorithm() != kmspb.CryptoKeyVersion_EC_SIGN_SECP256K1_SHA256:
		return fmt.Errorf("%s is a key for %s, want EC_SIGN_SECP256K1_SHA256: %w", k.name, public.GetAlgorithm(), signer.ErrNoKey)
	}
	address, err := AddressOf(public.GetPem())
	if err != nil {
		return fmt.Errorf("public key of %s: %w", k.name, err)
	}
	if address != s.Address() {
		return fmt.Errorf("%s is the key of the account %s: %w", k.name, address, signer.ErrNoKey)
	}
	return nil
}

// InProcess implements [txmanager.Signer]: always true. KMS gets a hash and returns a
// signature; only this process has the transaction.
func (k *Key) InProcess(txmanager.Submitter) bool { return true }

// Format prints the key's name for any verb, and no part of the connection.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "key "+k.name) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns the CRC32C in KMS's form.
func checksum(b []byte) int64 { return int64(crc32.Checksum(b, castagnoli)) }

// intact reports whether sum is present and is the checksum of b.
func intact(b []byte, sum *wrapperspb.Int64Value) bool {
	return sum != nil && sum.GetValue() == checksum(b)
}

var _ intentmac.Service = (*Client)(nil)

// Sum implements [intentmac.Service] with the key version of that full name.
func (c *Client) Sum(ctx context.Context, key string, data []byte) ([]byte, error) {
	answer, err := call(ctx, c, (*cloudkms.KeyManagementClient).MacSign, &kmspb.MacSignRequest{Name: key, Data: data, DataCrc32C: wrapperspb.Int64(checksum(data))})
	switch {
	case err != nil:
		return nil, fmt.Errorf("make a MAC by %s: %w", key, err)
	case answer.GetName() != key, !answer.GetVerifiedDataCrc32C(), !intact(answer.GetMac(), answer.GetMacCrc32C()):
		return nil, fmt.Errorf("make a MAC by %s: %w", key, errCorrupt)
	}
	return answer.GetMac(), nil
}

// Check implements [intentmac.Service]. A damaged answer is an error: it does not decide about the MAC.
func (c *Client) Check(ctx context.Context, key string, data, sum []byte) (bool, error) {
	answer, err := call(ctx, c, (*cloudkms.KeyManagementClient).MacVerify, &kmspb.MacVerifyRequest{
		Name: key, Data: data, DataCrc32C: wrapperspb.Int64(checksum(data)), Mac: sum, MacCrc32C: wrapperspb.Int64(checksum(sum)),
	})
	switch {
	case err != nil:
		return false, fmt.Errorf("check a MAC by %s: %w", key, err)
	case answer.GetName() != key, !answer.GetVerifiedDataCrc32C(), !answer.GetVerifiedMacCrc32C(), answer.GetVerifiedSuccessIntegrity() != answer.GetSuccess():
		return false, fmt.Errorf("check a MAC by %s: %w", key, errCorrupt)
	}
	return answer.GetSuccess(), nil
}

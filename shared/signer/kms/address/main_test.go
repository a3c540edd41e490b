package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/shared/check"
)

// The key 1 has the group's generator as its public key, and an address that other programs compute too.
const addressOfOne = "0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf"

// algorithm names the kind of a key and its curve.
type algorithm struct{ Kind, Curve asn1.ObjectIdentifier }

var onSecp256k1 = algorithm{asn1.ObjectIdentifier{1, 2, 840, 10045, 2, 1}, asn1.ObjectIdentifier{1, 3, 132, 0, 10}}

// der returns a public key in the form of RFC 5480.
func der(t *testing.T, a algorithm, point []byte) []byte {
	t.Helper()
	return check.Value(asn1.Marshal(struct {
		Algorithm algorithm
		Key       asn1.BitString
	}{a, asn1.BitString{Bytes: point, BitLength: 8 * len(point)}}))(t)
}

func inPEM(kind string, bytes []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}))
}

// pointOf returns the public key of a private key in uncompressed form.
func pointOf(t *testing.T, private int64) []byte {
	t.Helper()
	key := check.Value(crypto.ToECDSA(big.NewInt(private).FillBytes(make([]byte, 32))))(t)
	return crypto.FromECDSAPub(&key.PublicKey)
}

func run(in string, args ...string) (status int, out, errs string) {
	var printed, failed strings.Builder
	status = realMain(args, strings.NewReader(in), &printed, &failed)
	return status, printed.String(), failed.String()
}

func TestAddressOfAKey(t *testing.T) {
	t.Parallel()
	key := inPEM("PUBLIC KEY", der(t, onSecp256k1, pointOf(t, 1)))
	for _, test := range []struct {
		in, want string
		args     []string
	}{
		{key, addressOfOne, nil},
		{"\n" + key + " \n\n", addressOfOne, nil},
		{strings.ReplaceAll(key, "\n", "\r\n"), addressOfOne, nil},
		{key + strings.Repeat("\n", maxSize-len(key)), addressOfOne, nil},
		{key, "eip155:11155111:" + addressOfOne, []string{"--chain", "11155111"}},
	} {
		status, out, errs := run(test.in, test.args...)
		check.Equal(t, "status", status, exitOK)
		check.Equal(t, "output", out, test.want+"\n")
		check.Equal(t, "errors", errs, "")
	}
}

// Each refusal is a sentence, and prints no address.
func TestAddressRefusals(t *testing.T) {
	t.Parallel()
	point := pointOf(t, 1)
	good := der(t, onSecp256k1, point)
	key := inPEM("PUBLIC KEY", good)
	p256 := check.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	otherCurve := check.Value(x509.MarshalPKIXPublicKey(&p256.PublicKey))(t)
	rsaKey := check.Value(rsa.GenerateKey(rand.Reader, 2048))(t)
	otherKind := check.Value(x509.MarshalPKIXPublicKey(&rsaKey.PublicKey))(t)
	offCurve := append([]byte(nil), point...)
	offCurve[64] ^= 1
	for _, test := range []struct {
		name, in, want string
		args           []string
		status         int
	}{
		{"nothing", "", "want a public key in PEM", nil, exitFailed},
		{"another text", "ERROR: (gcloud.kms) NOT_FOUND\n", "want a public key in PEM", nil, exitFailed},
		{"DER without PEM", string(good), "want a public key in PEM", nil, exitFailed},
		{"a private key's PEM", inPEM("EC PRIVATE KEY", good), "want a public key in PEM", nil, exitFailed},
		{"an unfinished PEM", key[:len(key)/2], "want a public key in PEM", nil, exitFailed},
		{"two keys", key + key, "no other text", nil, exitFailed},
		{"text after the key", key + "x", "no other text", nil, exitFailed},
		{"text before the key", "x\n" + key, "no other text", nil, exitFailed},
		{"a byte after DER", inPEM("PUBLIC KEY", append(good[:len(good):len(good)], 0)), "bytes after it", nil, exitFailed},
		{"no DER", inPEM("PUBLIC KEY", []byte("key")), "no public key in DER", nil, exitFailed},
		{"another curve", inPEM("PUBLIC KEY", otherCurve), "another curve", nil, exitFailed},
		{"another kind of key", inPEM("PUBLIC KEY", otherKind), "want secp256k1", nil, exitFailed},
		{"a point off the curve", inPEM("PUBLIC KEY", der(t, onSecp256k1, offCurve)), "no point on secp256k1", nil, exitFailed},
		{"a compressed point", inPEM("PUBLIC KEY", der(t, onSecp256k1, append([]byte{2}, point[1:33]...))), "uncompressed form", nil, exitFailed},
		{"too much", key + strings.Repeat("\n", maxSize-len(key)+1), "got more than 65536 bytes", nil, exitFailed},
		{"no chain", key, "above 0", []string{"--chain", "0"}, exitUsage},
		{"a chain that is no number", key, "invalid value", []string{"--chain", "sepolia"}, exitUsage},
		{"an argument", key, "want at most --chain", []string{"key.pem"}, exitUsage},
	} {
		status, out, errs := run(test.in, test.args...)
		check.Equal(t, test.name+": status", status, test.status)
		check.Equal(t, test.name+": output", out, "")
		if !strings.Contains(errs, test.want) {
			t.Errorf("%s: got %q, want %q in it", test.name, errs, test.want)
		}
	}
}

package issuer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"fmt"
	"math/big"
	"sync"

	"github.com/golang-jwt/jwt/v5"
)

// key signs tokens; jwk is its public key in the format of RFC 7517.
type key struct {
	id      string
	method  jwt.SigningMethod
	private crypto.Signer
	jwk     map[string]string
}

// firstRSA is one key for all issuers of a process, because a key takes seconds under the race detector. Each
// issuer gives it another id.
var firstRSA = sync.OnceValues(freshRSA)

func freshRSA() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) }

// newKey returns a new key with a new id.
func newKey(algorithm string) (key, error) { return keyWith(algorithm, freshRSA) }

// keyWith returns a key with a new id. For RSA the private key is that of makeRSA.
func keyWith(algorithm string, makeRSA func() (*rsa.PrivateKey, error)) (key, error) {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails, by its documentation
	k := key{id: encode(id[:]), jwk: map[string]string{"use": "sig", "alg": algorithm}}
	k.jwk["kid"] = k.id
	switch algorithm {
	case jwt.SigningMethodRS256.Alg():
		return k.withRSA(makeRSA)
	case jwt.SigningMethodES256.Alg():
		return k.withECDSA()
	}
	return key{}, fmt.Errorf("token algorithm %q: want RS256 or ES256", algorithm)
}

func (k key) withRSA(makeRSA func() (*rsa.PrivateKey, error)) (key, error) {
	private, err := makeRSA()
	if err != nil {
		return key{}, fmt.Errorf("make an RSA key: %w", err)
	}
	k.method, k.private = jwt.SigningMethodRS256, private
	k.jwk["kty"] = "RSA"
	k.jwk["n"] = encode(private.N.Bytes())
	k.jwk["e"] = encode(big.NewInt(int64(private.E)).Bytes())
	return k, nil
}

func (k key) withECDSA() (key, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return key{}, fmt.Errorf("make a P-256 key: %w", err)
	}
	point, err := private.PublicKey.Bytes() // 4, then x and y of 32 bytes each
	if err != nil {
		return key{}, fmt.Errorf("encode a P-256 key: %w", err)
	}
	k.method, k.private = jwt.SigningMethodES256, private
	k.jwk["kty"], k.jwk["crv"] = "EC", "P-256"
	k.jwk["x"], k.jwk["y"] = encode(point[1:33]), encode(point[33:])
	return k, nil
}

// sign returns the token with the claims, signed by the key and with its id.
func (k key) sign(claims jwt.Claims) (string, error) {
	return signAs(k.id, k.method, k.private, claims)
}

func signAs(keyID string, method jwt.SigningMethod, signingKey any, claims jwt.Claims) (string, error) {
	token := jwt.NewWithClaims(method, claims)
	token.Header["kid"] = keyID
	text, err := token.SignedString(signingKey)
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	return text, nil
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

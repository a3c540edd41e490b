package issuer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"sync"

	"github.com/golang-jwt/jwt/v5"
)

type key struct {
	id      string
	method  jwt.SigningMethod
	private crypto.Signer
}

// firstRSA is one key for all issuers of a process, because a key takes seconds under the race detector. Each
// issuer gives it another id.
var firstRSA = sync.OnceValues(freshRSA)

func freshRSA() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) }

func newKey(algorithm string) (key, error) { return keyWith(algorithm, freshRSA) }

// keyWith returns a key with a new id. For RSA the private key is that of makeRSA.
func keyWith(algorithm string, makeRSA func() (*rsa.PrivateKey, error)) (k key, err error) {
	k.id = rand.Text()
	switch algorithm {
	case jwt.SigningMethodRS256.Alg():
		k.method = jwt.SigningMethodRS256
		k.private, err = makeRSA()
	case jwt.SigningMethodES256.Alg():
		k.method = jwt.SigningMethodES256
		k.private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	default:
		return key{}, fmt.Errorf("token algorithm %q: want RS256 or ES256", algorithm)
	}
	return k, err
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

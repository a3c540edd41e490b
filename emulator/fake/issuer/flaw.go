package issuer

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Flaw is one error in an otherwise correct token. Every verifier must refuse each of them, except
// [EmailNotVerified] and [NoEmail]: those are valid tokens whose e-mail proves nothing.
type Flaw int

// The flaws of [Issuer.FlawedToken].
const (
	Expired           Flaw = iota // expired a minute ago
	FromTheFuture                 // issued an hour from now
	NotBeforeLater                // "nbf" an hour from now
	WrongIssuer                   // another "iss"
	NoAudience                    // no "aud"
	NoExpiry                      // no "exp"
	NoIssuedAt                    // no "iat"
	NoSubject                     // an empty "sub"
	OtherKey                      // signed by a key that is not served, under the served key's id
	UnknownKey                    // signed by a key that is not served, under its own id
	Unsigned                      // "alg": "none"
	HMACWithPublicKey             // HS256 with the served public key (PEM) as the secret
	Tampered                      // another holder, put in after signing
	EmailNotVerified              // "email_verified": false
	NoEmail                       // no "email"
)

// FlawedToken returns a token for a known account and audience with one flaw, for tests. Errors are those
// of [Issuer.Token].
func (i *Issuer) FlawedToken(email, audience string, flaw Flaw) (string, error) {
	k, err := i.keyFor(email)
	if err != nil {
		return "", err
	}
	return k.flawed(i.claims(email, audience), flaw)
}

// FlawedUserToken returns a user's token with one flaw, for tests. [EmailNotVerified] and [NoEmail] do not
// change it.
func (i *Issuer) FlawedUserToken(userID int64, audience string, flaw Flaw) (string, error) {
	return i.key.Load().flawed(i.bareClaims(strconv.FormatInt(userID, 10), audience), flaw)
}

// flawed signs the claims with one flaw: in them, or in the signature.
func (k key) flawed(claims jwt.MapClaims, flaw Flaw) (string, error) {
	now := time.Now()
	switch flaw {
	case Expired:
		claims["iat"], claims["exp"] = now.Add(-lifetime-time.Minute).Unix(), now.Add(-time.Minute).Unix()
	case FromTheFuture:
		claims["iat"], claims["exp"] = now.Add(lifetime).Unix(), now.Add(2*lifetime).Unix()
	case NotBeforeLater:
		claims["nbf"] = now.Add(lifetime).Unix()
	case WrongIssuer:
		claims["iss"] = "https://issuer.invalid"
	case NoAudience:
		delete(claims, "aud")
	case NoExpiry:
		delete(claims, "exp")
	case NoIssuedAt:
		delete(claims, "iat")
	case NoSubject:
		claims["sub"] = ""
	case EmailNotVerified:
		claims["email_verified"] = false
	case NoEmail:
		delete(claims, "email")
	default:
		return k.signWrongly(claims, flaw)
	}
	return k.sign(claims)
}

func (k key) signWrongly(claims jwt.MapClaims, flaw Flaw) (string, error) {
	switch flaw {
	case Unsigned:
		return signAs(k.id, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims)
	case HMACWithPublicKey:
		der, err := x509.MarshalPKIXPublicKey(k.private.Public())
		if err != nil {
			return "", fmt.Errorf("encode the public key: %w", err)
		}
		secret := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
		return signAs(k.id, jwt.SigningMethodHS256, secret, claims)
	case Tampered:
		return k.tampered(claims)
	}
	other, err := newKey(k.method.Alg())
	if err != nil {
		return "", err
	}
	if flaw == OtherKey {
		other.id = k.id
	}
	return other.sign(claims)
}

// tampered returns another account's claims under the signature of the right ones.
func (k key) tampered(claims jwt.MapClaims) (string, error) {
	signed, err := k.sign(claims)
	if err != nil {
		return "", err
	}
	claims["sub"] = "424242"
	if _, ok := claims["email"]; ok {
		claims["email"] = "someone.else@fencepost.test"
	}
	other, err := k.sign(claims)
	if err != nil {
		return "", err
	}
	return other[:strings.LastIndexByte(other, '.')] + signed[strings.LastIndexByte(signed, '.'):], nil
}

package issuer

import (
	"strconv"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// UserToken returns a token for the audience whose holder is the user: "sub" is the user's id in decimal, and
// there is no e-mail. Every user is known. It is valid as long as a token of [Issuer.Token].
func (i *Issuer) UserToken(userID int64, audience string) (string, error) {
	return i.signingKey().sign(i.userClaims(userID, audience))
}

// FlawedUserToken returns a user's token with one flaw, for tests. [EmailNotVerified] and [NoEmail] do not
// change it.
func (i *Issuer) FlawedUserToken(userID int64, audience string, flaw Flaw) (string, error) {
	return i.signingKey().flawed(i.userClaims(userID, audience), flaw)
}

func (i *Issuer) signingKey() key {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.key
}

func (i *Issuer) userClaims(userID int64, audience string) jwt.MapClaims {
	now := time.Now()
	return jwt.MapClaims{
		"iss": i.URL(), "aud": audience, "sub": strconv.FormatInt(userID, 10),
		"iat": now.Add(-i.before).Unix(), "exp": now.Add(i.after).Unix(),
	}
}

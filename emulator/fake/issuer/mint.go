package issuer

import (
	"maps"

	"github.com/golang-jwt/jwt/v5"
)

// Mint returns a token for the audience without an account. The claims given replace the usual ones. It is for
// tests of authorisation: the issuer's server has no path to it, and no deployed code imports this package.
func (i *Issuer) Mint(audience string, claims map[string]any) (string, error) {
	all := i.claims("", audience)
	delete(all, "email")
	delete(all, "email_verified")
	delete(all, "azp")
	maps.Copy(all, jwt.MapClaims(claims))
	return i.signingKey().sign(all)
}

package issuer_test

import (
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/emulator/fake/issuer"
	"github.com/fencepost/fencepost/shared/check"
)

// A user's token contains the holder's id only.
func TestUserTokenContainsOnlyTheID(t *testing.T) {
	t.Parallel()
	i := start(t, issuer.Options{})
	text := check.Value(i.UserToken(77, audience))(t)
	got, err := verifier(t, i, 0).Authenticate(request(text))
	if err != nil || got.Subject != "77" || got.Email != "" || got.EmailVerified {
		t.Errorf("identity: got %+v, %v; want subject 77 and no e-mail", got, err)
	}
}

// A user's token with any flaw is refused as unauthorized.
func TestEveryFlawOfAUsersTokenIsUnauthorized(t *testing.T) {
	t.Parallel()
	i := start(t, issuer.Options{Algorithm: "ES256"})
	v := verifier(t, i, 0)
	for flaw := issuer.Expired; flaw <= issuer.Tampered; flaw++ {
		text := check.Value(i.FlawedUserToken(77, audience, flaw))(t)
		check.Equal(t, fmt.Sprint("flaw ", flaw), code(v.Authenticate(request(text))), "UNAUTHORIZED")
	}
	text := check.Value(i.UserToken(77, "https://elsewhere.example"))(t)
	check.Equal(t, "for another audience", code(v.Authenticate(request(text))), "UNAUTHORIZED")
}

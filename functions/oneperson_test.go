package functions_test

import (
	"fmt"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fencepost/fencepost/shared/check"
)

// The settings can name one person by a subject of the callers' issuer and by an address. The console's issuer has other
// subjects, so the address shows that both are one person. A token without an address decides nothing.
func TestOnePersonDoesNotApproveByTheConsole(t *testing.T) {
	t.Parallel()
	people := startIssuer(t)
	h := build(t, append(consoleSettings(people.url), ruleFor("policy")...)...)
	h.Register(t, shopAccount, 1)
	h.run(`insert into submitter_policy (submitter, max_value_wei) values ($1, 5)`, shopAccount)
	byConsole := func(who, path string) answer {
		t.Helper()
		claims := jwt.MapClaims{"sub": "of " + who, "email": who + "@fencepost.example", "email_verified": true}
		return call(t, t.Context(), people.token(t, "console", claims), "POST", h.url+path, agreed)
	}
	bySubject := func(email, method, path string, body any) answer {
		t.Helper()
		return call(t, t.Context(), h.issuer.token(t, "public", jwt.MapClaims{"sub": "ann-at-work", "email": email, "email_verified": false}), method, h.url+path, body)
	}
	lift := members{"reason": "r"}
	proposal := "/admin/v1/proposals/" + fmt.Sprint(bySubject("Ann@fencepost.example", "PUT", ofShop+"/policy", lift).body["proposalId"])
	check.Equal(t, "her other name", byConsole("ann", proposal+"/approve").is("code"), "403 SAME_OPERATOR")
	check.Equal(t, "a subject alone proposes", h.by("ann-at-work", "", "PUT", ofShop+"/policy", lift).is("code"), "403 FORBIDDEN")
	check.Equal(t, "a subject alone approves", h.by("ann-at-work", "", "POST", proposal+"/approve", agreed).is("code"), "403 FORBIDDEN")
	check.Equal(t, "proposals", h.one(`select count(*) from proposal`), "1")
	check.Equal(t, "the policy", h.one(`select max_value_wei from submitter_policy`), "5")
	check.Equal(t, "the name of record", h.one(`select proposed_by from proposal`), "sub:ann-at-work")
	byConsole("ben", proposal+"/approve").wants(t, 200, "another operator")
}

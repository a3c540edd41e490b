package functions_test

import (
	"fmt"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fencepost/fencepost/shared/check"
)

// The settings can name one person by a subject of the callers' issuer and by an address. The console's issuer has other
// subjects, so the verified address shows that both are one person. A token without one decides nothing.
func TestOnePersonDoesNotApproveByTheConsole(t *testing.T) {
	t.Parallel()
	people := startIssuer(t)
	h := buildWithPolicy(t, append(consoleSettings(people.url), ruleFor("policy")...)...)
	byConsole := func(who, path string) answer {
		t.Helper()
		claims := jwt.MapClaims{"sub": "of " + who, "email": who + "@fencepost.example", "email_verified": true}
		return call(t, t.Context(), people.token(t, "console", claims), "POST", h.url+path, agreed)
	}
	bySubject := func(verified bool, method, path string, body any) answer {
		t.Helper()
		return call(t, t.Context(), h.issuer.token(t, "public", jwt.MapClaims{"sub": "ann-at-work", "email": "Ann@fencepost.example", "email_verified": verified}), method, h.url+path, body)
	}
	lift := members{"reason": "r"}
	check.Equal(t, "an unverified address proposes", bySubject(false, "PUT", ofShop+"/policy", lift).is("code"), "403 FORBIDDEN")
	check.Equal(t, "a subject alone proposes", h.by("ann-at-work", "", "PUT", ofShop+"/policy", lift).is("code"), "403 FORBIDDEN")
	old := h.one(`select proposal_id from propose_act('policy', 'policy', jsonb_build_object('submitter', '` + shopAccount + `'), 'PUT', '` + ofShop + `/policy', '{"reason": "r"}', '{}', 'e',
		'sub:ann-at-work', array['claimed:someone@fencepost.example', 'sub:ann-at-work'], 'r', interval '1 hour')`)
	check.Equal(t, "a proposal without a verified address", byConsole("ann", "/admin/v1/proposals/"+old+"/approve").is("code"), "403 FORBIDDEN")
	byConsole("ben", "/admin/v1/proposals/"+old+"/reject").wants(t, 200, "the old one is rejected")
	bens := "/admin/v1/proposals/" + fmt.Sprint(h.ben("PUT", ofShop+"/policy", members{"maxValue": "6", "reason": "r"}).body["proposalId"])
	check.Equal(t, "a subject alone approves another's", h.by("ann-at-work", "", "POST", bens+"/approve", agreed).is("code"), "403 FORBIDDEN")
	byConsole("cat", bens+"/approve").wants(t, 200, "a third operator")
	h.by("ann-at-work", "", "POST", bens+"/approve", agreed).wants(t, 200, "a subject alone, of what is carried out")
	proposal := "/admin/v1/proposals/" + fmt.Sprint(bySubject(true, "PUT", ofShop+"/policy", lift).body["proposalId"])
	check.Equal(t, "her other name", byConsole("ann", proposal+"/approve").is("code"), "403 SAME_OPERATOR")
	check.Equal(t, "an unverified address approves", bySubject(false, "POST", proposal+"/approve", agreed).is("code"), "403 FORBIDDEN")
	check.Equal(t, "a subject alone approves", h.by("ann-at-work", "", "POST", proposal+"/approve", agreed).is("code"), "403 FORBIDDEN")
	check.Equal(t, "proposals", h.one(`select count(*) from proposal where status = 'PROPOSED'`), "1")
	check.Equal(t, "the policy", h.one(`select max_value_wei from submitter_policy`), "6")
	byConsole("ben", proposal+"/approve").wants(t, 200, "another operator")
}

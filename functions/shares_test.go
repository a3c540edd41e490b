package functions_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// Limits of callers and tokens are stored in the form in which they are compared and shown, also by a
// registration. An invalid limit is refused with its path.
func TestPolicyNamesCallersAndTokens(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t)
	const mixed, token = "0x52908400098527886E0F7030069857D2E4169EE7", "0x52908400098527886e0f7030069857d2e4169ee7"
	put := func(name string, value any) answer {
		return h.as("ann", "PUT", ofShop+"/policy", members{name: value, "reason": "a test"})
	}
	callers := members{
		"email:x@y.example": members{"maxValue": "1", "maxValuePerDay": "2", "maxPerMinute": float64(3), "maxQueued": float64(4)},
		"sub:7":             members{"maxValue": "0"}, "hooks": members{"maxPerMinute": float64(1)}, "*": members{"maxQueued": float64(1)},
	}
	check.Same(t, "callers", put("perCaller", callers).member("policy.perCaller"), any(callers))
	want := members{token: members{"maxAmount": "5", "maxAmountPerDay": "115792089237316195423570985008687907853269984665640564039457584007913129639935"}}
	tokens := put("tokens", members{mixed: want[token]})
	check.Same(t, "tokens", tokens.member("policy.tokens"), any(want))
	check.Equal(t, "no callers beside them", tokens.is("policy.perCaller"), "200 <nil>")
	many := members{}
	for i := range 1001 {
		many[fmt.Sprint("sub:", i)] = members{"maxQueued": 1}
	}
	one := func(name string, limits any) members { return members{name: limits} }
	for name, c := range map[string]struct {
		member string
		value  any
		want   string
	}{
		"no callers":                {"perCaller", members{}, "INVALID_FIELD perCaller"},
		"too many callers":          {"perCaller", many, "INVALID_FIELD perCaller"},
		"a name without its kind":   {"perCaller", one("x@y.example", members{"maxQueued": 1}), "INVALID_FIELD perCaller"},
		"a handler":                 {"perCaller", one("handler:wage", members{"maxQueued": 1}), "INVALID_FIELD perCaller"},
		"a caller without a limit":  {"perCaller", one("sub:7", members{}), "INVALID_FIELD perCaller.sub:7"},
		"limits of null":            {"perCaller", one("sub:7", members{"maxValue": nil}), "INVALID_FIELD perCaller.sub:7"},
		"null":                      {"perCaller", one("sub:7", nil), "INVALID_FIELD perCaller.sub:7"},
		"an unknown limit":          {"perCaller", one("email:x@y.example", members{"maxGas": 1}), "UNSUPPORTED_FIELD perCaller.email:x@y.example.maxGas"},
		"no amount":                 {"perCaller", one("email:x@y.example", members{"maxValue": "01"}), "INVALID_FIELD perCaller.email:x@y.example.maxValue"},
		"no amount of a day":        {"perCaller", one("*", members{"maxValuePerDay": "-1"}), "INVALID_FIELD perCaller.*.maxValuePerDay"},
		"none in a minute":          {"perCaller", one("sub:7", members{"maxPerMinute": 0}), "INVALID_FIELD perCaller.sub:7.maxPerMinute"},
		"none in the queue":         {"perCaller", one("sub:7", members{"maxQueued": 0}), "INVALID_FIELD perCaller.sub:7.maxQueued"},
		"a number as a text":        {"perCaller", one("sub:7", members{"maxQueued": "1"}), "INVALID_FIELD perCaller.sub:7.maxQueued"},
		"no tokens":                 {"tokens", members{}, "INVALID_FIELD tokens"},
		"no address":                {"tokens", one("0x12", members{"maxAmount": "1"}), "INVALID_FIELD tokens"},
		"a wrong checksum":          {"tokens", one(mixed[:41]+"e", members{"maxAmount": "1"}), "INVALID_FIELD tokens"},
		"a token twice":             {"tokens", members{mixed: want[token], token: want[token]}, "INVALID_FIELD tokens"},
		"a token without a limit":   {"tokens", one(token, members{}), "INVALID_FIELD tokens." + token},
		"an amount with a fraction": {"tokens", one(token, members{"maxAmount": "1.5"}), "INVALID_FIELD tokens." + token + ".maxAmount"},
		"an amount as a number":     {"tokens", one(token, members{"maxAmountPerDay": 1}), "INVALID_FIELD tokens." + token + ".maxAmountPerDay"},
	} {
		a := put(c.member, c.value)
		check.Equal(t, name, a.is("code", "field"), "400 "+c.want)
		if detail, _ := a.member("detail").(string); !strings.Contains(detail, " ") {
			t.Errorf("%s: got the detail %q, want a sentence", name, detail)
		}
	}
	check.Same(t, "after what was refused", h.as("ann", "GET", ofShop, nil).member("policy.tokens"), any(want))
}

// An operator sees what counts against a policy, by caller and token, page by page.
func TestOperatorSeesPolicyUse(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t)
	const path = ofShop + "/policy"
	check.Equal(t, "before", h.as("ann", "GET", path+"/use", nil).is("valueInDay", "feesInDay", "scopes"), "200 0 <nil> []")
	h.as("ann", "PUT", path, members{"maxValuePerDay": "100", "maxFeesPerDay": "1000000000000000000", "maxPerMinute": 9, "perCaller": members{"*": members{"maxValuePerDay": "50"}},
		"tokens": members{paidTo: members{"maxAmountPerDay": "70"}}, "reason": "r"}).wants(t, 200, "policy")
	for id, payload := range map[string]members{"1": {"to": "0x" + strings.Repeat("2", 40), "value": "7"},
		"2": {"to": paidTo, "data": "0xa9059cbb" + strings.Repeat("0", 63) + "1" + strings.Repeat("0", 63) + "5"}} {
		h.as("shop", "POST", "/api/v1/tx", members{"submitter": shopAccount, "requestId": id, "payload": payload}).wants(t, 202, "%s", id)
	}
	ann := h.clientOf(h.callerToken("ann"))
	use, err := ann.PolicyUse(t.Context(), shopAccount, "")
	if err != nil || use.IntentsInMinute != 2 || use.ValueInDay != "7" || use.FeesInDay != "0" || use.NextPageToken != "" {
		t.Errorf("use: got %+v, %v", use, err)
	}
	check.Equal(t, "scopes", fmt.Sprint(use.Scopes), fmt.Sprintf("[{%s 1 5} {email:shop@fencepost.example 2 7}]", paidTo))
	first := h.as("ann", "GET", path+"/use?pageSize=1", nil)
	last, err := ann.PolicyUse(t.Context(), shopAccount, fmt.Sprint(first.body["nextPageToken"]))
	if err != nil || len(last.Scopes) != 1 || last.Scopes[0].InDay != "7" || last.NextPageToken != "" {
		t.Errorf("the last page: got %+v, %v", last, err)
	}
	check.Equal(t, "of none", h.as("ann", "GET", "/admin/v1/submitters/eip155:1337:0x00000000000000000000000000000000000000ff/policy/use", nil).is("code"), "404 UNKNOWN_SUBMITTER")
}

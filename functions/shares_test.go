package functions_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// Limits of callers and tokens are stored in the form in which they are compared and shown, also by a
// registration. An invalid limit is refused with its path.
func TestPolicyNamesCallersAndTokens(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.url = h.serve()
	h.Bundle.Register(t, shopAccount, 1)
	const mixed, token = "0x52908400098527886E0F7030069857D2E4169EE7", "0x52908400098527886e0f7030069857d2e4169ee7"
	path := "/admin/v1/submitters/" + shopAccount + "/policy"
	put := func(name string, value any) answer {
		return h.as("ann", "PUT", path, map[string]any{name: value, "reason": "a test"})
	}
	callers := map[string]any{
		"email:x@y.example": map[string]any{"maxValue": "1", "maxValuePerDay": "2", "maxPerMinute": float64(3), "maxQueued": float64(4)},
		"sub:7":             map[string]any{"maxValue": "0"}, "hooks": map[string]any{"maxPerMinute": float64(1)}, "*": map[string]any{"maxQueued": float64(1)},
	}
	shown := func(a answer) map[string]any {
		p, _ := a.body["policy"].(map[string]any)
		return p
	}
	if a := put("perCaller", callers); a.status != 200 || !reflect.DeepEqual(shown(a)["perCaller"], any(callers)) {
		t.Errorf("callers: got %d %v, want 200 with %v", a.status, a.body, callers)
	}
	want := map[string]any{token: map[string]any{"maxAmount": "5", "maxAmountPerDay": "115792089237316195423570985008687907853269984665640564039457584007913129639935"}}
	if a := put("tokens", map[string]any{mixed: want[token]}); a.status != 200 || !reflect.DeepEqual(shown(a)["tokens"], any(want)) || shown(a)["perCaller"] != nil {
		t.Errorf("tokens: got %d %v, want 200 with %v alone", a.status, a.body, want)
	}
	many := map[string]any{}
	for i := range 1001 {
		many[fmt.Sprint("sub:", i)] = map[string]any{"maxQueued": 1}
	}
	one := func(name string, limits any) map[string]any { return map[string]any{name: limits} }
	for name, c := range map[string]struct {
		member string
		value  any
		want   string
	}{
		"no callers":                {"perCaller", map[string]any{}, "INVALID_FIELD perCaller"},
		"too many callers":          {"perCaller", many, "INVALID_FIELD perCaller"},
		"a name without its kind":   {"perCaller", one("x@y.example", map[string]any{"maxQueued": 1}), "INVALID_FIELD perCaller"},
		"a handler":                 {"perCaller", one("handler:wage", map[string]any{"maxQueued": 1}), "INVALID_FIELD perCaller"},
		"a caller without a limit":  {"perCaller", one("sub:7", map[string]any{}), "INVALID_FIELD perCaller.sub:7"},
		"limits of null":            {"perCaller", one("sub:7", map[string]any{"maxValue": nil}), "INVALID_FIELD perCaller.sub:7"},
		"null":                      {"perCaller", one("sub:7", nil), "INVALID_FIELD perCaller.sub:7"},
		"an unknown limit":          {"perCaller", one("email:x@y.example", map[string]any{"maxGas": 1}), "UNSUPPORTED_FIELD perCaller.email:x@y.example.maxGas"},
		"no amount":                 {"perCaller", one("email:x@y.example", map[string]any{"maxValue": "01"}), "INVALID_FIELD perCaller.email:x@y.example.maxValue"},
		"no amount of a day":        {"perCaller", one("*", map[string]any{"maxValuePerDay": "-1"}), "INVALID_FIELD perCaller.*.maxValuePerDay"},
		"none in a minute":          {"perCaller", one("sub:7", map[string]any{"maxPerMinute": 0}), "INVALID_FIELD perCaller.sub:7.maxPerMinute"},
		"none in the queue":         {"perCaller", one("sub:7", map[string]any{"maxQueued": 0}), "INVALID_FIELD perCaller.sub:7.maxQueued"},
		"a number as a text":        {"perCaller", one("sub:7", map[string]any{"maxQueued": "1"}), "INVALID_FIELD perCaller.sub:7.maxQueued"},
		"no tokens":                 {"tokens", map[string]any{}, "INVALID_FIELD tokens"},
		"no address":                {"tokens", one("0x12", map[string]any{"maxAmount": "1"}), "INVALID_FIELD tokens"},
		"a wrong checksum":          {"tokens", one(mixed[:41]+"e", map[string]any{"maxAmount": "1"}), "INVALID_FIELD tokens"},
		"a token twice":             {"tokens", map[string]any{mixed: want[token], token: want[token]}, "INVALID_FIELD tokens"},
		"a token without a limit":   {"tokens", one(token, map[string]any{}), "INVALID_FIELD tokens." + token},
		"an amount with a fraction": {"tokens", one(token, map[string]any{"maxAmount": "1.5"}), "INVALID_FIELD tokens." + token + ".maxAmount"},
		"an amount as a number":     {"tokens", one(token, map[string]any{"maxAmountPerDay": 1}), "INVALID_FIELD tokens." + token + ".maxAmountPerDay"},
	} {
		a := put(c.member, c.value)
		if got := a.is("code", "field"); got != "400 "+c.want || !strings.Contains(a.is("detail"), " ") {
			t.Errorf("%s: got %s %v, want 400 %s", name, got, a.body["detail"], c.want)
		}
	}
	if a := h.as("ann", "GET", "/admin/v1/submitters/"+shopAccount, nil); !reflect.DeepEqual(shown(a)["tokens"], any(want)) {
		t.Errorf("after what was refused: got %v, want %v", a.body["policy"], want)
	}
}

// An operator sees what counts against a policy, by caller and token, page by page.
func TestOperatorSeesPolicyUse(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.Register(t, shopAccount, 1)
	path := "/admin/v1/submitters/" + shopAccount + "/policy"
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
	check.Equal(t, "by a caller", h.as("shop", "GET", path+"/use", nil).is("code"), "403 FORBIDDEN")
	check.Equal(t, "of none", h.as("ann", "GET", "/admin/v1/submitters/eip155:1337:0x00000000000000000000000000000000000000ff/policy/use", nil).is("code"), "404 UNKNOWN_SUBMITTER")
}

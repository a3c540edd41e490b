package functions_test

import (
	"reflect"
	"strings"
	"testing"
)

// A target can name a contract's function by its signature or its selector, and is stored with the
// selector. An unreadable or ambiguous target is refused.
func TestTargetsNameFunctions(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.url = h.serve()
	h.Bundle.Register(t, shopAccount, 1)
	const token, other = "0x00000000000000000000000000000000000cafe0", "0x00000000000000000000000000000000000cafe1"
	path := "/admin/v1/submitters/" + shopAccount + "/policy"
	put := func(targets ...string) answer {
		return h.as("ann", "PUT", path, map[string]any{"targets": targets, "reason": "a test"})
	}
	a := put(token+":transfer(address,uint256)", token+":0x095EA7B3", token+":0xa9059cbb", other, "deploy")
	policy, _ := a.body["policy"].(map[string]any)
	want := []any{token + ":0x095ea7b3", token + ":0xa9059cbb", other, "deploy"}
	if a.status != 200 || !reflect.DeepEqual(policy["targets"], want) {
		t.Errorf("functions: got %d %v, want 200 with %v", a.status, a.body, want)
	}
	for name, targets := range map[string][]string{
		"an address with a function and without": {token, token + ":0xa9059cbb"},
		"no function behind the colon":           {token + ":"},
		"a short selector":                       {token + ":0xa9059c"},
		"a name alone":                           {token + ":transfer"},
		"a type that is not canonical":           {token + ":transfer(address,uint)"},
		"a space":                                {token + ":transfer(address, uint256)"},
		"names of arguments":                     {token + ":transfer(address to,uint256 amount)"},
		"two functions in one":                   {token + ":0xa9059cbb:0x095ea7b3"},
		"a function of no address":               {"transfer(address,uint256)"},
		"a function of a deployment":             {"deploy:0xa9059cbb"},
	} {
		a := put(targets...)
		if got := a.is("code", "field"); got != "400 INVALID_FIELD targets" || !strings.Contains(a.is("detail"), "0x") {
			t.Errorf("%s: got %s %v, want 400 for targets with what to write", name, got, a.body["detail"])
		}
	}
	after := h.as("ann", "GET", "/admin/v1/submitters/"+shopAccount, nil)
	if policy, _ := after.body["policy"].(map[string]any); !reflect.DeepEqual(policy["targets"], want) {
		t.Errorf("after what was refused: got %v, want %v", policy["targets"], want)
	}
}

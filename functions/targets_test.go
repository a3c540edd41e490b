package functions_test

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// A target can name a contract's function by its signature or its selector, and is stored with the
// selector. An unreadable or ambiguous target is refused.
func TestTargetsNameFunctions(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t)
	const token, other = "0x00000000000000000000000000000000000cafe0", "0x00000000000000000000000000000000000cafe1"
	put := func(targets ...string) answer {
		return h.as("ann", "PUT", ofShop+"/policy", members{"targets": targets, "reason": "a test"})
	}
	const want = "200 [" + token + ":0x095ea7b3 " + token + ":0xa9059cbb " + other + " deploy]"
	check.Equal(t, "functions", put(token+":transfer(address,uint256)", token+":0x095EA7B3", token+":0xa9059cbb", other, "deploy").is("policy.targets"), want)
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
	check.Equal(t, "after what was refused", h.as("ann", "GET", ofShop, nil).is("policy.targets"), want)
}

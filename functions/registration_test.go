package functions_test

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// A registration without a limit is refused unless its policy is "unlimited".
func TestRegistrationNeedsAPolicy(t *testing.T) {
	t.Parallel()
	h := build(t)
	for name, c := range map[string]struct {
		policy any
		want   string // code and field
	}{
		"left out":           {nil, "400 INVALID_FIELD policy"},
		"no limits":          {map[string]any{}, "400 INVALID_FIELD policy"},
		"limits of null":     {map[string]any{"maxValue": nil}, "400 INVALID_FIELD policy"},
		"another word":       {"none", "400 INVALID_FIELD policy"},
		"empty":              {"", "400 INVALID_FIELD policy"},
		"a number":           {1, "400 INVALID_FIELD policy"},
		"a list":             {[]any{}, "400 INVALID_FIELD policy"},
		"an unknown limit":   {map[string]any{"maxTotal": "1"}, "400 UNSUPPORTED_FIELD policy.maxTotal"},
		"a limit of no kind": {map[string]any{"maxValue": "1.5"}, "400 INVALID_FIELD policy.maxValue"},
	} {
		body := map[string]any{"submitter": shopAccount, "callers": []string{"sub:shop"}}
		if name != "left out" {
			body["policy"] = c.policy
		}
		a := h.as("ann", "POST", "/admin/v1/submitters", body)
		check.Equal(t, name, a.is("code", "field"), c.want)
		if detail := a.is("detail"); c.want == "400 INVALID_FIELD policy" && !strings.Contains(detail, `"unlimited"`) {
			t.Errorf("%s: got %s, want what to give instead", name, detail)
		}
	}
}

package functions_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
)

// A validUntil is a time with an offset, to the microsecond. The same moment with another offset is
// the same request; another moment, or none, is a different request. A new intent whose time has
// passed is refused.
func TestValidUntil(t *testing.T) {
	t.Parallel()
	h, _ := strict(t)
	shop := h.clientOf(h.callerToken("shop"))
	post := func(path, body string) answer { return h.as("shop", "POST", path, body) }
	for _, wrong := range []string{
		`""`, `null`, `7`, `"soon"`, `"2999-01-31"`, `"2999-01-31T12:00:00"`, `"2999-01-31 12:00:00Z"`, `"2999-01-31t12:00:00Z"`, `"2999-01-31T12:00:00z"`,
		`"2999-01-31T12:00:00.1234567Z"`, `"2999-01-31T12:00:00.1234560Z"`, `"2999-01-31T12:00:00,5Z"`, `"2999-01-31T12:00:00.Z"`, `"2999-02-30T12:00:00Z"`, `"2999-01-31T24:00:00Z"`,
		`"2999-01-31T12:00:60Z"`, `"2999-01-31T12:00:00+24:00"`, `"2999-01-31T12:00:00+0100"`, `"2999-01-31T12:00Z"`, `"9999-12-31T23:59:59-01:00"`, `"1969-12-31T23:59:59Z"`,
		`"12999-01-31T12:00:00Z"`, `"2999-01-31T12:00:00Z "`, `"2999-01-31T12:00:00+01:60"`, `"2000-01-01T00:00:00Z"`,
	} {
		check.Equal(t, wrong, post("/api/v1/tx", intentText("wrong", `, "validUntil": `+wrong)).is("code", "field"), "400 INVALID_FIELD validUntil")
	}
	for i, right := range []string{"2999-01-31T12:00:00Z", "2999-01-31T12:00:00.000001Z", "2999-01-31T00:00:00.5-12:00", "9999-12-31T23:59:59.999999Z"} {
		id := fmt.Sprint("right-", i)
		post("/api/v1/tx", intentText(id, `, "validUntil": "`+right+`"`)).wants(t, 202, "%s", right)
		want, _ := time.Parse(time.RFC3339Nano, right)
		if found, err := shop.TxByRequest(t.Context(), shopAccount, id); err != nil || found.ValidUntil == nil || !found.ValidUntil.Equal(want) {
			t.Errorf("%s: shown as %v, %v", right, found.ValidUntil, err)
		}
	}
	for until, want := range map[string]string{
		`, "validUntil": "2999-01-31T13:00:00+01:00"`:   "200 <nil>",
		`, "validUntil": "2999-01-31T12:00:00.000000Z"`: "200 <nil>",
		`, "validUntil": "2999-01-31T12:00:00.000001Z"`: "409 REQUEST_ID_CONFLICT",
		`, "validUntil": "2000-01-01T00:00:00Z"`:        "409 REQUEST_ID_CONFLICT",
		``:                                              "409 REQUEST_ID_CONFLICT",
	} {
		check.Equal(t, fmt.Sprintf("again with %q", until), post("/api/v1/tx", intentText("right-0", until)).is("code"), want)
	}
	a := post("/api/v1/tx:batch", `{"intents": [`+intentText("b-1", `, "validUntil": "2000-01-01T00:00:00Z"`)+`, `+
		intentText("b-2", `, "validUntil": "2999-01-31T12:00:00Z"`)+`, `+intentText("b-3", `, "validUntil": "soon"`)+`]}`)
	check.Equal(t, "a batch", a.is("results.0.field", "results.1.status", "results.2.field"), "200 validUntil 202 validUntil")
}

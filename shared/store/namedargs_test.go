package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/store"
)

// A statement's parameters have the order of their first use, however often it runs. A missing
// value and a value without a parameter are refused, also after the statement ran.
func TestNamedArgs(t *testing.T) {
	t.Parallel()
	const sql = `select @b::text, '@text', @a::int, @b::text`
	for _, b := range []string{"first", "second"} {
		text, values, err := store.NamedArgs{"a": 1, "b": b}.RewriteQuery(t.Context(), nil, sql, nil)
		if want := `select $1::text, '@text', $2::int, $1::text`; text != want || !cmp.Equal(values, []any{b, 1}) || err != nil {
			t.Errorf("got %q, %v, %v; want %q with %s and 1", text, values, err, want, b)
		}
	}
	for name, args := range map[string]store.NamedArgs{
		"a missing value": {"b": ""}, "another name": {"b": "", "c": 1}, "one more": {"a": 1, "b": "", "c": 1},
	} {
		if text, _, err := args.RewriteQuery(t.Context(), nil, sql, nil); err == nil {
			t.Errorf("%s: got %q, want an error", name, text)
		}
	}
}

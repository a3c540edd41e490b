// Package expect has the checks that most tests make: no error, and a value that equals the wanted one.
package expect

import (
	"fmt"
	"testing"
)

// NoError ends the test at an error.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Equal reports a value that is not the wanted one. The format what, with its args, names the value.
func Equal[T comparable](t testing.TB, got, want T, what string, args ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", fmt.Sprintf(what, args...), got, want)
	}
}

// Package expect has the checks that most tests make: no error, and a value that equals the wanted one.
package expect

import "fmt"

// TB is the part of [testing.TB] that the checks need. Other libraries' tests have it too.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
}

// NoError ends the test at an error.
func NoError(t TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Equal reports a value that is not the wanted one. The format what, with its args, names the value.
func Equal[T comparable](t TB, got, want T, what string, args ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", fmt.Sprintf(what, args...), got, want)
	}
}

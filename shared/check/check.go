// Package check has the comparisons that tests repeat. Only tests import it.
package check

import (
	"errors"
	"fmt"
	"math/big"

	"github.com/google/go-cmp/cmp"
)

// TB is the part of [testing.TB] that the checks need. The tests of properties have it too.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// OK ends the test if the last result of a call is an error: check.OK(t)(call()). The last result must have
// the type error.
func OK(t TB) func(results ...any) {
	return func(results ...any) {
		t.Helper()
		if err := last(t, results); err != nil {
			t.Fatalf("got the error %v, want none", err)
		}
	}
}

// Value is the first result of a call that must succeed: check.Value(call())(t).
func Value[T any](value T, err error) func(TB) T {
	return func(t TB) T {
		t.Helper()
		OK(t)(err)
		return value
	}
}

// Err reports a call whose last result is not the error want: check.Err(t, what, want)(call()).
// A call that must succeed has nil; unlike after [OK], the test goes on.
func Err(t TB, what string, want error) func(results ...any) {
	return func(results ...any) {
		t.Helper()
		if err := last(t, results); !errors.Is(err, want) {
			t.Errorf("%s: got the error %v, want %v", what, err, want)
		}
	}
}

// Equal reports a value that is not the wanted one.
func Equal[T comparable](t TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// Same reports how a value differs from the wanted one, by [cmp.Diff].
func Same(t TB, what string, got, want any, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// last returns the error of a call, which is its last result. It ends the test if the call has none.
func last(t TB, results []any) error {
	t.Helper()
	if len(results) == 0 {
		t.Fatalf("the call has no results: call a function that returns an error")
	}
	result := results[len(results)-1]
	err, isError := result.(error)
	if result != nil && !isError {
		t.Fatalf("the last result of the call must be an error: got the %T %q; call a function that returns an error, or compare the result with check.Equal", result, fmt.Sprint(result))
	}
	return err
}

// BigInts is an option of [Same]: it compares *big.Int by their value. nil equals nil alone.
var BigInts = cmp.Comparer(func(a, b *big.Int) bool { return (a == nil) == (b == nil) && (a == nil || a.Cmp(b) == 0) })

// Package steps is for functions that are lists of steps, such as a drill, a demo or a release. The first error ends the function,
// as [testing.T.Fatal] ends a test. Deferred calls run as at any other end.
//
// The exported function of a package defers [Return], so that no caller sees the panic. Another goroutine must return its error
// instead.
package steps

import (
	"errors"
	"fmt"
)

// failure is what a step panics with.
type failure struct{ err error }

// OK ends the steps with the error, if there is one. The words stand before it.
func OK(err error, words ...any) {
	switch {
	case err == nil:
	case len(words) == 0:
		panic(failure{err})
	default:
		panic(failure{fmt.Errorf("%s: %w", fmt.Sprint(words...), err)})
	}
}

// Stopf ends the steps with an error of that text.
func Stopf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// Value returns the result of a call, or ends the steps with its error.
func Value[T any](result T, err error) T {
	OK(err)
	return result
}

// Run runs steps, and returns the error that has ended them.
func Run(all func()) (err error) {
	defer Return(&err)
	all()
	return nil
}

// Return, deferred, makes a function return the error that has ended its steps, joined with that of a deferred call. Any other
// panic goes on.
func Return(err *error) {
	switch cause := recover().(type) {
	case nil:
	case failure:
		if errors.Is(cause.err, *err) { // the same error, which the function has in its result already
			*err = nil
		}
		*err = errors.Join(cause.err, *err)
	default:
		panic(cause)
	}
}

package check_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// recorder records what a check reports. Like [testing.T], its Fatalf ends the goroutine of the test.
type recorder struct{ reports []string }

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.reports = append(r.reports, "Errorf: "+fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.reports = append(r.reports, "Fatalf: "+fmt.Sprintf(format, args...))
	panic(r)
}

// run returns the reports of a check.
func run(checked func(check.TB)) (reports []string) {
	r := new(recorder)
	defer func() {
		if stopped := recover(); stopped != nil && stopped != r {
			panic(stopped)
		}
		reports = r.reports
	}()
	checked(r)
	return r.reports
}

// A call whose last result is no error was not checked at all: the test ends.
func TestLastResultMustBeAnError(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	const (
		noError = `Fatalf: the last result of the call must be an error: got the bool "false"; call a function that returns an error, or compare the result with check.Equal`
		nothing = `Fatalf: the call has no results: call a function that returns an error`
	)
	for name, c := range map[string]struct {
		checked func(check.TB)
		want    string
	}{
		"OK of no error":           {func(tb check.TB) { check.OK(tb)(7, nil) }, ""},
		"OK of an error":           {func(tb check.TB) { check.OK(tb)(7, failed) }, "Fatalf: got the error failed, want none"},
		"OK of another type":       {func(tb check.TB) { check.OK(tb)(nil, false) }, noError},
		"OK of no results":         {func(tb check.TB) { check.OK(tb)() }, nothing},
		"Err of the wanted error":  {func(tb check.TB) { check.Err(tb, "what", failed)(7, failed) }, ""},
		"Err without the error":    {func(tb check.TB) { check.Err(tb, "what", failed)(7, nil) }, "Errorf: what: got the error <nil>, want failed"},
		"Err of another type":      {func(tb check.TB) { check.Err(tb, "what", nil)(failed, false) }, noError},
		"Err of no results":        {func(tb check.TB) { check.Err(tb, "what", nil)() }, nothing},
		"Value of a call":          {func(tb check.TB) { check.Value(7, nil)(tb) }, ""},
		"Value of a call that err": {func(tb check.TB) { check.Value(7, failed)(tb) }, "Fatalf: got the error failed, want none"},
	} {
		reports := run(c.checked)
		if len(reports) > 1 || (len(reports) == 1) != (c.want != "") || len(reports) == 1 && reports[0] != c.want {
			t.Errorf("%s: got %q, want %q", name, reports, c.want)
		}
	}
}

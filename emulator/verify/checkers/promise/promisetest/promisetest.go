// Package promisetest proves checkers by bugs, each put into a correct episode.
package promisetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/verify/checkers/promise"
)

// WantReported reports violations that other checkers found than those given, or whose report lacks a part.
func WantReported(t testing.TB, found []promise.Violation, checkers []string, part string) {
	t.Helper()
	var by []string
	for _, v := range found {
		by = append(by, v.Checker)
	}
	slices.Sort(by)
	text := promise.Report(found, "id")
	if by = slices.Compact(by); !slices.Equal(by, checkers) || !strings.Contains(text, part) {
		t.Errorf("got from %v\n%swant it from %v, and %q", by, text, checkers, part)
	}
}

// EachAlone reports a checker without a bug that it alone finds, and a bug of no checker. The bugs are
// given by the checkers that find each. A checker of sums may find its bugs together with a checker of the parts.
func EachAlone[E any](t testing.TB, all []promise.Checker[E], bugs [][]string, sums ...string) {
	t.Helper()
	alone := make(map[string]bool) // by the checkers that find a bug
	for _, found := range bugs {
		for _, name := range found {
			alone[name] = alone[name] || len(found) == 1
		}
	}
	for _, c := range all {
		if proven, found := alone[c.Name]; !found || !proven && !slices.Contains(sums, c.Name) {
			t.Errorf("checker %s: got no bug that it alone reports, want one", c.Name)
		}
		delete(alone, c.Name)
	}
	if len(alone) > 0 {
		t.Errorf("bugs for %v: got no such checkers", alone)
	}
}

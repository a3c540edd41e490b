package model

import (
	"flag"
	"fmt"
	"testing"
)

var full = flag.Bool("model.full", false, "also walk the large budgets: minutes, and some 3 GB")

var shapes = []struct {
	name  string
	shape Shape
}{
	{"queue only", Shape{}},
	{"decided from due work", Shape{Window: true}},
	{"whole round", Shape{Window: true, WholeIteration: true}},
	{"creates skip, queue only", Shape{CreateSkips: true}},
	{"creates skip, decided from due work", Shape{Window: true, CreateSkips: true}},
	{"creates skip, whole round", Shape{Window: true, WholeIteration: true, CreateSkips: true}},
}

// requireHolds requires a complete search within b with all rules, and no violation.
func requireHolds(t *testing.T, shape Shape, b Budget) {
	t.Helper()
	check(t, Run{Rules: All(), Shape: shape, Budget: b}).RequireHolds(t)
}

func TestProtocolHolds(t *testing.T) {
	t.Parallel()
	budgets := []Budget{
		{Creates: 3, Invocations: 3, Early: 1},
		{Creates: 2, Invocations: 3, Slow: 1, Forced: 1, Cancels: 1},
		{Creates: 2, Invocations: 2, Crashes: 1, Slow: 1},
		{Creates: 2, Invocations: 2, Crashes: 1, Failures: 1},
		{Creates: 2, Invocations: 2, Crashes: 1, Forced: 1},
		{Creates: 2, Invocations: 2, Crashes: 1, Cancels: 1},
		{Creates: 2, Invocations: 2, Pauses: 1, Renewals: 1, Slow: 1},
		{Creates: 2, Invocations: 2, Pauses: 1, Crashes: 1},
		{Creates: 2, Invocations: 3, Duplicates: 1, Early: 1},
		{Creates: 2, Invocations: 2, Duplicates: 1, Pauses: 1},
	}
	for _, s := range shapes {
		for i, b := range budgets {
			t.Run(fmt.Sprintf("%s/%d", s.name, i), func(t *testing.T) {
				t.Parallel()
				requireHolds(t, s.shape, b)
			})
		}
	}
}

// The choices that the contract leaves open do not change the verdict.
func TestProtocolHoldsWithEachOpenChoice(t *testing.T) {
	t.Parallel()
	for _, s := range []Shape{
		{Window: true, StrictRelease: true},
		{Window: true, ReleaseRaises: true},
		{Window: true, PollsApart: true},
		{Window: true, WholeIteration: true, StrictRelease: true},
		{Window: true, WholeIteration: true, ReleaseRaises: true},
		{Window: true, WholeIteration: true, PollsApart: true},
	} {
		requireHolds(t, s, Budget{Creates: 2, Invocations: 2, Crashes: 1, Early: 1})
		requireHolds(t, s, Budget{Creates: 2, Invocations: 2, Pauses: 1, Renewals: 1})
	}
}

// A whole iteration ends however often its holder must release early. If advance and poll each do
// only their own part, they can mark and follow each other endlessly, because each releases before
// it serves the other's mark.
func TestUnboundedForcedReleasesEndInWholeIterations(t *testing.T) {
	t.Parallel()
	b := Budget{Creates: 2, Invocations: 2, Forced: 255}
	requireHolds(t, Shape{Window: true, WholeIteration: true}, b)
	if got := check(t, Run{Rules: All(), Shape: Shape{Window: true}, Budget: b}); got.Verdict != Unbounded {
		t.Errorf("decided from due work: got %s, want %s", got.Verdict, Unbounded)
	}
}

func TestCheckRejectsTooLargeBudgets(t *testing.T) {
	t.Parallel()
	for _, b := range []Budget{{Creates: 4, Invocations: 1}, {Creates: 1, Invocations: 4}, {Creates: 1, Invocations: 1, Renewals: 3}} {
		if _, err := Check(Run{Rules: All(), Budget: b}); err == nil {
			t.Errorf("check %+v: got no error, want one", b)
		}
	}
}

func TestProtocolHoldsInLargeBudgets(t *testing.T) {
	t.Parallel()
	if !*full {
		t.Skip("large: run with -model.full")
	}
	for _, b := range []Budget{
		{Creates: 3, Invocations: 3, Crashes: 1},
		{Creates: 2, Invocations: 2, Crashes: 2},
		{Creates: 2, Invocations: 2, Pauses: 2},
		{Creates: 2, Invocations: 2, Duplicates: 1, Crashes: 1},
		{Creates: 2, Invocations: 2, Crashes: 1, Pauses: 1, Slow: 1},
		{Creates: 2, Invocations: 2, Duplicates: 1, Pauses: 1, Renewals: 1, Crashes: 1},
	} {
		for _, s := range shapes {
			got := check(t, Run{Rules: All(), Shape: s.shape, Budget: b, Limit: 8_000_000})
			if got.Verdict != Holds {
				t.Errorf("%s, %+v: got %s, want %s", s.name, b, got.Verdict, Holds)
			}
		}
	}
}

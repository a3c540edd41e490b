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
	{"decided from what is due", Shape{Window: true}},
	{"whole round", Shape{Window: true, WholeRound: true}},
	{"creates skip, queue only", Shape{CreateSkips: true}},
	{"creates skip, decided from what is due", Shape{Window: true, CreateSkips: true}},
	{"creates skip, whole round", Shape{Window: true, WholeRound: true, CreateSkips: true}},
}

// holds asserts that nothing is wrong under all rules within b, and that the
// walk came to its end.
func holds(t *testing.T, shape Shape, b Budget) {
	t.Helper()
	if got := check(t, Run{Rules: All(), Shape: shape, Budget: b}); got.Verdict != Holds || !got.Complete {
		t.Errorf("all rules: got %s, complete %t, want %s, complete", got.Verdict, got.Complete, Holds)
	}
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
				holds(t, s.shape, b)
			})
		}
	}
}

// What the contract leaves open makes no difference.
func TestProtocolHoldsHoweverReleasesAndPollsAreCut(t *testing.T) {
	t.Parallel()
	for _, s := range []Shape{
		{Window: true, StrictRelease: true},
		{Window: true, ReleaseRaises: true},
		{Window: true, PollsApart: true},
		{Window: true, WholeRound: true, StrictRelease: true},
		{Window: true, WholeRound: true, ReleaseRaises: true},
		{Window: true, WholeRound: true, PollsApart: true},
	} {
		holds(t, s, Budget{Creates: 2, Invocations: 2, Crashes: 1, Early: 1})
		holds(t, s, Budget{Creates: 2, Invocations: 2, Pauses: 1, Renewals: 1})
	}
}

// A whole round ends however often its holder must let go early. Where advance
// and poll each do their own part only, they can mark and follow each other for
// ever, each letting go before it serves the other's mark.
func TestForcedReleasesWithoutBound(t *testing.T) {
	t.Parallel()
	b := Budget{Creates: 2, Invocations: 2, Forced: 255}
	holds(t, Shape{Window: true, WholeRound: true}, b)
	if got := check(t, Run{Rules: All(), Shape: Shape{Window: true}, Budget: b}); got.Verdict != Unbounded {
		t.Errorf("decided from what is due: got %s, want %s", got.Verdict, Unbounded)
	}
}

func TestCheckRefusesMoreThanItCanHold(t *testing.T) {
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

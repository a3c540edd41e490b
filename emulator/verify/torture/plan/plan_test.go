package plan_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/emulator/verify/torture/plan"
	"github.com/fencepost/fencepost/shared/check"
)

var kinds = []string{"a", "b", "c", "d"}

func weight(kind string) int { return map[string]int{"b": 8, "d": 1}[kind] }

// The seed determines the schedule exactly.
func TestSameSeedSamePlan(t *testing.T) {
	t.Parallel()
	one := plan.Draw(plan.Source(7), kinds, weight, time.Minute, time.Second)
	if diff := cmp.Diff(one, plan.Draw(plan.Source(7), kinds, weight, time.Minute, time.Second)); diff != "" {
		t.Errorf("the plan of one seed, drawn twice:\n%s", diff)
	}
	if cmp.Equal(one, plan.Draw(plan.Source(8), kinds, weight, time.Minute, time.Second)) {
		t.Error("the plans of two seeds: got the same, want others")
	}
}

// Each kind comes once before any comes again, even in the shortest run.
func TestEachKindComesOnce(t *testing.T) {
	t.Parallel()
	for _, length := range []time.Duration{time.Second, 10 * time.Second, time.Hour} {
		seen := map[string]int{}
		events := plan.Draw(plan.Source(3), kinds, weight, length, time.Second)
		for _, e := range events[:len(kinds)] {
			seen[e.Kind]++
		}
		if want := map[string]int{"a": 1, "b": 1, "c": 1, "d": 1}; !cmp.Equal(seen, want) {
			t.Errorf("the first round of %v: got %v, want %v", length, seen, want)
		}
		if last := events[len(events)-1].At; last >= length {
			t.Errorf("the last event of %v: got it at %v", length, last)
		}
	}
}

// Events come in order, at the average pace asked for, and by their weight.
func TestEventsFollowPaceAndWeights(t *testing.T) {
	t.Parallel()
	events := plan.Draw(plan.Source(5), kinds, weight, time.Hour, time.Second)
	if n := len(events); n < 3300 || n > 3900 {
		t.Errorf("events of an hour, one a second: got %d, want about 3600", n)
	}
	heavy := 0
	for i, e := range events {
		if i > 0 && e.At < events[i-1].At {
			t.Fatalf("event %d comes at %v, before the one at %v", i, e.At, events[i-1].At)
		}
		if e.Kind == "b" {
			heavy++
		}
	}
	if share := float64(heavy) / float64(len(events)); share < 0.65 || share > 0.8 {
		t.Errorf("share of the kind with 8 of 11 weights: got %.2f, want about 0.73", share)
	}
}

// Without kinds or time the schedule is empty.
func TestWithoutKindsOrTimeNothingIsDrawn(t *testing.T) {
	t.Parallel()
	check.Equal(t, "events without kinds", len(plan.Draw(plan.Source(1), nil, weight, time.Hour, time.Second)), 0)
	check.Equal(t, "events without time", len(plan.Draw(plan.Source(1), kinds, weight, 0, time.Second)), 0)
}

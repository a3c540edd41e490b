package model

import (
	"maps"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/shared/modelcheck"
)

// Merging states changes no verdict and no shortest trace. Absolute tokens are limited too, so no
// run is endless.
func TestMergingStatesChangesNoVerdict(t *testing.T) {
	t.Parallel()
	rules := []Rules{
		All(),
		rulesWithout(func(r *Rules) { r.TokenPerIteration = false }),
		rulesWithout(func(r *Rules) { r.DelayedTaskNamedByExpiry = false }),
		rulesWithout(func(r *Rules) { r.RowLock = false }),
		rulesWithout(func(r *Rules) { r.TokenAfterCommit = false }),
	}
	for _, shape := range []Shape{{}, {Window: true}, {Window: true, WholeIteration: true}} {
		for _, r := range rules {
			run := Run{Rules: r, Shape: shape, Budget: Budget{Creates: 2, Invocations: 2, Crashes: 1, Renewals: 1}}
			if shape.Window {
				run.Budget = Budget{Creates: 2, Invocations: 2, Pauses: 1}
			}
			reduced := check(t, run)
			run.distinct = true
			whole := check(t, run)
			sameEnd := whole.Verdict == Holds && whole.Complete || whole.Depth == reduced.Depth
			if whole.Verdict != reduced.Verdict || !sameEnd || whole.States < reduced.States {
				t.Errorf("without reduction: got %s at depth %d of %d states, want %s at depth %d of no fewer than %d",
					whole.Verdict, whole.Depth, whole.States, reduced.Verdict, reduced.Depth, reduced.States)
			}
		}
	}
}

// audit searches all states separately, and stores the successors of the first state of each merged
// group.
type audit struct {
	*protocol
	futures map[state][]state
	differ  int
}

func (a *audit) next(s state, out emit) {
	follow := map[state]bool{}
	a.protocol.next(s, func(e step, to state) {
		follow[to.canonical()] = true
		out(e, to)
	})
	same := s.canonical()
	before, ok := a.futures[same]
	if !ok {
		a.futures[same] = slices.Collect(maps.Keys(follow))
		return
	}
	if len(before) != len(follow) || slices.ContainsFunc(before, func(b state) bool { return !follow[b] }) {
		a.differ++
	}
}

func TestMergedStatesHaveTheSameSuccessors(t *testing.T) {
	t.Parallel()
	for _, run := range []Run{
		{Rules: All(), Budget: Budget{Creates: 3, Invocations: 2, Pauses: 1}},
		{Rules: All(), Shape: Shape{Window: true}, Budget: Budget{Creates: 2, Invocations: 2, Pauses: 1, Renewals: 1}},
		{Rules: All(), Shape: Shape{Window: true, WholeIteration: true}, Budget: Budget{Creates: 2, Invocations: 2, Crashes: 1, Forced: 1}},
		{Rules: rulesWithout(func(r *Rules) { r.TokenVisibleBeforeLoad = false }), Accept: Lost, Budget: Budget{Creates: 2, Invocations: 2, Crashes: 1}},
	} {
		run.distinct = true
		a := &audit{protocol: &protocol{Run: run}, futures: map[state][]state{}}
		got := modelcheck.Search(a.machine(a.next), 1_000_000)
		t.Logf("%d states, %d when reduced", got.States, len(a.futures))
		if a.differ != 0 || !got.Complete || got.States == len(a.futures) {
			t.Errorf("states whose successors differ from those of a merged state: got %d (search complete %t), want 0", a.differ, got.Complete)
		}
	}
}

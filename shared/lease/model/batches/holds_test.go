package batches

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/shared/modelcheck"
)

// shapes are the choices that the rules leave open.
var shapes = []Run{{}, {WritesTwice: true}, {EveryCreate: true}, {WritesTwice: true, EveryCreate: true}}

// faults is one budget for each kind of fault.
var faults = []Budget{{}, {Crashes: 1}, {Freezes: 1}, {Losses: 1}, {Leavers: 1}, {Refusals: 1}, {Duplicates: 1}}

// intents are how many each submitter has.
type intents = [maxSubmitters]uint8

func requireHolds(t *testing.T, r Run) {
	t.Helper()
	t.Run(fmt.Sprintf("%+v, twice %t, every %t", r.Budget, r.WritesTwice, r.EveryCreate), func(t *testing.T) {
		t.Parallel()
		r.Rules = All()
		Check(r).RequireHolds(t)
	})
}

// One of the submitters has two intents, so that both processes serve it. It is locked first or last.
func TestTwoSubmittersHold(t *testing.T) {
	t.Parallel()
	for _, r := range shapes {
		for _, r.Budget = range faults {
			r.Budget.Creates = intents{1, 2}
			requireHolds(t, r)
			r.Budget.Creates = intents{2, 1}
			requireHolds(t, r)
		}
	}
	requireHolds(t, Run{Budget: Budget{Creates: intents{2, 2}}})
}

func TestThreeSubmittersHold(t *testing.T) {
	t.Parallel()
	for _, r := range shapes[:2] {
		for _, r.Budget = range faults {
			r.Budget.Creates = intents{1, 1, 1}
			requireHolds(t, r)
		}
	}
	requireHolds(t, Run{Budget: Budget{Creates: intents{1, 1, 2}}})
}

func TestTwoFaultsHold(t *testing.T) {
	t.Parallel()
	for i, one := range faults[1:] {
		for _, b := range faults[1+i:] {
			b.Creates = intents{1, 1}
			b.Crashes += one.Crashes
			b.Freezes += one.Freezes
			b.Losses += one.Losses
			b.Leavers += one.Leavers
			b.Refusals += one.Refusals
			b.Duplicates += one.Duplicates
			requireHolds(t, Run{Budget: b, WritesTwice: true})
		}
	}
}

// Merging states changes no verdict and no shortest trace.
func TestMergingStatesChangesNoVerdict(t *testing.T) {
	t.Parallel()
	for _, r := range []Run{
		{Rules: All(), Budget: Budget{Creates: intents{1, 1}, Freezes: 1}},
		{Rules: All(), Budget: Budget{Creates: intents{2, 1}}, EveryCreate: true},
		{Rules: without(func(r *Rules) { r.MarkUnderLock = false }), Budget: Budget{Creates: intents{2, 1}}, EveryCreate: true},
		{Rules: without(func(r *Rules) { r.UnknownReadsBack = false }), Budget: Budget{Creates: intents{2, 1}, Losses: 1}},
	} {
		merged := Check(r)
		r.distinct = true
		whole := Check(r)
		sameEnd := whole.Violation == "" && whole.Complete || whole.Depth == merged.Depth
		if whole.Violation != merged.Violation || !sameEnd || whole.States <= merged.States {
			t.Errorf("without merging: got %q at depth %d of %d states, want %q at depth %d of more than %d",
				whole.Violation, whole.Depth, whole.States, merged.Violation, merged.Depth, merged.States)
		}
	}
}

func TestMergedStatesHaveTheSameSuccessors(t *testing.T) {
	t.Parallel()
	for _, r := range []Run{
		{Rules: All(), Budget: Budget{Creates: intents{2, 1}, Duplicates: 1}},
		{Rules: All(), Budget: Budget{Creates: intents{1, 1}, Crashes: 1, Leavers: 1}, WritesTwice: true},
		{Rules: All(), Budget: Budget{Creates: intents{1, 1}, Freezes: 1, Losses: 1}, EveryCreate: true},
	} {
		p, q := &protocol{r}, &protocol{r}
		q.distinct = true
		futures, differ := map[state]map[state]bool{}, 0
		got := modelcheck.Search(q.machine(func(s state, out emit) {
			follow := map[state]bool{}
			q.next(s, func(e step, to state) {
				follow[p.key(to)] = true
				out(e, to)
			})
			before, ok := futures[p.key(s)]
			if futures[p.key(s)] = follow; ok && !maps.Equal(before, follow) {
				differ++
			}
		}), maxStates)
		t.Logf("%d states, %d when merged", got.States, len(futures))
		if differ != 0 || !got.Complete || got.States == len(futures) {
			t.Errorf("states whose successors differ from those of a merged state: got %d (search complete %t), want 0", differ, got.Complete)
		}
	}
}

// The merged form of a state stays the same when it is merged again, and when processes are
// exchanged.
func TestExchangedProcessesMerge(t *testing.T) {
	t.Parallel()
	p := &protocol{Run{Rules: All(), Budget: Budget{Creates: intents{1, 1}, Freezes: 1}}}
	var all []state
	modelcheck.Search(p.machine(func(s state, out emit) {
		all = append(all, s)
		p.next(s, out)
	}), maxStates)
	if slices.ContainsFunc(all, func(s state) bool {
		other := s
		other.swap()
		return p.key(s) != p.key(other)
	}) {
		t.Error("a state and the one with exchanged processes: got two merged forms, want one")
	}
}

package conservation_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/transfer"
)

// repeatable lists the violations that can be made any number of times in one world, permanently.
var repeatable = []string{
	"a unit is stolen from Funding", "a unit is stolen from Trading", "a unit is made up in Trading", "a unit goes from user to user",
	"a new line of the journal is deleted", "a new line of the journal is altered",
	"credited in Trading and not withdrawn", "credited in Funding and not withdrawn", "credited where it was refused",
	"credited and refunded", "refunded after it was committed", "refunded on the other side", "deposited where it was withdrawn",
	"withdrawn on both sides", "deposited for another user", "deposited more than was withdrawn", "withdrawn for no transfer",
	"COMMITTED without a credit", "COMMITTED with nothing", "ROLLED_BACK without a refund", "ROLLED_BACK with a credit", "FAILED with a debit",
}

// name returns a finding's identity without the circumstances of its first sight.
func name(f conservation.Finding) string {
	if f.Kind == conservation.BalanceDiffers {
		return f.Key()
	}
	return string(f.Kind) + " " + f.ReqID
}

// After any actions, right and wrong, with runs at any time and pages of any size, the incremental runs
// together have found what a full run finds.
func TestIncrementalAndFullAgree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.history()
	reported := map[string]bool{} // of requests, by all incremental runs
	wrongNow := []string{}        // of balances, by the last run
	check := func() {
		r := w.check(false)
		wrongNow = wrongNow[:0]
		for _, f := range r.Found {
			if f.Kind == conservation.BalanceDiffers {
				wrongNow = append(wrongNow, name(f))
			} else {
				reported[name(f)] = true
			}
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		for range rapid.IntRange(1, 4).Draw(rt, "steps") {
			w.Page = rapid.IntRange(1, 9).Draw(rt, "page")
			way := rapid.SampledFrom([]transfer.Type{transfer.FundingToSpot, transfer.SpotToFunding}).Draw(rt, "way")
			switch rapid.IntRange(0, 5).Draw(rt, "what") {
			case 0:
				w.committed(way, bob, gold, 2)
			case 1:
				w.rolledBack(way, alice, iron, 2)
			case 2:
				w.withdrawn(way, alice, gold, 1)
			case 3:
				check()
			default:
				wrongs[rapid.SampledFrom(repeatable).Draw(rt, "wrong")].do(w)
			}
		}
		if !rapid.Bool().Draw(rt, "compare") {
			return
		}
		check()
		got := append(slices.Collect(maps.Keys(reported)), wrongNow...)
		want := []string{}
		for _, f := range w.check(true).Found {
			want = append(want, name(f))
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(slices.Compact(want), slices.Compact(got), cmpopts.EquateEmpty()); diff != "" {
			rt.Fatalf("findings (-full +incremental):\n%s", diff)
		}
	})
	if len(reported) < 20 {
		t.Errorf("got %d findings, too few to prove anything", len(reported))
	}
}

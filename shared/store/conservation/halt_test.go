package conservation_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/conservation"
)

// steal takes units of an asset from a user's Funding account.
func (w *world) steal(user int64, asset int32, units int) {
	w.t.Helper()
	exec(w.t, w.main, `update balances_tb set available = available - $3::bigint * 10::numeric ^ -precision where user_id = $1 and asset_id = $2`, user, asset, units)
}

// open are the halts that are open.
func (w *world) open() []string {
	w.t.Helper()
	return value[[]string](w.t, w.main, `select array(select format('%s %s %s', scope, user_id, asset_id) from transfer_halt where resumed_at is null order by halt_id)`)
}

// MON-003: conservation is broken: CRITICAL at once, and everything is halted until
// a person resumes, with a reason. What was found halts again when it grows, or comes
// back, and not before.
func TestMON003ConservationBroken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.history()
	w.clean()
	halted := func(what string, want int, result string) {
		t.Helper()
		r := w.check(false)
		if r.Result() != result || w.halts() != want {
			t.Errorf("%s: got %s and %d halts, want %s and %d; found %v", what, r.Result(), w.halts(), result, want, r.Found)
		}
	}
	w.steal(alice, gold, 1)
	halted("one unit is stolen", 1, conservation.ResultViolated)
	if diff := cmp.Diff([]string{"all  "}, w.open()); diff != "" {
		t.Errorf("halts (-want +got):\n%s", diff)
	}
	if got := w.log.lines(`"severity":"CRITICAL"`, "conservation violated", `"alert":"MON-003"`, "BALANCE_DIFFERS"); got != 1 {
		t.Errorf("CRITICAL lines: got %d, want 1", got)
	}
	halted("again", 1, conservation.ResultStanding)
	w.resume()
	halted("resumed", 0, conservation.ResultStanding)
	w.steal(alice, gold, 1)
	halted("another is stolen", 1, conservation.ResultViolated)
	w.resume()
	w.steal(alice, gold, -2)
	halted("both are back", 0, conservation.ResultOK)
	w.steal(alice, gold, 2)
	halted("both are stolen again", 1, conservation.ResultViolated)
	for result, want := range map[string]int64{conservation.ResultOK: 3, conservation.ResultViolated: 3, conservation.ResultStanding: 2} {
		if n, ok := w.counted.Load(result); !ok || fmt.Sprint(n) != fmt.Sprint(n) || n.(interface{ Load() int64 }).Load() != want {
			t.Errorf("runs counted as %s: got %v, want %d", result, n, want)
		}
	}
	if n := value[int](t, w.main, `select count(*) from conservation_finding`); n != 3 {
		t.Errorf("findings on record: got %d, want 3", n)
	}
}

// Graded: the user's asset, the asset with its second user, everything with a second
// asset; and what a person has resumed does not count any more.
func TestHaltsAreGraded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Mode = conservation.HaltGraded
	w.history()
	w.clean()
	step := func(what string, want ...string) {
		t.Helper()
		w.check(false)
		if diff := cmp.Diff(want, w.open()); diff != "" {
			t.Errorf("%s: halts (-want +got):\n%s", what, diff)
		}
	}
	w.steal(alice, gold, 1)
	step("alice's gold", "user_asset 7 1")
	w.steal(alice, gold, 1)
	step("more of it", "user_asset 7 1")
	w.steal(bob, gold, 1)
	step("bob's gold", "user_asset 7 1", "asset  1")
	w.steal(bob, iron, 1)
	step("bob's iron", "user_asset 7 1", "asset  1", "all  ")
	w.resume()
	w.steal(bob, iron, 1)
	step("after a person has resumed", "user_asset 8 2")
}

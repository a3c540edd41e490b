package conservation_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
)

// steal removes units of an asset from a user's Funding account.
func (w *world) steal(user int64, asset int32, units int) {
	w.t.Helper()
	w.main.Run(w.t, `update balances_tb set available = available - $3::bigint * 10::numeric ^ -precision where user_id = $1 and asset_id = $2`, user, asset, units)
}

// open returns the open halts.
func (w *world) open() []string {
	w.t.Helper()
	return value[[]string](w.t, w.main, `select array(select format('%s %s %s', scope, user_id, asset_id) from transfer_halt where resumed_at is null order by halt_id)`)
}

// MON-003: conservation is violated. A CRITICAL line is logged at once, and everything is halted until
// an operator resumes with a reason. A finding halts again only if it grows or returns.
func TestMON003ConservationBroken(t *testing.T) {
	t.Parallel()
	w := cleanWorld(t)
	halted := func(what string, want int, result string) {
		t.Helper()
		r := w.check(false)
		if r.Result() != result || w.halts() != want {
			t.Errorf("%s: got %s and %d halts, want %s and %d; found %v", what, r.Result(), w.halts(), result, want, r.Found)
		}
	}
	w.steal(alice, gold, 1)
	halted("one unit is stolen", 1, conservation.ResultViolated)
	check.Same(t, "halts", w.open(), []string{"all  "})
	check.Equal(t, "CRITICAL lines", w.log.lines(`"severity":"CRITICAL"`, "conservation violated", `"alert":"MON-003"`, "BALANCE_DIFFERS"), 1)
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
	check.Same(t, "runs counted", w.counted, map[string]int{conservation.ResultOK: 3, conservation.ResultViolated: 3, conservation.ResultStanding: 2})
	check.Equal(t, "findings on record", value[int](t, w.main, `select count(*) from conservation_finding`), 3)
}

// In graded mode the first finding halts the user's asset, a second user the asset, and a second asset
// everything. A resumed halt does not count.
func TestHaltsAreGraded(t *testing.T) {
	t.Parallel()
	w := cleanWorld(t)
	w.Mode = conservation.HaltGraded
	step := func(what string, want ...string) {
		t.Helper()
		w.check(false)
		check.Same(t, fmt.Sprintf("%s: halts", what), w.open(), want)
	}
	w.steal(alice, gold, 1)
	step("alice's gold", "user_asset 7 1")
	w.steal(alice, gold, 1)
	step("more of it", "user_asset 7 1", "user_asset 7 1")
	w.steal(bob, gold, 1)
	step("bob's gold", "user_asset 7 1", "user_asset 7 1", "asset  1")
	w.steal(bob, iron, 1)
	step("bob's iron", "user_asset 7 1", "user_asset 7 1", "asset  1", "all  ")
	w.resume()
	w.steal(bob, iron, 1)
	step("after a person has resumed", "user_asset 8 2")
}

// resumeOne resumes one halt as an operator who has checked only that one.
func (w *world) resumeOne(halt int64) {
	w.t.Helper()
	check.OK(w.t)(transfers.New(w.main.Store).Resume(w.t.Context(), halt, "an operator", "looked", false))
}

// A finding during an open halt gets its own halt. An operator who resumes the halt that he has checked
// leaves the other open.
func TestNobodyResumesWhatHeHasNotSeen(t *testing.T) {
	t.Parallel()
	for _, mode := range []conservation.Mode{conservation.HaltAll, conservation.HaltGraded} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			w := cleanWorld(t)
			w.Mode = mode
			w.steal(alice, gold, 1)
			w.check(false)
			seen := value[int64](t, w.main, `select halt_id from transfer_halt where resumed_at is null`)
			w.steal(bob, iron, 50)
			if r := w.check(false); len(r.Fresh) != 1 || len(r.Halts) != 1 || w.halts() != 2 {
				t.Fatalf("the second theft: got %v found, %v made, %d open; want one, one and two", r.Fresh, r.Halts, w.halts())
			}
			w.resumeOne(seen)
			if r := w.check(false); r.Result() != conservation.ResultStanding || w.halts() != 1 {
				t.Errorf("the first is resumed: got %s and %d halts, want standing, and the second's", r.Result(), w.halts())
			}
			why := value[string](t, w.main, `select evidence->>'first' from transfer_halt where resumed_at is null`)
			if !strings.Contains(why, "user 8 asset 2") || strings.Contains(why, "user 7") {
				t.Errorf("the evidence of what is open: got %s, want bob's iron alone", why)
			}
		})
	}
}

// With any number of findings a check makes at most the maximum of halts, and each finding is in one of
// them.
func TestHaltsOfACheckAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.main.Run(t, `insert into balances_tb (user_id, asset_id, precision, available) select 1000 + n, $1, 0, 5 from generate_series(1, 50) as n`, iron)
	r := w.check(false)
	named := value[int](t, w.main, `select sum((evidence->>'findings')::integer) from transfer_halt where resumed_at is null`)
	if len(r.Fresh) != 50 || len(r.Halts) != 20 || w.halts() != 20 || named != 50 {
		t.Errorf("got %d findings, %d halts made, %d open for %d findings; want 50 in 20", len(r.Fresh), len(r.Halts), w.halts(), named)
	}
}

// Accepting a database opens a halt beside any others.
func TestAcceptedDatabaseHaltsBesideOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.history()
	w.steal(alice, gold, 1)
	w.check(false)
	seen := value[int64](t, w.main, `select halt_id from transfer_halt where resumed_at is null`)
	w.main.Run(t, `update database_identity set timeline_id = timeline_id + 1`)
	check.OK(t)(w.main.AcceptDatabase(t.Context(), "an operator", "restored"))
	w.resumeOne(seen)
	if what := value[string](t, w.main, `select evidence->>'what' from transfer_halt where resumed_at is null`); !strings.Contains(what, "accepted") {
		t.Errorf("open once the theft's is resumed: got %q, want that of the acceptance", what)
	}
}

// A full check closes findings that it does not see, and they are new if they return. An incremental
// check, which has not checked them, leaves them open.
func TestFullCheckClosesFindingsItDoesNotSee(t *testing.T) {
	t.Parallel()
	w := cleanWorld(t)
	stands := func(what string, full bool, result string, want int) {
		t.Helper()
		r := w.check(full)
		if n := value[int](t, w.main, `select count(*) from conservation_standing`); n != want || r.Result() != result {
			t.Errorf("%s: got %s, %d standing; want %s, %d", what, r.Result(), n, result, want)
		}
	}
	m := w.withdrawn(transfer.FundingToSpot, alice, gold, 7)
	m.call.Units++
	m.must(m.deposit())
	stands("deposited too much", false, conservation.ResultViolated, 1)
	stands("it is still", true, conservation.ResultStanding, 1)
	w.other.RunUnguarded(t, "transfer_operations", `update transfer_operations set units = 7, amount = 0.07 where req_id = $1`, m.call.ReqID)
	w.other.Run(t, `update balances_tb set available = available - 0.01 where user_id = $1 and asset_id = $2`, alice, gold)
	stands("healed, and nobody has looked at what is old", false, conservation.ResultViolated, 2) // the balance is below the read entries
	stands("healed", true, conservation.ResultOK, 0)
	w.other.RunUnguarded(t, "transfer_operations", `update transfer_operations set units = 8, amount = 0.08 where req_id = $1`, m.call.ReqID)
	w.other.Run(t, `update balances_tb set available = available + 0.01 where user_id = $1 and asset_id = $2`, alice, gold)
	stands("once more", true, conservation.ResultViolated, 1)
	check.Equal(t, "halts", w.halts(), 3)
}

// A finding of another check during a full one is still open when that ends: it may be newer than the
// full check's reads.
func TestFindingsDuringAFullCheckStayOpen(t *testing.T) {
	t.Parallel()
	w := cleanWorld(t)
	rival := w.Monitor
	gate(w, "before a step", func() {
		m := w.insert(transfer.FundingToSpot, alice, gold, 7)
		m.must(m.deposit())
		for range 2 { // a credit that was seen last is evaluated next
			check.Err(t, "another check", nil)(rival.Check(t.Context(), false))
		}
	})
	if r := w.check(true); len(r.Found) > 0 {
		t.Fatalf("the full check: got %v, want what it has read", r.Found)
	}
	check.Equal(t, "standing", value[int](t, w.main, `select count(*) from conservation_standing`), 1)
	for range 2 {
		if r := w.check(false); len(r.Fresh) > 0 {
			t.Errorf("found anew: got %v, want nothing", r.Fresh)
		}
	}
}

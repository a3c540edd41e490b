package conservation_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/transfer"
)

// wrong is a violation, with its expected findings.
type wrong struct {
	do       func(w *world)
	want     []conservation.Kind
	fullOnly bool // it changes entries that were read before
}

var kind = struct{ balance, twice, fields, side, none, nothing, both, incomplete, unpaid, contradicts conservation.Kind }{
	conservation.BalanceDiffers, conservation.AppliedTwice, conservation.FieldsDiffer, conservation.WrongSide, conservation.NoTransfer,
	conservation.CreditWithoutDebit, conservation.CreditAndRefund, conservation.CommittedIncomplete, conservation.RolledBackUnpaid, conservation.ContradictsState,
}

// balance changes only a balance, by so many whole units of iron.
func balance(db func(*world) storetest.Bundle, by int) func(*world) {
	return func(w *world) {
		db(w).Run(w.t, `update balances_tb set available = available + $1 where user_id = $2 and asset_id = $3`, by, alice, iron)
	}
}

func main(w *world) storetest.Bundle  { return w.main }
func other(w *world) storetest.Bundle { return w.other }

// journal changes a journal with the guards off.
func journal(db func(*world) storetest.Bundle, statement string) func(*world) {
	return func(w *world) { db(w).RunUnguarded(w.t, "transfer_operations", statement) }
}

var wrongs = map[string]wrong{
	"a unit is stolen from Funding": {do: balance(main, -1), want: []conservation.Kind{kind.balance}},
	"a unit is stolen from Trading": {do: balance(other, -1), want: []conservation.Kind{kind.balance}},
	"a unit is made up in Funding":  {do: balance(main, 1), want: []conservation.Kind{kind.balance}},
	"a unit is made up in Trading":  {do: balance(other, 1), want: []conservation.Kind{kind.balance}},
	"a unit goes from user to user": {do: func(w *world) {
		balance(main, 1)(w)
		w.main.Run(w.t, `update balances_tb set available = available - 1 where user_id = $1 and asset_id = $2`, bob, iron)
	}, want: []conservation.Kind{kind.balance}},
	"an account from nowhere": {do: func(w *world) {
		w.main.Run(w.t, `insert into balances_tb (user_id, asset_id, precision, available) values (99, $1, 0, 5)`, iron)
	}, want: []conservation.Kind{kind.balance}},
	"an account is deleted": {do: func(w *world) {
		w.other.RunUnguarded(w.t, "balances_tb", `delete from balances_tb where user_id = $1 and asset_id = $2`, bob, iron)
	}, want: []conservation.Kind{kind.balance}},

	"a new line of the journal is deleted": {do: func(w *world) {
		m := w.withdrawn(transfer.FundingToSpot, alice, iron, 5)
		w.main.RunUnguarded(w.t, "transfer_operations", `delete from transfer_operations where req_id = $1`, m.call.ReqID)
	}, want: []conservation.Kind{kind.balance}},
	"a new line of the journal is altered": {do: func(w *world) {
		m := w.withdrawn(transfer.FundingToSpot, alice, iron, 5)
		w.main.RunUnguarded(w.t, "transfer_operations", `update transfer_operations set units = 4, amount = 4 where req_id = $1`, m.call.ReqID)
	}, want: []conservation.Kind{kind.balance, kind.fields}},
	"an old line of the journal is deleted": {fullOnly: true,
		do:   journal(main, `delete from transfer_operations where op_type = 'withdraw' and user_id = 7 and asset_id = 1 and result = 'SUCCESS'`),
		want: []conservation.Kind{kind.balance, kind.incomplete, kind.nothing}},
	"an old line of the journal is altered": {fullOnly: true,
		do:   journal(other, `update transfer_operations set units = units + 1 where op_type = 'outside_deposit' and user_id = 7 and asset_id = 2`),
		want: []conservation.Kind{kind.balance}},

	"credited in Trading and not withdrawn": {do: func(w *world) {
		m := w.insert(transfer.FundingToSpot, alice, gold, 7)
		m.must(m.deposit())
	}, want: []conservation.Kind{kind.nothing}},
	"credited in Funding and not withdrawn": {do: func(w *world) {
		m := w.insert(transfer.SpotToFunding, alice, gold, 7)
		m.must(m.deposit())
	}, want: []conservation.Kind{kind.nothing}},
	"credited where it was refused": {do: func(w *world) {
		m := w.insert(transfer.FundingToSpot, alice, gold, 1_000_000_000)
		_ = m.withdraw()
		m.must(m.deposit())
	}, want: []conservation.Kind{kind.nothing}},
	"credited and refunded": {do: func(w *world) {
		m := w.withdrawn(transfer.FundingToSpot, alice, gold, 7)
		m.must(m.deposit())
		m.must(m.refund())
	}, want: []conservation.Kind{kind.both}},
	"refunded after it was committed": {do: func(w *world) {
		m := w.committed(transfer.SpotToFunding, alice, gold, 7)
		m.must(m.refund())
	}, want: []conservation.Kind{kind.contradicts, kind.both}},
	"refunded on the other side": {do: func(w *world) {
		m := w.withdrawn(transfer.FundingToSpot, alice, gold, 7)
		w.other.Run(w.t, `insert into transfer_operations (req_id, op_type, result, user_id, asset_id, units, amount) values ($1, 'refund', 'SUCCESS', 7, 1, 7, 0.07)`, m.call.ReqID)
		w.other.Run(w.t, `update balances_tb set available = available + 0.07 where user_id = 7 and asset_id = 1`)
	}, want: []conservation.Kind{kind.side}},
	"deposited where it was withdrawn": {do: func(w *world) {
		m := w.withdrawn(transfer.FundingToSpot, alice, gold, 7)
		m.must(w.funding.Deposit(w.t.Context(), m.call))
	}, want: []conservation.Kind{kind.side}},
	"withdrawn on both sides": {do: func(w *world) {
		m := w.withdrawn(transfer.FundingToSpot, alice, gold, 7)
		m.must(w.spot.Withdraw(w.t.Context(), m.call))
	}, want: []conservation.Kind{kind.twice, kind.side}},
	"deposited for another user": {do: func(w *world) {
		m := w.withdrawn(transfer.FundingToSpot, alice, gold, 7)
		m.call.UserID = bob
		m.must(m.deposit())
	}, want: []conservation.Kind{kind.fields}},
	"deposited more than was withdrawn": {do: func(w *world) {
		m := w.withdrawn(transfer.FundingToSpot, alice, gold, 7)
		m.call.Units++
		m.must(m.deposit())
	}, want: []conservation.Kind{kind.fields}},
	"withdrawn for no transfer": {do: func(w *world) {
		m := moving{w: w, source: w.funding, call: transfer.Call{ReqID: "01ARZ3NDEKTSV4RRFFQ69G5FAV", UserID: alice, AssetID: gold, Units: 7}}
		m.must(m.withdraw())
	}, want: []conservation.Kind{kind.none}},

	"COMMITTED without a credit": {do: func(w *world) {
		w.withdrawn(transfer.FundingToSpot, alice, gold, 7).to(transfer.Committed)
	}, want: []conservation.Kind{kind.incomplete}},
	"COMMITTED with nothing": {do: func(w *world) {
		w.insert(transfer.SpotToFunding, alice, gold, 7).to(transfer.SourcePending, transfer.SourceDone, transfer.TargetPending, transfer.Committed)
	}, want: []conservation.Kind{kind.incomplete}},
	"ROLLED_BACK without a refund": {do: func(w *world) {
		w.withdrawn(transfer.FundingToSpot, alice, gold, 7).to(transfer.Compensating, transfer.RolledBack)
	}, want: []conservation.Kind{kind.unpaid}},
	"ROLLED_BACK with a credit": {do: func(w *world) {
		m := w.rolledBack(transfer.FundingToSpot, alice, gold, 7)
		m.must(m.deposit())
	}, want: []conservation.Kind{kind.contradicts, kind.both}},
	"FAILED with a debit": {do: func(w *world) {
		m := w.insert(transfer.FundingToSpot, alice, gold, 7)
		m.to(transfer.SourcePending)
		m.must(m.withdraw())
		m.to(transfer.Failed)
	}, want: []conservation.Kind{kind.contradicts}},
	"debited long after it FAILED": {do: func(w *world) {
		m := w.insert(transfer.FundingToSpot, alice, gold, 7)
		m.to(transfer.SourcePending, transfer.Failed)
		w.clean()
		m.must(m.withdraw())
	}, want: []conservation.Kind{kind.contradicts}},
	"credited long after it was refunded": {do: func(w *world) {
		m := w.rolledBack(transfer.FundingToSpot, alice, gold, 7)
		w.clean()
		m.must(m.deposit())
	}, want: []conservation.Kind{kind.contradicts, kind.both}},
}

// The next run, full or incremental, finds each violation. No later run reports it as new.
func TestWrongsAreCaughtByTheNextRun(t *testing.T) {
	t.Parallel()
	for name, wrong := range wrongs {
		for _, full := range []bool{false, true} {
			if wrong.fullOnly && !full {
				continue
			}
			t.Run(name+map[bool]string{true: "/full", false: "/incremental"}[full], func(t *testing.T) {
				t.Parallel()
				w := cleanWorld(t)
				wrong.do(w)
				r := w.check(full)
				check.Same(t, "found at the next run", kinds(r.Fresh), slices.Sorted(slices.Values(wrong.want)))
				n := len(r.Fresh)
				if w.halts() != n || len(r.Halts) != n || w.log.lines(`"CRITICAL"`, "conservation violated") != n || w.log.lines(`"CRITICAL"`, "halted") != n {
					t.Errorf("got %d halts open, %d made; want one for each of %d findings, and both in the log as CRITICAL", w.halts(), len(r.Halts), n)
				}
				for _, again := range []bool{false, true} {
					if r := w.check(again); len(r.Fresh) > 0 && !wrong.fullOnly {
						t.Errorf("run again (full: %t): got %v found anew, want nothing", again, r.Fresh)
					}
				}
			})
		}
	}
}

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

package conservation_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/transfer"
)

// traffic makes transfers in both directions that stop at any point, are refused, refunded or
// completed, with deposits and withdrawals from outside.
type traffic struct {
	*world
	done, pending atomic.Int64
}

// one makes a user's transfer, and continues it as far as dice decides.
func (tr *traffic) one(dice *rand.Rand, user int64) {
	kind := transfer.Type(1 + dice.IntN(2))
	m := tr.insert(kind, user, 1+int32(dice.IntN(2)), 1+uint64(dice.IntN(300)))
	if dice.IntN(10) == 0 {
		outside := m.call
		outside.ReqID = "outside " + outside.ReqID
		_ = m.target.OutsideDeposit(tr.t.Context(), outside)
		_ = m.source.OutsideWithdrawal(tr.t.Context(), outside)
	}
	m.to(transfer.SourcePending)
	switch o := m.withdraw(); {
	case o.Verdict == transfer.Refused:
		m.to(transfer.Failed)
		return
	case dice.IntN(8) == 0: // the answer was lost
		tr.pending.Add(1)
		return
	}
	m.to(transfer.SourceDone, transfer.TargetPending)
	if dice.IntN(4) == 0 {
		_ = m.target.Resolve(tr.t.Context(), transfer.Deposit, m.call)
		m.to(transfer.Compensating)
		m.must(m.refund())
		if dice.IntN(3) > 0 {
			m.to(transfer.RolledBack)
		}
		tr.done.Add(1)
		return
	}
	m.must(m.deposit())
	if dice.IntN(6) == 0 {
		tr.pending.Add(1)
		return
	}
	m.to(transfer.Committed)
	tr.done.Add(1)
}

// run makes transfers by several workers until the context ends.
func (tr *traffic) run(ctx context.Context, workers int) (wait func()) {
	var group sync.WaitGroup
	for n := range workers {
		dice := rand.New(rand.NewPCG(uint64(n), 5))
		group.Go(func() {
			for ctx.Err() == nil {
				tr.one(dice, int64(n%3)+1)
			}
		})
	}
	return group.Wait
}

// A correct system raises no finding: under load, with pending calls, and several concurrent runs with
// full ones among them.
func TestHealthyUnderLoadNeverAlarms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fund(1, 2, 3)
	w.Page = 200
	tr := &traffic{world: w}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	wait := tr.run(ctx, 6)
	var checks sync.WaitGroup
	var runs, unclear atomic.Int64
	for n := range 3 {
		checks.Go(func() {
			for i := 0; i < 12 || tr.done.Load() < 300; i++ {
				r, err := w.Check(t.Context(), n == 2)
				if err != nil { // the other runs were always faster
					unclear.Add(1)
					continue
				}
				runs.Add(1)
				if len(r.Found) > 0 {
					t.Errorf("check %d, full %t: got %d findings, want none; the first: %v", i, n == 2, len(r.Found), r.Found[0])
					return
				}
			}
		})
	}
	checks.Wait()
	stop()
	wait()
	t.Logf("%d checks, %d superseded; %d transfers ended, %d left pending", runs.Load(), unclear.Load(), tr.done.Load(), tr.pending.Load())
	w.clean()
	if tr.pending.Load() < 10 || runs.Load() < 20 {
		t.Errorf("got %d transfers pending and %d checks, too few to prove anything", tr.pending.Load(), runs.Load())
	}
	if n := value[int](t, w.main, `select count(*) from conservation_finding`); n != 0 || w.halts() != 0 || w.log.lines(`"CRITICAL"`) != 0 {
		t.Errorf("got %d findings on record, %d halts, want none", n, w.halts())
	}
}

// A journal whose commits have another order than its numbers is read completely, each line once.
func TestLinesCommittedOutOfOrderAreReadOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fund(alice, bob)
	m := w.insert(transfer.FundingToSpot, alice, gold, 7)
	slow := w.main.Holding(t, `select funding_apply($1, 'withdraw', $2, $3, 7)`, m.call.ReqID, alice, gold)
	for range 3 {
		w.committed(transfer.FundingToSpot, bob, gold, 1)
		w.Page = 2
		if r := w.check(false); len(r.Found) > 0 {
			t.Fatalf("beside a transaction in progress: got %v, want nothing", r.Found)
		}
	}
	slow.Do("commit")
	m.must(m.deposit())
	w.clean()
	w.main.Run(t, `update balances_tb set available = available - 0.01 where user_id = $1 and asset_id = $2`, alice, gold)
	if r := w.check(false); len(r.Fresh) != 1 {
		t.Errorf("a unit is stolen: got %v, want it found", r.Found)
	}
}

// gate holds a run at a point until do has returned.
func gate(w *world, at string, do func()) {
	var once sync.Once
	w.At = func(point string) {
		if point == at {
			once.Do(do)
		}
	}
}

// No change between two reads of a run misleads it.
func TestTransfersBetweenReadsAreNoFindings(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"after transfers", "after payouts", "after trading", "after funding", "after funding's point", "before a step"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.history()
			gate(w, point, func() {
				w.committed(transfer.FundingToSpot, alice, gold, 3)
				w.committed(transfer.SpotToFunding, bob, iron, 4)
				w.rolledBack(transfer.SpotToFunding, bob, gold, 5)
				w.rolledBack(transfer.FundingToSpot, alice, iron, 6)
			})
			if r := w.check(false); len(r.Found) > 0 {
				t.Errorf("the run: got %v, want nothing", r.Found)
			}
			w.clean()
		})
	}
}

// The next run evaluates a credit that only the last read saw.
func TestCreditSeenLastIsEvaluatedNext(t *testing.T) {
	t.Parallel()
	w := cleanWorld(t)
	gate(w, "after funding's point", func() {
		m := w.insert(transfer.FundingToSpot, alice, gold, 3)
		m.must(m.deposit())
	})
	if r := w.check(false); len(r.Found) > 0 {
		t.Errorf("the run that sees it last: got %v, want nothing yet", r.Found)
	}
	if r := w.check(false); len(r.Fresh) != 1 || r.Fresh[0].Kind != conservation.CreditWithoutDebit {
		t.Errorf("the next run: got %v, want the credit without its debit", r.Found)
	}
}

// A run that dies between two steps leaves its stored steps to the next. An overtaken run stores
// nothing twice.
func TestDeadAndOvertakenRunsLoseNothing(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"before a step", "after a step"} {
		t.Run("dies "+point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.history()
			w.Page = 2
			for n := range 8 {
				ctx, die := context.WithCancel(t.Context())
				left := n
				w.At = func(at string) {
					if at == point {
						if left--; left < 0 {
							die()
						}
					}
				}
				if _, err := w.Check(ctx, n%2 == 1); err == nil && n == 0 && point == "before a step" {
					t.Errorf("the first run: got no error, want it dead")
				}
				die()
			}
			w.At = nil
			w.clean()
			balance(other, -1)(w)
			if r := w.check(false); len(r.Fresh) != 1 {
				t.Errorf("a unit is stolen: got %v, want it found", r.Found)
			}
		})
	}
	t.Run("overtaken", func(t *testing.T) {
		t.Parallel()
		w := cleanWorld(t)
		w.committed(transfer.FundingToSpot, alice, gold, 3)
		rival := w.Monitor
		gate(w, "before a step", func() {
			check.Err(t, "another check", nil)(rival.Check(t.Context(), false))
			balance(main, -1)(w)
		})
		if r := w.check(false); len(r.Fresh) != 1 {
			t.Errorf("the run that was overtaken: got %v, want what was stolen since", r.Found)
		}
		check.Equal(t, "findings", value[int](t, w.main, `select count(*) from conservation_finding`), 1)
	})
}

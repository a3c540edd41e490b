package rules

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// backSince is t after its own bounds blocked it for d; deferred is the same for a deferred one,
// which is due.
func backSince(t txmanager.Tx, d time.Duration) txmanager.Tx {
	t.HeldBackSince = txtest.Ago(d)
	return t
}

func deferred(t txmanager.Tx) txmanager.Tx {
	t = backSince(t, 2*time.Minute)
	t.DeferredAt, t.NextCheckAt = txtest.Ago(time.Minute), txtest.Ago(0)
	return t
}

// ownBounded are payloads that only their own bounds can block, and others.
func ownBounded() txtest.Payloads {
	to := eip155.Address([20]byte{19: 0xb0})
	rich, _ := new(big.Int).SetString("1000000000000000000000000000000", 10)
	return txtest.Reader(map[string]txmanager.Call{
		"cheap":  {To: &to, Value: big.NewInt(1), Gas: 21_000, FeeCapWei: big.NewInt(9)}, // the base fee is 10
		"rich":   {To: &to, Value: rich},
		"half":   {To: &to, Value: big.NewInt(6e17), Gas: 21_000},
		"hungry": {To: &to, Value: big.NewInt(0), Gas: 16_000_000},
	})
}

func deferring() Rules {
	r := rulesOf(3)
	r.DeferAfter = time.Minute
	return r
}

// An intent that its own bounds block keeps all others waiting for nonce.deferAfter. Then intents
// of other callers pass it, and later ones of its caller do not.
func TestItsOwnBoundsDeferAnIntentForOtherCallersAlone(t *testing.T) {
	t.Parallel()
	a, b := "email:a@x", "email:b@x"
	for _, c := range []struct {
		name    string
		first   txmanager.Tx
		adjust  func(*situation)
		want    string
		waiting bool
		told    string
		defers  bool
	}{
		{name: "at first", first: txtest.Queued(1, "cheap"), want: "q-1 waits", waiting: true, told: "fee: maxFeePerGas is below the base fee"},
		{name: "just before", first: backSince(txtest.Queued(1, "cheap"), time.Minute-1), want: "q-1 waits", waiting: true, told: "fee: "},
		{name: "after the setting's time", first: backSince(txtest.Queued(1, "cheap"), time.Minute), want: "q-3=5, q-1 waits", told: "deferred since 2026-11-21T12:00:00Z: intents of other callers go ahead of it", defers: true},
		{name: "a value above the balance, without gas", first: backSince(txtest.Queued(1, "rich"), time.Minute), want: "q-3=5, q-1 waits", told: "balance: ", defers: true},
		{name: "tried again in vain", first: deferred(txtest.Queued(1, "cheap")), want: "q-3=5, q-1 waits", told: "deferred since 2026-11-21T11:59:00Z", defers: true},
		{name: "tried again, and the base fee has fallen", first: deferred(txtest.Queued(1, "cheap")),
			adjust: func(s *situation) { s.v.Account.BaseFeeWei = big.NewInt(1) }, want: "q-1=5, q-2=6, q-3=7"},
		{name: "never, by the setting", first: deferred(txtest.Queued(1, "cheap")),
			adjust: func(s *situation) { s.r.DeferAfter = 0 }, want: "q-1 waits", waiting: true, told: "fee: maxFeePerGas is below the base fee"},
		{name: "its gas costs more than one transaction may", first: backSince(txtest.Queued(1, "hungry"), time.Minute),
			adjust: func(s *situation) { s.r.TxFeeCapWei = big.NewInt(100_000_000) }, want: "q-3=5, q-1 waits", told: "fees.maxFeePerTx", defers: true},
		{name: "the deployment's ceiling", first: backSince(txtest.Queued(1, "pay"), time.Hour),
			adjust: func(s *situation) { s.r.MaxFeePerGasWei = big.NewInt(9) }, want: "q-1 waits", waiting: true, told: "fees.maxFeePerGas"},
		{name: "no estimate", first: backSince(txtest.Queued(1, "call"), time.Hour), want: "q-1 waits", waiting: true, told: "no gas estimate"},
		{name: "the fees of a day", first: backSince(txtest.Queued(1, "pay"), time.Hour),
			adjust: func(s *situation) {
				s.w.Bounds.FeesPerDayWei = big.NewInt(700_000)
				s.w.Bounds.FeesUsedWei = big.NewInt(600_000)
			}, want: "q-1 waits", waiting: true, told: "in 24 hours"},
		{name: "the balance is in flight", first: backSince(txtest.Queued(1, "half"), time.Hour),
			adjust: func(s *situation) {
				x := txtest.Pending(4)
				x.Gas = txtest.Params(21_000, 100, 6e17)
				s.w.Open = []txmanager.Tx{x}
				s.v.Account.LatestCount = 4
			}, want: "q-1 waits", waiting: true, told: "the open transactions"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := txtest.Queue(txtest.StateOf(9, 5), txtest.Of(a, c.first), txtest.Of(a, txtest.Queued(2, "pay")), txtest.Of(b, txtest.Queued(3, "pay")))
			s := situation{deferring(), w, txtest.ViewOf(w, txtest.Block('a', 100))}
			if c.adjust != nil {
				c.adjust(&s)
			}
			p := s.r.PlanAllocations(s.w, ownBounded(), s.v, map[string]txmanager.Estimate{"q-1": {Outcome: txmanager.Unknown, Reason: "no answer"}})
			if got := outline(p); got != c.want || p.Waiting != c.waiting {
				t.Fatalf("got %q, waiting %v; want %q, %v", got, p.Waiting, c.want, c.waiting)
			}
			if c.told == "" {
				for _, x := range p.Allocations {
					if x.Tx.HeldBackSince != nil || x.Tx.DeferredAt != nil {
						t.Errorf("%s has a nonce, and is held back since %v, deferred at %v", x.Tx.ID, x.Tx.HeldBackSince, x.Tx.DeferredAt)
					}
				}
				return
			}
			x := p.Transitions[len(p.Transitions)-1].To
			if !strings.Contains(x.LastError, c.told) || (x.DeferredAt != nil) != c.defers || c.defers && x.HeldBackSince == nil {
				t.Errorf("got %q, held back since %v, deferred at %v; want %q, deferred: %v", x.LastError, x.HeldBackSince, x.DeferredAt, c.told, c.defers)
			}
		})
	}
}

// An intent that waits for another reason is no longer blocked by its own bounds: the time starts
// again. Its next check is not later than the time when it may be deferred.
func TestAnIntentIsHeldBackFromTheFirstCheckThatSaysSo(t *testing.T) {
	t.Parallel()
	r := deferring()
	w := txtest.Queue(txtest.StateOf(9, 5), txtest.Of("a", backSince(txtest.Queued(1, "pay"), time.Hour)))
	r.MaxFeePerGasWei = big.NewInt(9)
	x := r.PlanAllocations(w, ownBounded(), txtest.ViewOf(w, txtest.Block('a', 100)), nil).Transitions[0].To
	check.Equal(t, "held back by its own bounds since", x.HeldBackSince, nil)
	r.DeferAfter = 5 * time.Second
	w = txtest.Queue(txtest.StateOf(9, 5), txtest.Of("a", txtest.Queued(1, "cheap")))
	if x := r.PlanAllocations(w, ownBounded(), txtest.ViewOf(w, txtest.Block('a', 100)), nil).Transitions[0].To; !x.HeldBackSince.Equal(txtest.Now) || !x.NextCheckAt.Equal(txtest.Now.Add(5*time.Second)) {
		t.Errorf("got held back since %v, next look at %v; want now, and in 5 s", x.HeldBackSince, x.NextCheckAt)
	}
}

// H27: a reverting estimate rejects no intent, and defers none, while an earlier intent of its
// caller is deferred: it may need the effect of that one.
func TestH27BehindADeferredIntentOfTheSameCaller(t *testing.T) {
	t.Parallel()
	for _, unsettled := range [][]txmanager.Tx{nil, {txtest.Pending(4)}} {
		w := txtest.Queue(txtest.StateOf(9, 5, unsettled...), txtest.Of("a", deferred(txtest.Queued(0, "cheap"))), txtest.Of("a", txtest.Queued(1, "call")), txtest.Of("b", txtest.Queued(2, "call")), txtest.Of("b", txtest.Queued(3, "pay")))
		p := deferring().PlanAllocations(w, ownBounded(), txtest.ViewOf(w, txtest.Block('a', 100)), map[string]txmanager.Estimate{"q-1": txtest.Reverts(), "q-2": txtest.Estimated(50_000)})
		check.Equal(t, fmt.Sprintf("%d in flight", len(unsettled)), outline(p), "q-2=5, q-3=6, q-0 waits")
	}
}

// A deferred intent that a reverting estimate defers until a nonce is passed as any other.
func TestH27RevertDefersADeferredIntentUntilANonce(t *testing.T) {
	t.Parallel()
	w := txtest.Queue(txtest.StateOf(9, 5, txtest.Pending(4)), txtest.Of("a", deferred(txtest.Queued(1, "call"))), txtest.Of("a", txtest.Queued(2, "pay")))
	p := deferring().PlanAllocations(w, ownBounded(), txtest.ViewOf(w, txtest.Block('a', 100)), estimates1(txtest.Reverts()))
	if got, want := outline(p), "q-2=5, q-1 aside until 4"; got != want || p.Transitions[0].To.DeferredAt != nil {
		t.Errorf("got %q, deferred at %v; want %q, not deferred", got, p.Transitions[0].To.DeferredAt, want)
	}
}

// A deferred intent is not in the submitter state until its next check, and neither are its
// caller's later ones. An advance is scheduled for that check.
func TestADeferredIntentIsCheckedAgain(t *testing.T) {
	t.Parallel()
	r, soon := deferring(), txtest.Now.Add(3*time.Second)
	x := txtest.Of("a", deferred(txtest.Queued(1, "cheap")))
	w := txtest.Queue(txtest.StateOf(1, 5), x, txtest.Of("a", txtest.Queued(2, "pay")), txtest.Of("b", txtest.Queued(3, "pay")))
	w.QueueMore = true
	x.NextCheckAt = &soon
	after := AfterCommit(w, txmanager.Commit{Transitions: []txmanager.Transition{{From: txmanager.Queued, To: x}}})
	if len(after.Queue) != 1 || after.Queue[0].ID != "q-3" || after.DeferredUntil == nil || !after.DeferredUntil.Equal(soon) {
		t.Errorf("got %d in the queue, the next look at %v; want q-3 alone, and %v", len(after.Queue), after.DeferredUntil, soon)
	}
	check.Equal(t, "another caller's intent waits: an advance now", r.PlanNextWork(after).AdvanceNow, true)
	after.Queue, after.QueueMore = nil, false
	check.Equal(t, "nothing else waits", r.PlanNextWork(after), NextWork{Kind: txmanager.KindAdvance, At: soon})
	after.Suspended = true
	check.Equal(t, "suspended", r.PlanNextWork(after), NextWork{})
}

// If the head waits for a reason that is not its own, deferred intents before it get a next check
// too, so that no advance repeats at once.
func TestDeferredIntentsWaitWithTheHead(t *testing.T) {
	t.Parallel()
	first := txtest.Of("a", deferred(txtest.Queued(1, "cheap")))
	first.LastError = "why it is deferred"
	w := txtest.Queue(txtest.StateOf(1, 5), first, txtest.Of("b", txtest.Queued(2, "pay")), txtest.Of("b", txtest.Queued(3, "pay")))
	moves := WaitAtHead(w, txmanager.Wait{Cause: txmanager.WaitNodes, Reason: "the node is unavailable"}, txtest.Now.Add(time.Second))
	if len(moves) != 2 || moves[0].To.LastError != "why it is deferred" || moves[1].To.LastError != "the node is unavailable" || moves[0].To.NextCheckAt == nil {
		t.Errorf("got %+v, want both planned, and the head told why", moves)
	}
	next := deferring().PlanNextWork(AfterCommit(w, txmanager.Commit{Transitions: moves}))
	check.Equal(t, "next work", next, NextWork{Kind: txmanager.KindAdvance, At: txtest.Now.Add(time.Second)})
}

// An intent whose validUntil has passed gets no nonce, and ends EXPIRED, except in PROTECT and
// while a violation is suspected.
func TestExpiredIntentsGetNoNonce(t *testing.T) {
	t.Parallel()
	over, lasts := txtest.Queued(1, "pay"), txtest.Queued(2, "pay")
	over.ValidUntil, lasts.ValidUntil = txtest.Ago(0), txtest.In(time.Microsecond)
	w := txtest.Queue(txtest.StateOf(9, 5), txtest.Of("a", over), txtest.Of("a", lasts))
	p := deferring().PlanAllocations(w, ownBounded(), txtest.ViewOf(w, txtest.Block('a', 100)), nil)
	if len(p.Allocations) != 1 || p.Allocations[0].Tx.ID != "q-2" || len(p.Transitions) != 1 || p.Transitions[0].To.State != txmanager.Failed || p.Transitions[0].To.Sub != txmanager.Expired || p.Transitions[0].To.LastError == "" {
		t.Errorf("got %q, %+v; want q-2=5, and q-1 EXPIRED with a reason", outline(p), p.Transitions)
	}
	w.Queue, w.Expired = nil, []txmanager.Tx{over}
	for name, c := range map[string]struct {
		adjust func(*txmanager.SubmitterState)
		cursor txmanager.CursorChange
		want   int
	}{
		"as loaded":           {func(*txmanager.SubmitterState) {}, txmanager.CursorChange{}, 1},
		"suspended":           {func(w *txmanager.SubmitterState) { w.Suspended = true }, txmanager.CursorChange{}, 1},
		"in PROTECT":          {func(w *txmanager.SubmitterState) { w.Protected = true }, txmanager.CursorChange{}, 0},
		"under suspicion":     {func(w *txmanager.SubmitterState) { w.SuspectedViolation = &txmanager.Violation{} }, txmanager.CursorChange{}, 0},
		"becoming suspicious": {func(*txmanager.SubmitterState) {}, txmanager.CursorChange{Suspect: &txmanager.Violation{}}, 0},
		"going to PROTECT":    {func(*txmanager.SubmitterState) {}, txmanager.CursorChange{OpenIncident: &txmanager.Violation{}}, 0},
	} {
		w := w
		c.adjust(&w)
		moves := ExpireQueued(w, c.cursor)
		check.Equal(t, name+": ended", len(moves), c.want)
		check.Equal(t, name+": left", len(AfterCommit(w, txmanager.Commit{Transitions: moves}).Expired), 1-c.want)
	}
}

// An advance is scheduled for the next validUntil, a day ahead at most. It is due at once where
// more intents have expired than one iteration ends.
func TestAnAdvanceIsScheduledForTheNextValidUntil(t *testing.T) {
	t.Parallel()
	r, w := deferring(), txtest.StateOf(1, 6, txtest.Pending(5)) // the window is full
	w.NextExpiry = txtest.In(time.Second)
	check.Equal(t, "one ends in a second", r.PlanNextWork(w), NextWork{Kind: txmanager.KindAdvance, At: txtest.Now.Add(time.Second)})
	w.Open, w.NextExpiry = nil, txtest.In(240*time.Hour)
	check.Equal(t, "one ends in ten days", r.PlanNextWork(w).At, txtest.Now.Add(24*time.Hour))
	w.ExpiredMore, w.Suspended = true, true
	check.Equal(t, "more have expired: an advance now", r.PlanNextWork(w).AdvanceNow, true)
	w.Protected = true
	check.Equal(t, "in PROTECT", r.PlanNextWork(w), NextWork{})
}

// Whatever the queue, the base fee and the window: each caller's intents are bound in its own
// order. If none is deferred, all intents are bound in queue order.
func TestPropertyEachCallersOrderIsKept(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r, left := deferring(), []txmanager.Tx{}
		payloads := []string{"pay", "cheap", "rich", "half"}
		for i := range rapid.IntRange(1, 12).Draw(rt, "queued") {
			left = append(left, txtest.Of(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "caller"), txtest.Queued(int64(i), rapid.SampledFrom(payloads).Draw(rt, "payload"))))
		}
		want, got := map[string][]string{}, map[string][]string{}
		for _, x := range left {
			want[x.PresentCaller] = append(want[x.PresentCaller], x.ID)
		}
		w := txtest.Queue(txtest.StateOf(uint64(rapid.IntRange(1, 5).Draw(rt, "window")), 5), left...)
		for range 40 {
			began := w.DatabaseTime()
			v := txtest.ViewOf(w, txtest.Block('a', 100))
			v.Account.BaseFeeWei = big.NewInt(int64(rapid.SampledFrom([]int{1, 10}).Draw(rt, "base fee")))
			p := r.PlanAllocations(w, ownBounded(), v, map[string]txmanager.Estimate{})
			for _, a := range p.Allocations {
				got[a.Tx.PresentCaller] = append(got[a.Tx.PresentCaller], a.Tx.ID)
				for _, x := range w.Queue {
					moved := slices.ContainsFunc(p.Transitions, func(m txmanager.Transition) bool { return m.To.ID == x.ID && m.To.DeferredAt != nil })
					bound := slices.ContainsFunc(p.Allocations, func(b txmanager.Allocation) bool { return b.Tx.ID == x.ID })
					behind := slices.ContainsFunc(p.Transitions, func(m txmanager.Transition) bool {
						return m.To.PresentCaller == x.PresentCaller && m.To.DeferredAt != nil && m.To.Seq < x.Seq
					})
					if x.Seq < a.Tx.Seq && !bound && !moved && !behind {
						rt.Fatalf("%s is bound, and %s before it is neither bound nor deferred, nor behind one that is", a.Tx.ID, x.ID)
					}
				}
			}
			after := AfterCommit(w, txmanager.Commit{Transitions: p.Transitions, Allocations: p.Allocations})
			// Bound intents end at once; the others are loaded as the database would.
			left = slices.DeleteFunc(left, func(x txmanager.Tx) bool {
				return slices.ContainsFunc(p.Allocations, func(a txmanager.Allocation) bool { return a.Tx.ID == x.ID })
			})
			for _, m := range p.Transitions {
				left[slices.IndexFunc(left, func(x txmanager.Tx) bool { return x.ID == m.To.ID })] = m.To
			}
			w = txtest.Queue(txtest.StateOf(after.Window, after.NextNonce), left...)
			w.Now = began.Add(rapid.SampledFrom([]time.Duration{time.Second, 12 * time.Second, time.Minute}).Draw(rt, "later"))
			w.Queue = slices.Clone(w.Queue)
			w = withoutDeferred(w)
		}
		for _, caller := range slices.Sorted(maps.Keys(got)) {
			if !slices.Equal(got[caller], want[caller][:len(got[caller])]) {
				rt.Fatalf("caller %s: got %v bound, want the beginning of %v", caller, got[caller], want[caller])
			}
		}
	})
}

// A deferred intent whose bounds allow it again, but which waits for another reason, waits at the
// head of the queue as any other. One that cannot be checked stays deferred.
func TestADeferredIntentWaitsForOtherReasonsAsAnyOther(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first    txmanager.Tx
		estimate txmanager.Estimate
		adjust   func(*Rules)
		want     string
		deferred bool
	}{
		"the deployment's ceiling":    {deferred(txtest.Queued(1, "pay")), txmanager.Estimate{}, func(r *Rules) { r.MaxFeePerGasWei = big.NewInt(9) }, "q-1 waits", false},
		"no estimate":                 {deferred(txtest.Queued(1, "call")), txmanager.Estimate{Outcome: txmanager.Unknown}, func(*Rules) {}, "q-2=5, q-1 waits", true},
		"its estimate reverts, alone": {deferred(txtest.Queued(1, "call")), txtest.Reverts(), func(*Rules) {}, "q-2=5, q-1 rejected", true},
	} {
		r, w := deferring(), txtest.Queue(txtest.StateOf(9, 5), txtest.Of("a", c.first), txtest.Of("b", txtest.Queued(2, "pay")))
		c.adjust(&r)
		p := r.PlanAllocations(w, ownBounded(), txtest.ViewOf(w, txtest.Block('a', 100)), estimates1(c.estimate))
		if got := outline(p); got != c.want || p.Transitions[0].To.DeferredAt != nil != c.deferred {
			t.Errorf("%s: got %q, deferred at %v; want %q, deferred: %v", name, got, p.Transitions[0].To.DeferredAt, c.want, c.deferred)
		}
	}
}

// A caller can post many intents which its own bounds hold back, each ending just before it is
// deferred. They stop other callers no longer than one such intent does: the time counts on.
func TestHeldBackTimeOutlivesEachIntent(t *testing.T) {
	t.Parallel()
	r, start := deferring(), txtest.Now
	var waiting []txmanager.Tx
	for i := range 5 {
		x := txtest.Of("a", txtest.Queued(int64(i+1), "cheap"))
		x.ValidUntil = new(start.Add(time.Duration(i+1) * (r.DeferAfter - time.Second)))
		waiting = append(waiting, x)
	}
	waiting = append(waiting, txtest.Of("b", txtest.Queued(9, "pay")))
	var held map[string]time.Time
	bound := time.Duration(-1)
	for step := 0; step < 30 && bound < 0; step++ {
		w := txtest.Queue(txtest.StateOf(9, 5), waiting...)
		w.Now, w.HeldBackSince = start.Add(time.Duration(step)*10*time.Second), held
		p := r.PlanAllocations(w, ownBounded(), txtest.ViewOf(w, txtest.Block('a', 100)), nil)
		if p.HeldBackChanged {
			held = p.HeldBack
		}
		if len(p.Allocations) > 0 {
			bound = w.Now.Sub(start)
			if got := p.Allocations[0].Tx.PresentCaller; got != "b" || len(p.Allocations) != 1 {
				t.Fatalf("got %d nonces, the first for %s; want one, for b", len(p.Allocations), got)
			}
		}
		waiting = afterPlan(waiting, p)
	}
	if bound < 0 || bound > r.DeferAfter+10*time.Second {
		t.Errorf("b gets a nonce: got it after %s, want it after %s", bound, r.DeferAfter)
	}
	if _, kept := held["a"]; !kept {
		t.Errorf("time of a: got %v, want it kept", held)
	}
	w := txtest.Queue(txtest.StateOf(9, 5), txtest.Of("a", txtest.Queued(20, "pay")))
	w.HeldBackSince = held
	if p := r.PlanAllocations(w, ownBounded(), txtest.ViewOf(w, txtest.Block('a', 100)), nil); len(p.Allocations) != 1 || !p.HeldBackChanged || len(p.HeldBack) != 0 || len(held) != 1 {
		t.Errorf("after a nonce for a: got %d nonces, times %v, and before %v; want one, none, the same", len(p.Allocations), p.HeldBack, held)
	}
}

// afterPlan is the queue after a plan was committed.
func afterPlan(queue []txmanager.Tx, p AllocationPlan) (left []txmanager.Tx) {
	become := map[string]txmanager.Tx{}
	for _, m := range p.Transitions {
		become[m.To.ID] = m.To
	}
	for _, x := range queue {
		if next, ok := become[x.ID]; ok {
			x = next
		}
		if x.State == txmanager.Queued {
			left = append(left, x)
		}
	}
	return left
}

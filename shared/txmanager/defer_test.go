package txmanager

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// of is t as an intent of the caller.
func of(caller string, t Tx) Tx {
	t.Caller, t.PresentCaller = caller, caller
	return t
}

// backSince is t after its own bounds blocked it for d; deferred is the same for a deferred one,
// which is due.
func backSince(t Tx, d time.Duration) Tx {
	t.HeldBackSince = ago(d)
	return t
}

func deferred(t Tx) Tx {
	t = backSince(t, 2*time.Minute)
	t.DeferredAt, t.NextCheckAt = ago(time.Minute), ago(0)
	return t
}

// ownBounded are payloads that only their own bounds can block, and others.
func ownBounded() payloads {
	to := Address{19: 0xb0}
	rich, _ := new(big.Int).SetString("1000000000000000000000000000000", 10)
	return reader(map[string]Call{
		"cheap":  {To: &to, Value: big.NewInt(1), Gas: 21_000, FeeCapWei: big.NewInt(1)}, // the base fee is 10
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
		first   Tx
		adjust  func(*Rules, *SubmitterState, *ChainObservation)
		want    string
		waiting bool
		told    string
		defers  bool
	}{
		{name: "at first", first: queued(1, "cheap"), want: "q-1 waits", waiting: true, told: "fee: maxFeePerGas is below the base fee"},
		{name: "just before", first: backSince(queued(1, "cheap"), time.Minute-1), want: "q-1 waits", waiting: true, told: "fee: "},
		{name: "after the setting's time", first: backSince(queued(1, "cheap"), time.Minute), want: "q-3=5, q-1 waits", told: "deferred since 2026-11-21T12:00:00Z: intents of other callers go ahead of it", defers: true},
		{name: "a value above the balance, without gas", first: backSince(queued(1, "rich"), time.Minute), want: "q-3=5, q-1 waits", told: "balance: ", defers: true},
		{name: "tried again in vain", first: deferred(queued(1, "cheap")), want: "q-3=5, q-1 waits", told: "deferred since 2026-11-21T11:59:00Z", defers: true},
		{name: "tried again, and the base fee has fallen", first: deferred(queued(1, "cheap")),
			adjust: func(_ *Rules, _ *SubmitterState, v *ChainObservation) { v.Account.BaseFeeWei = big.NewInt(1) }, want: "q-1=5, q-2=6, q-3=7"},
		{name: "never, by the setting", first: deferred(queued(1, "cheap")),
			adjust: func(r *Rules, _ *SubmitterState, _ *ChainObservation) { r.DeferAfter = 0 }, want: "q-1 waits", waiting: true, told: "fee: maxFeePerGas is below the base fee"},
		{name: "its gas costs more than one transaction may", first: backSince(queued(1, "hungry"), time.Minute),
			adjust: func(r *Rules, _ *SubmitterState, _ *ChainObservation) { r.TxFeeCapWei = big.NewInt(100_000_000) }, want: "q-3=5, q-1 waits", told: "fees.maxFeePerTx", defers: true},
		{name: "the deployment's ceiling", first: backSince(queued(1, "pay"), time.Hour),
			adjust: func(r *Rules, _ *SubmitterState, _ *ChainObservation) { r.FeeCapWei = big.NewInt(9) }, want: "q-1 waits", waiting: true, told: "fees.maxFeePerGas"},
		{name: "no estimate", first: backSince(queued(1, "call"), time.Hour), want: "q-1 waits", waiting: true, told: "no gas estimate"},
		{name: "the fees of a day", first: backSince(queued(1, "pay"), time.Hour),
			adjust: func(_ *Rules, w *SubmitterState, _ *ChainObservation) {
				w.Bounds.FeesPerDayWei = big.NewInt(700_000)
				w.Bounds.FeesUsedWei = big.NewInt(600_000)
			}, want: "q-1 waits", waiting: true, told: "in 24 hours"},
		{name: "the balance is in flight", first: backSince(queued(1, "half"), time.Hour),
			adjust: func(_ *Rules, w *SubmitterState, v *ChainObservation) {
				x := pending(4)
				x.Gas = params(21_000, 100, 6e17)
				w.Open = []Tx{x}
				v.Account.LatestCount = 4
			}, want: "q-1 waits", waiting: true, told: "what is in flight"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			frozen(t, func(t *testing.T) {
				r, w := deferring(), queue(stateOf(9, 5), of(a, c.first), of(a, queued(2, "pay")), of(b, queued(3, "pay")))
				v := viewOf(w, block('a', 100))
				if c.adjust != nil {
					c.adjust(&r, &w, &v)
				}
				p := r.planAllocations(w, ownBounded(), v, map[string]Estimate{"q-1": {Outcome: Unknown, Reason: "no answer"}})
				if got := outline(p); got != c.want || p.waiting != c.waiting {
					t.Fatalf("got %q, waiting %v; want %q, %v", got, p.waiting, c.want, c.waiting)
				}
				if c.told == "" {
					for _, x := range p.allocations {
						if x.Tx.HeldBackSince != nil || x.Tx.DeferredAt != nil {
							t.Errorf("%s has a nonce, and is held back since %v, deferred at %v", x.Tx.ID, x.Tx.HeldBackSince, x.Tx.DeferredAt)
						}
					}
					return
				}
				x := p.transitions[len(p.transitions)-1].To
				if !strings.Contains(x.LastError, c.told) || (x.DeferredAt != nil) != c.defers || c.defers && x.HeldBackSince == nil {
					t.Errorf("got %q, held back since %v, deferred at %v; want %q, deferred: %v", x.LastError, x.HeldBackSince, x.DeferredAt, c.told, c.defers)
				}
			})
		})
	}
}

// An intent that waits for another reason is no longer blocked by its own bounds: the time starts
// again. Its next check is not later than the time when it may be deferred.
func TestAnIntentIsHeldBackFromTheFirstCheckThatSaysSo(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r := deferring()
		w := queue(stateOf(9, 5), of("a", backSince(queued(1, "pay"), time.Hour)))
		r.FeeCapWei = big.NewInt(9)
		if x := r.planAllocations(w, ownBounded(), viewOf(w, block('a', 100)), nil).transitions[0].To; x.HeldBackSince != nil {
			t.Errorf("got held back since %v, want not by its own bounds", x.HeldBackSince)
		}
		r.DeferAfter = 5 * time.Second
		w = queue(stateOf(9, 5), of("a", queued(1, "cheap")))
		if x := r.planAllocations(w, ownBounded(), viewOf(w, block('a', 100)), nil).transitions[0].To; !x.HeldBackSince.Equal(dbNow) || !x.NextCheckAt.Equal(dbNow.Add(5*time.Second)) {
			t.Errorf("got held back since %v, next look at %v; want now, and in 5 s", x.HeldBackSince, x.NextCheckAt)
		}
	})
}

// H27: a reverting estimate rejects no intent, and defers none, while an earlier intent of its
// caller is deferred: it may need the effect of that one.
func TestH27BehindADeferredIntentOfTheSameCaller(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		for _, unsettled := range [][]Tx{nil, {pending(4)}} {
			w := queue(stateOf(9, 5, unsettled...), of("a", deferred(queued(0, "cheap"))), of("a", queued(1, "call")), of("b", queued(2, "call")), of("b", queued(3, "pay")))
			p := deferring().planAllocations(w, ownBounded(), viewOf(w, block('a', 100)), map[string]Estimate{"q-1": reverts(), "q-2": estimated(50_000)})
			if got, want := outline(p), "q-2=5, q-3=6, q-0 waits"; got != want {
				t.Errorf("%d in flight: got %q, want %q", len(unsettled), got, want)
			}
		}
	})
}

// A deferred intent that a reverting estimate defers until a nonce is passed as any other.
func TestH27RevertDefersADeferredIntentUntilANonce(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := queue(stateOf(9, 5, pending(4)), of("a", deferred(queued(1, "call"))), of("a", queued(2, "pay")))
		p := deferring().planAllocations(w, ownBounded(), viewOf(w, block('a', 100)), estimates1(reverts()))
		if got, want := outline(p), "q-2=5, q-1 aside until 4"; got != want || p.transitions[0].To.DeferredAt != nil {
			t.Errorf("got %q, deferred at %v; want %q, not deferred", got, p.transitions[0].To.DeferredAt, want)
		}
	})
}

// A deferred intent is not in the submitter state until its next check, and neither are its
// caller's later ones. An advance is scheduled for that check.
func TestADeferredIntentIsCheckedAgain(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r, soon := deferring(), dbNow.Add(3*time.Second)
		x := of("a", deferred(queued(1, "cheap")))
		w := queue(stateOf(1, 5), x, of("a", queued(2, "pay")), of("b", queued(3, "pay")))
		w.QueueMore = true
		x.NextCheckAt = &soon
		after := w.afterCommit(Commit{Transitions: []Transition{{From: Queued, To: x}}})
		if len(after.Queue) != 1 || after.Queue[0].ID != "q-3" || after.DeferredUntil == nil || !after.DeferredUntil.Equal(soon) {
			t.Errorf("got %d in the queue, the next look at %v; want q-3 alone, and %v", len(after.Queue), after.DeferredUntil, soon)
		}
		if d := r.planNextWork(after); !d.advanceNow {
			t.Errorf("another caller's intent waits: got %+v, want an advance", d)
		}
		after.Queue, after.QueueMore = nil, false
		if d := r.planNextWork(after); d.advanceNow || d.kind != KindAdvance || !d.at.Equal(soon) {
			t.Errorf("nothing else waits: got %+v, want an advance at %v", d, soon)
		}
		after.Suspended = true
		if d := r.planNextWork(after); !d.at.IsZero() {
			t.Errorf("suspended: got %+v, want nothing", d)
		}
	})
}

// If the head waits for a reason that is not its own, deferred intents before it get a next check
// too, so that no advance repeats at once.
func TestDeferredIntentsWaitWithTheHead(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		first := of("a", deferred(queued(1, "cheap")))
		first.LastError = "why it is deferred"
		w := queue(stateOf(1, 5), first, of("b", queued(2, "pay")), of("b", queued(3, "pay")))
		moves := w.waitAtHead("the node is out of reach", dbNow.Add(time.Second))
		if len(moves) != 2 || moves[0].To.LastError != "why it is deferred" || moves[1].To.LastError != "the node is out of reach" || moves[0].To.NextCheckAt == nil {
			t.Errorf("got %+v, want both planned, and the head told why", moves)
		}
		if d := deferring().planNextWork(w.afterCommit(Commit{Transitions: moves})); d.advanceNow || !d.at.Equal(dbNow.Add(time.Second)) {
			t.Errorf("got %+v, want the next look in a second", d)
		}
	})
}

// An intent whose validUntil has passed gets no nonce, and ends EXPIRED, except in PROTECT and
// while a violation is suspected.
func TestExpiredIntentsGetNoNonce(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		over, lasts := queued(1, "pay"), queued(2, "pay")
		over.ValidUntil, lasts.ValidUntil = ago(0), in(time.Microsecond)
		w := queue(stateOf(9, 5), of("a", over), of("a", lasts))
		p := deferring().planAllocations(w, ownBounded(), viewOf(w, block('a', 100)), nil)
		if len(p.allocations) != 1 || p.allocations[0].Tx.ID != "q-2" || len(p.transitions) != 1 || p.transitions[0].To.State != Failed || p.transitions[0].To.Sub != Expired || p.transitions[0].To.LastError == "" {
			t.Errorf("got %q, %+v; want q-2=5, and q-1 EXPIRED with a reason", outline(p), p.transitions)
		}
		w.Queue, w.Expired = nil, []Tx{over}
		for name, c := range map[string]struct {
			adjust func(*SubmitterState)
			cursor CursorChange
			want   int
		}{
			"as loaded":           {func(*SubmitterState) {}, CursorChange{}, 1},
			"suspended":           {func(w *SubmitterState) { w.Suspended = true }, CursorChange{}, 1},
			"in PROTECT":          {func(w *SubmitterState) { w.Protected = true }, CursorChange{}, 0},
			"under suspicion":     {func(w *SubmitterState) { w.SuspectedViolation = &Violation{} }, CursorChange{}, 0},
			"becoming suspicious": {func(*SubmitterState) {}, CursorChange{Suspect: &Violation{}}, 0},
			"going to PROTECT":    {func(*SubmitterState) {}, CursorChange{OpenIncident: &Violation{}}, 0},
		} {
			w := w
			c.adjust(&w)
			moves := w.expireQueued(c.cursor)
			if len(moves) != c.want {
				t.Errorf("%s: got %d ended, want %d", name, len(moves), c.want)
			}
			if after := w.afterCommit(Commit{Transitions: moves}); len(after.Expired) != 1-c.want {
				t.Errorf("%s: got %d left, want %d", name, len(after.Expired), 1-c.want)
			}
		}
	})
}

// An advance is scheduled for the next validUntil, a day ahead at most. It is due at once where
// more intents have expired than one iteration ends.
func TestAnAdvanceIsScheduledForTheNextValidUntil(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r, w := deferring(), stateOf(1, 6, pending(5)) // the window is full
		w.NextExpiry = in(time.Second)
		if d := r.planNextWork(w); d.kind != KindAdvance || !d.at.Equal(dbNow.Add(time.Second)) {
			t.Errorf("got %+v, want an advance in a second", d)
		}
		w.Open, w.NextExpiry = nil, in(240*time.Hour)
		if d := r.planNextWork(w); !d.at.Equal(dbNow.Add(24 * time.Hour)) {
			t.Errorf("got %+v, want a look in a day", d)
		}
		w.ExpiredMore, w.Suspended = true, true
		if d := r.planNextWork(w); !d.advanceNow {
			t.Errorf("more have expired: got %+v, want an advance", d)
		}
		w.Protected = true
		if d := r.planNextWork(w); d.advanceNow || !d.at.IsZero() {
			t.Errorf("in PROTECT: got %+v, want nothing", d)
		}
	})
}

// Each combination of handler, payload and time has a different fingerprint, also where some are
// missing. The time's offset does not matter.
func TestFingerprintUntil(t *testing.T) {
	t.Parallel()
	at := time.Date(2027, 1, 31, 12, 0, 0, 1000, time.UTC)
	seen := map[[32]byte]string{}
	for _, handler := range []string{"", "wage"} {
		for _, payload := range []string{`{}`, `{"a":1}`} {
			for _, until := range []*time.Time{nil, &at, new(at.Add(time.Microsecond))} {
				what := fmt.Sprint(handler, payload, until)
				print := FingerprintUntil(handler, []byte(payload), until)
				if other, taken := seen[print]; taken {
					t.Errorf("%s has the fingerprint of %s", what, other)
				}
				seen[print] = what
			}
		}
	}
	if FingerprintUntil("", []byte(`{}`), nil) != Fingerprint("", []byte(`{}`)) || FingerprintUntil("w", []byte(`{}`), nil) != Fingerprint("w", []byte(`{}`)) {
		t.Error("without a time: got another fingerprint than before")
	}
	if elsewhere := at.In(time.FixedZone("", 3600)); FingerprintUntil("", []byte(`{}`), &elsewhere) != FingerprintUntil("", []byte(`{}`), &at) {
		t.Error("the same moment in another offset: got another fingerprint")
	}
}

// Whatever the queue, the base fee and the window: each caller's intents are bound in its own
// order. If none is deferred, all intents are bound in queue order.
func TestPropertyEachCallersOrderIsKept(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r, left := deferring(), []Tx{}
		payloads := []string{"pay", "cheap", "rich", "half"}
		for i := range rapid.IntRange(1, 12).Draw(rt, "queued") {
			left = append(left, of(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "caller"), queued(int64(i), rapid.SampledFrom(payloads).Draw(rt, "payload"))))
		}
		want, got := map[string][]string{}, map[string][]string{}
		for _, x := range left {
			want[x.PresentCaller] = append(want[x.PresentCaller], x.ID)
		}
		w := queue(stateOf(uint64(rapid.IntRange(1, 5).Draw(rt, "window")), 5), left...)
		for range 40 {
			began := w.now()
			v := viewOf(w, block('a', 100))
			v.Account.BaseFeeWei = big.NewInt(int64(rapid.SampledFrom([]int{1, 10}).Draw(rt, "base fee")))
			p := r.planAllocations(w, ownBounded(), v, map[string]Estimate{})
			for _, a := range p.allocations {
				got[a.Tx.PresentCaller] = append(got[a.Tx.PresentCaller], a.Tx.ID)
				for _, x := range w.Queue {
					moved := slices.ContainsFunc(p.transitions, func(m Transition) bool { return m.To.ID == x.ID && m.To.DeferredAt != nil })
					bound := slices.ContainsFunc(p.allocations, func(b Allocation) bool { return b.Tx.ID == x.ID })
					behind := slices.ContainsFunc(p.transitions, func(m Transition) bool {
						return m.To.PresentCaller == x.PresentCaller && m.To.DeferredAt != nil && m.To.Seq < x.Seq
					})
					if x.Seq < a.Tx.Seq && !bound && !moved && !behind {
						rt.Fatalf("%s is bound, and %s before it is neither bound nor deferred, nor behind one that is", a.Tx.ID, x.ID)
					}
				}
			}
			after := w.afterCommit(Commit{Transitions: p.transitions, Allocations: p.allocations})
			// Bound intents end at once; the others are loaded as the database would.
			left = slices.DeleteFunc(left, func(x Tx) bool {
				return slices.ContainsFunc(p.allocations, func(a Allocation) bool { return a.Tx.ID == x.ID })
			})
			for _, m := range p.transitions {
				left[slices.IndexFunc(left, func(x Tx) bool { return x.ID == m.To.ID })] = m.To
			}
			w = queue(stateOf(after.Window, after.NextNonce), left...)
			w.Now = began.Add(rapid.SampledFrom([]time.Duration{time.Second, 12 * time.Second, time.Minute}).Draw(rt, "later"))
			w = w.WithLoadTime(time.Now())
			w.Queue = slices.Clone(w.Queue)
			w = w.withoutDeferred()
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
	frozen(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			first    Tx
			estimate Estimate
			adjust   func(*Rules)
			want     string
			deferred bool
		}{
			"the deployment's ceiling":    {deferred(queued(1, "pay")), Estimate{}, func(r *Rules) { r.FeeCapWei = big.NewInt(9) }, "q-1 waits", false},
			"no estimate":                 {deferred(queued(1, "call")), Estimate{Outcome: Unknown}, func(*Rules) {}, "q-2=5, q-1 waits", true},
			"its estimate reverts, alone": {deferred(queued(1, "call")), reverts(), func(*Rules) {}, "q-2=5, q-1 rejected", true},
		} {
			r, w := deferring(), queue(stateOf(9, 5), of("a", c.first), of("b", queued(2, "pay")))
			c.adjust(&r)
			p := r.planAllocations(w, ownBounded(), viewOf(w, block('a', 100)), estimates1(c.estimate))
			if got := outline(p); got != c.want || p.transitions[0].To.DeferredAt != nil != c.deferred {
				t.Errorf("%s: got %q, deferred at %v; want %q, deferred: %v", name, got, p.transitions[0].To.DeferredAt, c.want, c.deferred)
			}
		}
	})
}

// A caller that posts many intents which its own bounds hold back, each ending just before it
// is deferred, does not stop others for longer than one such intent does: the time counts on.
func TestHeldBackTimeOutlivesEachIntent(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r, start := deferring(), dbNow
		var waiting []Tx
		for i := range 5 {
			x := of("a", queued(int64(i+1), "cheap"))
			x.ValidUntil = new(start.Add(time.Duration(i+1) * (r.DeferAfter - time.Second)))
			waiting = append(waiting, x)
		}
		waiting = append(waiting, of("b", queued(9, "pay")))
		var held map[string]time.Time
		bound := time.Duration(-1)
		for step := 0; step < 30 && bound < 0; step++ {
			w := queue(stateOf(9, 5), waiting...)
			w.Now, w.HeldBackSince = start.Add(time.Duration(step)*10*time.Second), held
			p := r.planAllocations(w, ownBounded(), viewOf(w, block('a', 100)), nil)
			if p.heldBackChanged {
				held = p.heldBack
			}
			if len(p.allocations) > 0 {
				bound = w.Now.Sub(start)
				if got := p.allocations[0].Tx.PresentCaller; got != "b" || len(p.allocations) != 1 {
					t.Fatalf("got %d nonces, the first for %s; want one, for b", len(p.allocations), got)
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
		w := queue(stateOf(9, 5), of("a", queued(20, "pay")))
		w.HeldBackSince = held
		if p := r.planAllocations(w, ownBounded(), viewOf(w, block('a', 100)), nil); len(p.allocations) != 1 || !p.heldBackChanged || len(p.heldBack) != 0 || len(held) != 1 {
			t.Errorf("after a nonce for a: got %d nonces, times %v, and before %v; want one, none, the same", len(p.allocations), p.heldBack, held)
		}
	})
}

// afterPlan is the queue after a plan was committed.
func afterPlan(queue []Tx, p allocationPlan) (left []Tx) {
	become := map[string]Tx{}
	for _, m := range p.transitions {
		become[m.To.ID] = m.To
	}
	for _, x := range queue {
		if next, ok := become[x.ID]; ok {
			x = next
		}
		if x.State == Queued {
			left = append(left, x)
		}
	}
	return left
}

// The iteration that binds a nonce for a caller commits the end of its held back time.
func TestAnIterationCommitsTheHeldBackTimes(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := queue(stateOf(2, 5), of("a", queued(1, "pay")))
		w.HeldBackSince = map[string]time.Time{"a": dbNow, "b": dbNow}
		tn, _, _ := iterationOf(w, true, SendAccepted)
		if _, err := tn.iterate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, kept := tn.state.HeldBackSince["a"]; kept || len(tn.state.HeldBackSince) != 1 {
			t.Errorf("held back times: got %v, want b's alone", tn.state.HeldBackSince)
		}
	})
}

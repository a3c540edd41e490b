package txmanager

import (
	"math/big"
	"strings"
	"testing"
	"time"
)

// bumpRules are rules with a gas bump each minute, up to 1,000 wei per gas.
func bumpRules() Rules {
	r := rulesOf(3)
	r.Bump = &GasBumpPolicy{MinInterval: time.Minute, MaxAttempts: 3, Multiplier: 1125, FeeCapWei: big.NewInt(1000)}
	return r
}

// waiting is pending(n), due for a bump: its last version was signed a minute ago.
func waiting(n uint64) Tx {
	tx := pending(n)
	tx.NextCheckAt, tx.Gas = ago(time.Second), &GasParams{Gas: 21_000, FeeCapWei: big.NewInt(100), TipCapWei: big.NewInt(8), ValueWei: big.NewInt(1)}
	return tx
}

// versions gives t n signed versions.
func (t Tx) versions(n int) Tx {
	t.Versions = nil
	for v := range n {
		t.Versions = append(t.Versions, versionHash(*t.Nonce, byte(v+1)))
	}
	return t
}

// Which transactions are replaced, and when.
func TestWhatIsBumpedAndWhen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*Rules, *Tx)
		want   bool
	}{
		{"an interval after its first broadcast", func(*Rules, *Tx) {}, true},
		{"a little before", func(_ *Rules, x *Tx) { x.FirstSubmitAt = ago(time.Minute - time.Millisecond) }, false},
		{"sent again since: that changes nothing", func(_ *Rules, x *Tx) { x.LastSubmitAt = ago(0) }, true},
		{"a later version", func(_ *Rules, x *Tx) { x.NextBumpAt = in(time.Second) }, false},
		{"a later version, an interval ago", func(_ *Rules, x *Tx) { x.NextBumpAt = ago(0) }, true},
		{"no node has said that it holds it", func(_ *Rules, x *Tx) { x.State, x.Sub = Submitted, "" }, true},
		{"switched off", func(r *Rules, _ *Tx) { r.Bump = nil }, false},
		{"included", func(_ *Rules, x *Tx) { x.Sub = Included }, false},
		{"stuck", func(_ *Rules, x *Tx) { x.State, x.Sub = Stuck, "" }, false},
		{"in PROTECT", func(_ *Rules, x *Tx) { x.State, x.Sub = Protect, "" }, false},
		{"an order on it", func(_ *Rules, x *Tx) { x.RequestedAction = ActionRebroadcast }, false},
		{"one attempt left", func(_ *Rules, x *Tx) { *x = x.versions(3) }, true},
		{"none left", func(_ *Rules, x *Tx) { *x = x.versions(4) }, false},
		{"a handler made it", func(_ *Rules, x *Tx) { x.Handler = "wage" }, false},
		{"a reservation's owner signed it", func(_ *Rules, x *Tx) { x.Reservation = &Reservation{State: Used} }, false},
		{"a handler's placeholder", func(_ *Rules, x *Tx) { x.Handler = "wage"; x.Placeholders = x.Versions }, true},
	} {
		r, tx := bumpRules(), waiting(5)
		c.change(&r, &tx)
		if got := r.isBumpDue(tx, dbNow); got != c.want {
			t.Errorf("%s: got due %v, want %v", c.name, got, c.want)
		}
	}
}

// A gas bump is an eighth higher, at least what blocks require now, at least what nodes accept as
// a replacement, and never above the cap.
func TestBid(t *testing.T) {
	t.Parallel()
	dynamic := func(fee, tip int64) GasParams {
		return GasParams{Gas: 10, FeeCapWei: big.NewInt(fee), TipCapWei: big.NewInt(tip), ValueWei: big.NewInt(7)}
	}
	legacy := func(price int64) GasParams { g := dynamic(price, price); g.Legacy = true; return g }
	for _, c := range []struct {
		name         string
		policy       GasBumpPolicy
		last, market GasParams
		cap          *big.Int
		want         GasParams
		ok           bool
	}{
		{"an eighth more, rounded up", GasBumpPolicy{Multiplier: 1125}, dynamic(100, 9), dynamic(50, 1), nil, dynamic(113, 11), true},
		{"of a wei", GasBumpPolicy{Multiplier: 1125}, dynamic(1, 1), dynamic(0, 0), nil, dynamic(2, 2), true},
		{"what blocks take", GasBumpPolicy{Multiplier: 1125}, dynamic(100, 9), dynamic(300, 40), nil, dynamic(300, 40), true},
		{"more by the multiplier", GasBumpPolicy{Multiplier: 2000}, dynamic(100, 9), dynamic(50, 1), nil, dynamic(200, 18), true},
		{"cut to the cap", GasBumpPolicy{Multiplier: 1125}, dynamic(100, 9), dynamic(300, 1), big.NewInt(110), dynamic(110, 11), true},
		{"nodes would not take what the cap leaves", GasBumpPolicy{Multiplier: 1125}, dynamic(100, 9), dynamic(300, 1), big.NewInt(109), dynamic(0, 0), false},
		{"the cap of a transaction", GasBumpPolicy{Multiplier: 1125, TxFeeCapWei: big.NewInt(1119)}, dynamic(100, 9), dynamic(300, 1), nil, dynamic(111, 11), true},
		{"the cap of a transaction is too low", GasBumpPolicy{Multiplier: 1125, TxFeeCapWei: big.NewInt(1099)}, dynamic(100, 9), dynamic(300, 1), nil, dynamic(0, 0), false},
		{"a tip above the cap", GasBumpPolicy{Multiplier: 1125}, dynamic(100, 99), dynamic(50, 1), big.NewInt(111), dynamic(111, 111), true},
		{"legacy", GasBumpPolicy{Multiplier: 1125}, legacy(100), legacy(90), nil, legacy(113), true},
		{"from one price", GasBumpPolicy{Multiplier: 1125}, legacy(100), dynamic(50, 1), nil, dynamic(113, 113), true},
		{"to one price", GasBumpPolicy{Multiplier: 1125}, dynamic(100, 9), legacy(90), nil, legacy(113), true},
		{"legacy, by the node's advice", GasBumpPolicy{Multiplier: 1125}, legacy(100), legacy(200), big.NewInt(150), legacy(150), true},
	} {
		got, refused := c.policy.replacementFees(c.last, c.market, feeCaps{feeWei: c.cap})
		if ok := refused == ""; ok != c.ok || ok && diff(c.want, got) != "" {
			t.Errorf("%s: got %+v, %q; want %+v, %v", c.name, got, refused, c.want, c.ok)
		}
		if c.last.FeeCapWei.Int64() > 100 || c.market.FeeCapWei.Int64() > 300 {
			t.Errorf("%s: what it was given became %v, %v", c.name, c.last, c.market)
		}
	}
}

// signs is the result of planSignatures for w: the new versions and the transitions.
func (r Rules) signs(w SubmitterState, v ChainObservation, calls map[string]Call) ([]signingJob, []Transition) {
	return r.planSignatures(w, reader(calls), v, nil)
}

// dear is an observation whose base fee is above the offers of waiting transactions.
func dear(w SubmitterState) ChainObservation {
	v := viewOf(w, block('a', 100))
	v.Account.BaseFeeWei = big.NewInt(200)
	return v
}

// The next version is the same call at the same nonce, and the budget is charged its extra cost.
func TestABumpIsTheSameAtAHigherFee(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := stateOf(1, 6, waiting(5))
		jobs, moves := bumpRules().signs(w, dear(w), nil)
		if len(jobs) != 1 || len(moves) != 0 {
			t.Fatalf("got %d versions, moves %+v; want one, none", len(jobs), moves)
		}
		job := jobs[0]
		if job.kind != VersionBump || job.unsigned.Nonce != 5 || *job.unsigned.To != (Address{19: 0xb0}) || job.unsigned.FeeCapWei.Int64() != 402 || job.unsigned.TipCapWei.Int64() != 9 {
			t.Errorf("got %s %+v, want a BUMP of the same call at nonce 5, for twice the base fee and a tip, and a tip of 9", job.kind, job.unsigned)
		}
		if job.extraWei.Int64() != 21_000*(402-100) {
			t.Errorf("more than before: got %s, want 21000 times 302", job.extraWei)
		}
		signed := withVersion(job.tx, job.kind, Signed{Hash: versionHash(5, 2), Raw: []byte{2}}, dbNow)
		next := bumpRules().withBumpedVersion(signed, job)
		if !next.FirstSubmitAt.Equal(*ago(time.Minute)) || !next.NextBumpAt.Equal(dbNow.Add(time.Minute)) || next.SubmitAttempts != 1 {
			t.Errorf("got first sent %v, next bump %v, %d attempts; want its life to go on, a bump after a minute, one attempt", next.FirstSubmitAt, next.NextBumpAt, next.SubmitAttempts)
		}
	})
}

// Where a bound blocks a bump, the transaction waits as without one, is due again after an
// interval, and has the reason.
func TestBoundsOfABump(t *testing.T) {
	t.Parallel()
	const extra = 21_000 * 302
	room := int64(21_000*402+1) + 21_000*402*9/8 // of the next version, and a placeholder over it
	for _, c := range []struct {
		name   string
		change func(*Rules, *SubmitterState, *ChainObservation)
		calls  map[string]Call
		want   string // the reason; "-": signed; "": neither
	}{
		{"nothing in the way", func(*Rules, *SubmitterState, *ChainObservation) {}, nil, "-"},
		{"the fee cap", func(r *Rules, _ *SubmitterState, _ *ChainObservation) { r.Bump.FeeCapWei = big.NewInt(109) }, nil, "at least 110 wei per gas, a tenth more than the last version, and only 109"},
		{"just enough of the budget", func(r *Rules, w *SubmitterState, _ *ChainObservation) {
			r.Bump.BudgetWei, w.BumpBudgetUsedWei = big.NewInt(extra+7), big.NewInt(7)
		}, nil, "-"},
		{"a wei too little", func(r *Rules, w *SubmitterState, _ *ChainObservation) {
			r.Bump.BudgetWei, w.BumpBudgetUsedWei = big.NewInt(extra+6), big.NewInt(7)
		}, nil, "budget"},
		{"nothing spent, a wei too little", func(r *Rules, _ *SubmitterState, _ *ChainObservation) { r.Bump.BudgetWei = big.NewInt(extra - 1) }, nil, "budget"},
		{"the account has just enough", func(_ *Rules, _ *SubmitterState, v *ChainObservation) { v.Account.BalanceWei = big.NewInt(room) }, nil, "-"},
		{"a wei too little in the account", func(_ *Rules, _ *SubmitterState, v *ChainObservation) { v.Account.BalanceWei = big.NewInt(room - 1) }, nil, "cannot pay"},
		{"its caller allows no more", func(*Rules, *SubmitterState, *ChainObservation) {}, map[string]Call{"pay": {To: &Address{}, Gas: 21_000, FeeCapWei: big.NewInt(105)}}, ""},
		{"its caller allows a little more", func(*Rules, *SubmitterState, *ChainObservation) {}, map[string]Call{"pay": {To: &Address{}, Gas: 21_000, FeeCapWei: big.NewInt(110)}}, "-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			frozen(t, func(t *testing.T) {
				r, w := bumpRules(), stateOf(1, 6, waiting(5))
				v := dear(w)
				c.change(&r, &w, &v)
				jobs, moves := r.signs(w, v, c.calls)
				if signed := len(jobs) == 1; signed != (c.want == "-") {
					t.Fatalf("got %d versions, want %q", len(jobs), c.want)
				}
				if c.want == "-" {
					return
				}
				to := moves[0].To
				if to.State != Tracking || !to.NextBumpAt.Equal(dbNow.Add(time.Minute)) || !strings.Contains(to.LastError, c.want) || (c.want == "") != (to.LastError == "") {
					t.Errorf("got %s, next bump %v, %q; want TRACKING, after a minute, %q", to.State, to.NextBumpAt, to.LastError, c.want)
				}
				if r.isBumpDue(to, dbNow) || !r.isBumpDue(to, dbNow.Add(time.Minute)) {
					t.Errorf("due now: %v, after a minute: %v; want the other way round", r.isBumpDue(to, dbNow), r.isBumpDue(to, dbNow.Add(time.Minute)))
				}
			})
		})
	}
}

// With nonce.placeholder=ask no transaction is replaced without a decision: it becomes STUCK with
// the reason.
func TestABumpAsksWhereAnOperatorMustDecide(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r, w := bumpRules(), stateOf(2, 7, waiting(5), waiting(6))
		r.AskBeforePlaceholder = true
		jobs, moves := r.signs(w, dear(w), nil)
		if len(jobs) != 0 || len(moves) != 1 || moves[0].To.State != Stuck || !strings.Contains(moves[0].To.LastError, "nonce.placeholder=ask") {
			t.Errorf("got %d versions, moves %+v; want none, and the lowest STUCK with the reason", len(jobs), moves)
		}
	})
}

// In a window the lowest nonce is bumped, and above it those that blocks would not accept. A
// transaction that only waits for lower nonces keeps its price. All share one available balance
// and one budget.
func TestABumpOfAWindow(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		well := waiting(7)
		well.Gas = &GasParams{Gas: 21_000, FeeCapWei: big.NewInt(900), TipCapWei: big.NewInt(9), ValueWei: new(big.Int)}
		w := stateOf(9, 9, waiting(5), waiting(6), well, waiting(8))
		jobs, _ := bumpRules().signs(w, dear(w), nil)
		var got []uint64
		for _, j := range jobs {
			got = append(got, *j.tx.Nonce)
		}
		if diff([]uint64{5, 6, 8}, got) != "" {
			t.Errorf("replaced: got %v, want 5, 6, 8", got)
		}
		r := bumpRules()
		r.Bump.BudgetWei = big.NewInt(2 * 21_000 * 302)
		jobs, moves := r.signs(w, dear(w), nil)
		if last := moves[len(moves)-1].To; len(jobs) != 2 || *last.Nonce != 8 || !strings.Contains(last.LastError, "budget") {
			t.Errorf("with a budget for two: got %d, and %d %q; want 2, and 8 held by the budget", len(jobs), *last.Nonce, last.LastError)
		}
		below := waiting(5)
		below.State, below.Sub = Submitted, ""
		below.NextBumpAt = in(time.Hour)
		w = stateOf(9, 7, below, waiting(6))
		if jobs, _ := bumpRules().signs(w, dear(w), nil); len(jobs) != 0 {
			t.Errorf("above what no node holds: got %d versions, want none", len(jobs))
		}
	})
}

// A waiting placeholder is replaced by a placeholder, under the placeholder's cap.
func TestAPlaceholderIsOutbidByAPlaceholder(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		tx := waiting(5)
		tx.Placeholders, tx.Gas.ValueWei = tx.Versions, new(big.Int)
		w := stateOf(1, 6, tx)
		r := bumpRules()
		r.Bump.FeeCapWei, r.PlaceholderFeeCapWei = big.NewInt(1), big.NewInt(1000)
		jobs, _ := r.signs(w, dear(w), nil)
		if len(jobs) != 1 || jobs[0].kind != VersionPlaceholder || *jobs[0].unsigned.To != alice.Address() || jobs[0].unsigned.Value.Sign() != 0 || len(jobs[0].unsigned.Data) != 0 {
			t.Fatalf("got %+v, want a placeholder", jobs)
		}
		r.PlaceholderFeeCapWei = big.NewInt(109)
		if jobs, _ := r.signs(w, dear(w), nil); len(jobs) != 0 {
			t.Errorf("above nonce.placeholderMaxFeePerGas: got %d versions, want none", len(jobs))
		}
	})
}

// No transaction is replaced while a receipt may exist, nor in PROTECT.
func TestNoBumpBesideAReceipt(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := stateOf(1, 6, waiting(5))
		v := dear(w)
		for name, v := range map[string]ChainObservation{
			"found":   finding(dear(w), receiptOf(w.Open[0], block('a', 100))),
			"unknown": {Head: v.Head, Account: v.Account, Receipts: map[Hash]ReceiptAnswer{}},
		} {
			if jobs, moves := bumpRules().signs(w, v, nil); len(jobs)+len(moves) != 0 {
				t.Errorf("receipt %s: got %d versions, %d moves; want none", name, len(jobs), len(moves))
			}
		}
		w.Protected = true
		if jobs, moves := bumpRules().signs(w, v, nil); len(jobs)+len(moves) != 0 {
			t.Errorf("in PROTECT: got %d versions, %d moves; want none", len(jobs), len(moves))
		}
	})
}

// "Replacement underpriced" makes a higher bump due at once, and is no error. Where no bump is
// possible, it is an ordinary answer, and never a success.
func TestUnderpricedRaisesTheNextBump(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r, tx := bumpRules(), submitted(5).versions(2)
		tx.NextBumpAt = in(time.Minute)
		got := r.afterBroadcast(tx, SendResult{Class: SendUnderpriced, Text: "replacement transaction underpriced"}, block('a', 100), dbNow)
		if got.State != Submitted || got.LastError != "" || !r.isBumpDue(got, dbNow) {
			t.Errorf("got %s, %q, due %v; want SUBMITTED, no error, a bid due at once", got.State, got.LastError, r.isBumpDue(got, dbNow))
		}
		if d := r.planNextWork(stateOf(1, 6, got)); !d.advanceNow {
			t.Errorf("due: got %+v, want an advance now", d)
		}
		got = r.afterBroadcast(tx.versions(4), SendResult{Class: SendUnderpriced}, block('a', 100), dbNow)
		if got.State != Submitted || !strings.Contains(got.LastError, "replacement_underpriced") || r.isBumpDue(got, dbNow) {
			t.Errorf("no attempt left: got %s, %q; want SUBMITTED with the reason", got.State, got.LastError)
		}
	})
}

// A bump replaces a rebroadcast. An advance is enqueued for it, which alone may sign; no poll
// comes in vain.
func TestABumpComesInPlaceOfAResend(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r, tx := bumpRules(), waiting(5)
		tx.NextResubmitAt = ago(time.Second)
		if r.isRebroadcastDue(tx, dbNow) || !rulesOf(3).isRebroadcastDue(tx, dbNow) {
			t.Errorf("due to be sent again: got %v with a bump due, %v without; want false, true", r.isRebroadcastDue(tx, dbNow), rulesOf(3).isRebroadcastDue(tx, dbNow))
		}
		soon, later := in(10*time.Second), in(20*time.Second)
		for _, c := range []struct {
			name                  string
			check, bump, resubmit *time.Time
			change                func(*SubmitterState)
			want                  nextWork
		}{
			{"due now", ago(time.Second), ago(time.Second), ago(time.Second), nil, nextWork{advanceNow: true, kind: KindAdvance, at: *ago(time.Second)}},
			{"due with the next check", soon, ago(time.Second), ago(time.Second), nil, nextWork{kind: KindAdvance, at: *soon}},
			{"due after it", soon, later, in(time.Hour), nil, nextWork{kind: KindReceipt, at: *soon}},
			{"due at about the time of it", soon, in(11 * time.Second), in(time.Hour), nil, nextWork{kind: KindAdvance, at: *soon}},
			{"sent again before", later, later, soon, nil, nextWork{kind: KindResubmit, at: *soon}},
			{"in PROTECT", soon, ago(time.Second), ago(time.Second), func(w *SubmitterState) { w.Protected = true }, nextWork{kind: KindReceipt, at: *soon}},
		} {
			x := waiting(5)
			x.NextCheckAt, x.NextBumpAt, x.NextResubmitAt = c.check, c.bump, c.resubmit
			w := stateOf(1, 6, x)
			if c.change != nil {
				c.change(&w)
			}
			if got := r.planNextWork(w); got != c.want {
				t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
			}
		}
		w := stateOf(1, 6, tx)
		w.Open[0].NextCheckAt = in(time.Hour)
		if q, ok := r.nextQuery(w, KindAdvance, reader(nil)); !ok || len(q.Receipts) != 1 {
			t.Errorf("an advance asks %+v, %v; want the receipt before it replaces", q, ok)
		}
	})
}

// If gas bumps are on, a first version offers no more than blocks require, however much its caller
// allows: the rest is left for later bumps.
func TestFirstVersionLeavesRoomForBumps(t *testing.T) {
	t.Parallel()
	a := Account{BaseFeeWei: big.NewInt(100), TipWei: big.NewInt(3)}
	call := Call{FeeCapWei: big.NewInt(5000)}
	if got := bumpRules().firstVersionFees(call, 21_000, a).FeeCapWei.Int64(); got != 203 {
		t.Errorf("on: got %d, want 203", got)
	}
	if got := rulesOf(3).firstVersionFees(call, 21_000, a).FeeCapWei.Int64(); got != 5000 {
		t.Errorf("off: got %d, want 5000", got)
	}
}

package txmanager

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"
)

func estimated(gas uint64) Estimate             { return Estimate{Outcome: Done, Gas: gas} }
func reverts() Estimate                         { return Estimate{Outcome: Refused, Reason: "execution reverted"} }
func estimates1(e Estimate) map[string]Estimate { return map[string]Estimate{"q-1": e} }

// outline summarises an allocation plan.
func outline(p allocationPlan) string {
	var parts []string
	for _, a := range p.allocations {
		parts = append(parts, fmt.Sprintf("%s=%d", a.Tx.ID, a.Nonce))
	}
	for _, m := range p.transitions {
		what := "waits"
		switch {
		case m.To.State == Failed && m.To.Sub == Rejected:
			what = "rejected"
		case m.To.DeferredUntilNonce != nil:
			what = fmt.Sprintf("aside until %d", *m.To.DeferredUntilNonce)
		}
		parts = append(parts, m.To.ID+" "+what)
	}
	return strings.Join(parts, ", ")
}

// Nonces are planned in queue order, from the cursor on, up to the room in the window.
func TestQueueIsPreparedInOrderUpToTheWindow(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		all := []Tx{queued(1, "pay"), queued(2, "pay"), queued(3, "pay")}
		for _, c := range []struct {
			w    SubmitterState
			want string
		}{
			{queue(stateOf(1, 5), all...), "q-1=5"},
			{queue(stateOf(2, 5), all...), "q-1=5, q-2=6"},
			{queue(stateOf(9, 5), all...), "q-1=5, q-2=6, q-3=7"},
			{queue(stateOf(3, 7, pending(5), pending(6)), all...), "q-1=7"},
			{queue(stateOf(2, 7, pending(5), pending(6)), all...), ""},
			{queue(stateOf(3, 8, pending(5)), all...), ""},
			{stateOf(3, 5), ""},
		} {
			p := rulesOf(3).planAllocations(c.w, reader(nil), viewOf(c.w, block('a', 100)), nil)
			if got := outline(p); got != c.want || p.waiting {
				t.Errorf("window %d, next %d, %d held: got %q, waiting %v; want %q", c.w.Window, c.w.NextNonce, len(c.w.Open), got, p.waiting, c.want)
			}
			if len(p.unsigned) != len(p.allocations) {
				t.Fatalf("got %d to sign for %d allocations", len(p.unsigned), len(p.allocations))
			}
			for i, u := range p.unsigned {
				if a := p.allocations[i]; u.Nonce != a.Nonce || *a.Tx.Nonce != a.Nonce || u.ChainID != 1337 || u.Gas != a.Tx.Gas.Gas {
					t.Errorf("signed as %+v, allocated as %+v: want the same", u, a)
				}
			}
		}
	})
}

// A payload that can never become a transaction is refused, uses no nonce, and blocks no other
// intent.
func TestUnreadablePayloadIsRejected(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := queue(stateOf(2, 5), queued(1, "junk"), queued(2, "pay"), queued(3, "junk"), queued(4, "pay"))
		p := rulesOf(3).planAllocations(w, reader(nil), viewOf(w, block('a', 100)), nil)
		if got, want := outline(p), "q-2=5, q-4=6, q-1 rejected, q-3 rejected"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if m := p.transitions[0]; m.From != Queued || m.To.Nonce != nil || m.To.LastError == "" {
			t.Errorf("got %+v, want from QUEUED, without a nonce, with a reason", m)
		}
	})
}

// H27: a reverting estimate rejects an intent only with no open transaction, on a node that does
// not lag. Otherwise the intent is deferred, and later ones pass it.
func TestH27RevertingEstimateRejectsOnlyWhereNothingCanChangeIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		finalHead uint64
		unsettled []Tx
		before    []Tx // in the queue
		want      string
		waiting   bool
	}{
		{"nothing unsettled, past the last final block", 99, nil, nil, "q-2=5, q-1 rejected", false},
		{"nothing unsettled, at the last final block", 100, nil, nil, "q-2=5, q-1 rejected", false},
		{"nothing was ever final", 0, nil, nil, "q-2=5, q-1 rejected", false},
		{"the node is behind", 101, nil, nil, "q-1 waits", true},
		{"one in flight", 99, []Tx{pending(4)}, nil, "q-2=5, q-1 aside until 4", false},
		{"one in flight, and the node is behind", 101, []Tx{pending(4)}, nil, "q-2=5, q-1 aside until 4", false},
		{"one prepared just now", 99, nil, []Tx{queued(0, "pay")}, "q-0=5, q-2=6, q-1 aside until 5", false},
		{"both", 99, []Tx{pending(4)}, []Tx{queued(0, "pay")}, "q-0=5, q-2=6, q-1 aside until 5", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			frozen(t, func(t *testing.T) {
				w := queue(stateOf(5, 5, c.unsettled...), append(c.before, queued(1, "call"), queued(2, "pay"))...)
				w.FinalHead = c.finalHead
				p := rulesOf(3).planAllocations(w, reader(nil), viewOf(w, block('a', 100)), estimates1(reverts()))
				if got := outline(p); got != c.want || p.waiting != c.waiting {
					t.Errorf("got %q, waiting %v; want %q, %v", got, p.waiting, c.want, c.waiting)
				}
			})
		})
	}
}

// H27: a call with its own gas needs no estimate, and ignores one.
func TestH27GivenGasSkipsTheEstimate(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := queue(stateOf(1, 5), queued(1, "pay"))
		p := rulesOf(3).planAllocations(w, reader(nil), viewOf(w, block('a', 100)), estimates1(reverts()))
		if got := outline(p); got != "q-1=5" || p.unsigned[0].Gas != 21_000 {
			t.Errorf("got %q with %+v, want nonce 5 and the gas given", got, p.unsigned)
		}
	})
}

// An unknown estimate blocks the queue: later intents must not pass.
func TestUnknownEstimateWaitsAndBlocks(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r := rulesOf(3)
		for _, estimates := range []map[string]Estimate{nil, estimates1(Estimate{}), estimates1(Estimate{Reason: "the node is busy"})} {
			w := queue(stateOf(5, 5), queued(0, "pay"), queued(1, "call"), queued(2, "pay"))
			p := r.planAllocations(w, reader(nil), viewOf(w, block('a', 100)), estimates)
			if got, want := outline(p), "q-0=5, q-1 waits"; got != want || !p.waiting {
				t.Fatalf("%v: got %q, waiting %v; want %q, true", estimates, got, p.waiting, want)
			}
			to := p.transitions[0].To
			if to.State != Queued || to.LastError == "" || !to.NextCheckAt.Equal(dbNow.Add(r.BlockTime)) || to.Nonce != nil {
				t.Errorf("got %+v, want QUEUED with a reason, after a block", to)
			}
		}
	})
}

// H26: the account must be able to pay the worst cost of all open nonces and of this one, and a
// placeholder for each. With one wei less the intent waits.
func TestH26BalanceCoversEveryOpenNonceAndAPlaceholderForEach(t *testing.T) {
	t.Parallel()
	const feeCap = 1000
	one := int64(21_000*feeCap + 5 + 21_000*feeCap*9/8) // the call, its value, its placeholder
	call := map[string]Call{"pay": {To: &Address{}, Value: big.NewInt(5), Gas: 21_000, FeeCapWei: big.NewInt(feeCap), TipCapWei: big.NewInt(1)}}
	holding := func(n uint64, s State, sub SubState) Tx {
		tx := held(n, s, sub)
		tx.Gas = params(21_000, feeCap, 5)
		return tx
	}
	mined := holding(3, Tracking, Included)
	mined.Receipt = new(receiptOf(mined, block('a', 90)))
	for _, c := range []struct {
		name      string
		unsettled []Tx
		balance   int64
		want      string
	}{
		{"enough for one", nil, one, "q-1=5, q-2 waits"},
		{"a wei short of one", nil, one - 1, "q-1 waits"},
		{"enough for two", nil, 2 * one, "q-1=5, q-2=6"},
		{"a wei short of two", nil, 2*one - 1, "q-1=5, q-2 waits"},
		{"nothing at all", nil, 0, "q-1 waits"},
		{"one held", []Tx{holding(4, Tracking, Pending)}, 2 * one, "q-1=5, q-2 waits"},
		{"one held, a wei short", []Tx{holding(4, Tracking, Pending)}, 2*one - 1, "q-1 waits"},
		{"one held eats it all", []Tx{holding(4, Tracking, Pending)}, 0, "q-1 waits"},
		{"a stuck one counts too", []Tx{holding(4, Stuck, "")}, 2*one - 1, "q-1 waits"},
		{"one without bytes counts too", []Tx{{State: InFlight, Nonce: new(uint64(4)), Gas: params(21_000, feeCap, 5)}}, 2*one - 1, "q-1 waits"},
		{"what is mined is paid", []Tx{mined}, one, "q-1=5, q-2 waits"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			frozen(t, func(t *testing.T) {
				w := queue(stateOf(5, 5, c.unsettled...), queued(1, "pay"), queued(2, "pay"), queued(3, "junk"))
				v := viewOf(w, block('a', 100))
				v.Account.BalanceWei = big.NewInt(c.balance)
				p := rulesOf(3).planAllocations(w, reader(call), v, nil)
				if got := strings.TrimSuffix(outline(p), ", q-3 rejected"); got != c.want {
					t.Errorf("balance %d: got %q, want %q", c.balance, got, c.want)
				}
				if v.Account.BalanceWei.Int64() != c.balance {
					t.Errorf("the view's balance became %s", v.Account.BalanceWei)
				}
			})
		})
	}
}

func TestShortBalanceSaysByHowMuch(t *testing.T) {
	t.Parallel()
	p := newAvailableBalance(ChainObservation{Account: Account{BalanceWei: big.NewInt(1_000_000)}}, nil)
	g := *params(21_000, 80, 1) // 1,680,001 and a placeholder of 1,890,000
	if short := p.reserve(g); short == nil || short.Int64() != 2_570_001 {
		t.Errorf("got %v short, want 2570001", short)
	}
	if p.leftWei.Int64() != 1_000_000 {
		t.Errorf("a refused purchase took money: %s left", p.leftWei)
	}
}

func TestGasOfAnEstimateHasAMargin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		given, most uint64
		e           Estimate
		want        uint64
		verdict     Outcome
	}{
		{0, 0, estimated(21_000), 21_000, Done}, // a plain transfer is exact
		{0, 0, estimated(21_001), 25_201, Done},
		{0, 0, estimated(100_000), 120_000, Done},
		{0, 130_000, estimated(100_000), 120_000, Done},
		{0, 110_000, estimated(100_000), 110_000, Done},
		{0, 100_000, estimated(100_001), 0, Refused},
		{0, 21_000, estimated(21_000), 21_000, Done},
		{50_000, 0, estimated(100_000), 50_000, Done},
		{50_000, 0, reverts(), 50_000, Done},
		{50_000, 0, Estimate{}, 50_000, Done},
		{0, 0, reverts(), 0, Refused},
		{0, 90_000, reverts(), 0, Refused},
		{0, 0, Estimate{}, 0, Unknown},
	} {
		if got, verdict, _ := gasLimit(Call{Gas: c.given, MaxGas: c.most}, c.e, 0); got != c.want || verdict != c.verdict {
			t.Errorf("given %d, estimate %+v: got %d, %s; want %d, %s", c.given, c.e, got, verdict, c.want, c.verdict)
		}
	}
}

func TestFeesFillInWhatThePayloadLeavesOpen(t *testing.T) {
	t.Parallel()
	a := Account{BaseFeeWei: big.NewInt(100), TipWei: big.NewInt(3)}
	for _, c := range []struct {
		name             string
		cap, tip         *big.Int
		wantCap, wantTip int64
	}{
		{"nothing given", nil, nil, 203, 3},
		{"tip given", nil, big.NewInt(50), 250, 50},
		{"tip of zero given: no node holds that", nil, big.NewInt(0), 201, 1},
		{"cap given", big.NewInt(150), nil, 150, 3},
		{"cap below the node's tip", big.NewInt(2), nil, 2, 2},
		{"both given", big.NewInt(150), big.NewInt(50), 150, 50},
		{"equal", big.NewInt(50), big.NewInt(50), 50, 50},
	} {
		g := completeFees(Call{FeeCapWei: c.cap, TipCapWei: c.tip, Value: big.NewInt(9)}, 30_000, a)
		if g.FeeCapWei.Int64() != c.wantCap || g.TipCapWei.Int64() != c.wantTip || g.Gas != 30_000 || g.ValueWei.Int64() != 9 {
			t.Errorf("%s: got %+v, want cap %d, tip %d", c.name, g, c.wantCap, c.wantTip)
		}
	}
	if g := completeFees(Call{}, 1, a); g.ValueWei == nil || g.ValueWei.Sign() != 0 {
		t.Errorf("no value: got %v, want 0", g.ValueWei)
	}
	if a.BaseFeeWei.Int64() != 100 || a.TipWei.Int64() != 3 {
		t.Errorf("the view's fees became %+v", a)
	}
}

// An unsigned transaction is the call, with the nonce and fees that were bound.
func TestUnsignedIsTheCallAsBound(t *testing.T) {
	t.Parallel()
	to := Address{19: 7}
	tx := bare(5)
	tx.Gas = params(30_000, 200, 9)
	want := Unsigned{ChainID: 1337, Nonce: 5, To: &to, Value: big.NewInt(9), Data: []byte{1, 2}, Gas: 30_000, FeeCapWei: big.NewInt(200), TipCapWei: big.NewInt(1)}
	if d := diff(want, buildUnsigned(tx, Call{To: &to, Value: big.NewInt(9), Data: []byte{1, 2}})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if u := buildUnsigned(tx, Call{}); u.To != nil {
		t.Errorf("a deployment goes to %s, want nobody", u.To)
	}
}

// Reasons why no nonce is allocated now, in words that an operator understands.
func TestWhatForbidsAllocation(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		none := func(*SubmitterState, *ChainObservation) {}
		for _, c := range []struct {
			name   string
			change func(*SubmitterState, *ChainObservation)
			held   []Tx
			want   string // part of the reason; "": allowed
		}{
			{"nothing held", none, nil, ""},
			{"two acknowledged", none, []Tx{pending(4), pending(5)}, ""},
			{"one included", none, []Tx{included(5, block('a', 99))}, ""},
			{"in PROTECT", func(w *SubmitterState, _ *ChainObservation) { w.Protected = true }, nil, "PROTECT"},
			{"suspended", func(w *SubmitterState, _ *ChainObservation) { w.Suspended = true }, nil, "suspended"},
			{"the account has code", func(_ *SubmitterState, v *ChainObservation) { v.Account.HasCode = true }, nil, "code"},
			{"latest count ahead", func(_ *SubmitterState, v *ChainObservation) { v.Account.LatestCount = 7 }, nil, "ahead"},
			{"pending count ahead", func(_ *SubmitterState, v *ChainObservation) { v.Account.PendingCount = 7 }, nil, "ahead"},
			{"the node lags", func(_ *SubmitterState, v *ChainObservation) { v.Account.LatestCount = 5 }, nil, "lags"},
			{"the node lags below what is held", func(_ *SubmitterState, v *ChainObservation) { v.Account.LatestCount = 3 }, []Tx{pending(4), pending(5)}, "lags"},
			{"a stuck one below", none, []Tx{pending(4), stuck(5)}, "STUCK"},
			{"an unacknowledged one below", none, []Tx{submitted(4), pending(5)}, "SUBMITTED"},
			{"one without bytes below", none, []Tx{bare(5)}, "IN_FLIGHT"},
			{"one in PROTECT below", none, []Tx{held(5, Protect, "")}, "PROTECT"},
		} {
			w := stateOf(5, 6, c.held...)
			v := viewOf(w, block('a', 100))
			c.change(&w, &v)
			got := allocationBlockedReason(w, w.Open, v)
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%s: got %q, want %q in it", c.name, got, c.want)
			}
		}
	})
}

// A waiting intent has a next check time, and is not checked before.
func TestWaitingIsPlanned(t *testing.T) {
	t.Parallel()
	var p allocationPlan
	until := dbNow.Add(time.Minute)
	p.wait(queued(1, "pay"), "for rain", until)
	to := p.transitions[0].To
	if p.transitions[0].From != Queued || to.State != Queued || to.LastError != "for rain" || !to.NextCheckAt.Equal(until) || !p.waiting {
		t.Errorf("got %+v, waiting %v", to, p.waiting)
	}
}

// No first version pays more than the deployment's fee limit, whatever the node advises or the
// caller allows. While blocks require more, the intent waits.
func TestFeesStayUnderTheCeiling(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r := rulesOf(3)
		r.FeeCapWei = big.NewInt(15)
		for _, c := range []struct {
			name    string
			base    int64
			tip     int64
			want    string
			fee     int64
			waiting bool
		}{
			{"the advice is above it", 10, 10_000, "q-1=5", 15, false},
			{"the base fee is above it", 16, 1, "q-1 waits", 0, true},
		} {
			w := queue(stateOf(1, 5), queued(1, "pay"))
			v := viewOf(w, block('a', 100))
			v.Account.BaseFeeWei, v.Account.TipWei = big.NewInt(c.base), big.NewInt(c.tip)
			p := r.planAllocations(w, reader(nil), v, nil)
			if got := outline(p); got != c.want || p.waiting != c.waiting {
				t.Errorf("%s: got %q, waiting %v; want %q, %v", c.name, got, p.waiting, c.want, c.waiting)
			}
			if len(p.unsigned) > 0 && (p.unsigned[0].FeeCapWei.Int64() != c.fee || p.unsigned[0].TipCapWei.Int64() > c.fee) {
				t.Errorf("%s: got %s and a tip of %s, want at most %d", c.name, p.unsigned[0].FeeCapWei, p.unsigned[0].TipCapWei, c.fee)
			}
		}
	})
}

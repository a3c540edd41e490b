package txmanager

import (
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func wei(n int64) *big.Int { return big.NewInt(n) }

// An intent that the policy never allows is refused without a nonce. One that is only too
// expensive now waits. Fees that the caller left open are lowered to the bounds.
func TestBoundsBeforeANonceIsBound(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		to := Address{19: 0xb0}
		given := func(gas uint64, cap, tip int64) Call {
			return Call{To: &to, Value: wei(1), Gas: gas, FeeCapWei: wei(cap), TipCapWei: wei(tip)}
		}
		open := Call{To: &to, Value: wei(1), Gas: 30_000} // fees by the node: a cap of 22, a tip of 2
		for name, c := range map[string]struct {
			bounds Bounds
			rules  func(*Rules)
			call   Call
			want   string // outline
			why    string // in the reason
			params *GasParams
		}{
			"no bounds":                    {call: open, want: "q-1=5", params: params(30_000, 22, 1)},
			"gas at its bound":             {bounds: Bounds{Gas: 30_000}, call: open, want: "q-1=5"},
			"value at its bound":           {bounds: Bounds{ValueWei: wei(1)}, call: open, want: "q-1=5"},
			"value above":                  {bounds: Bounds{ValueWei: wei(0)}, call: open, want: "q-1 rejected", why: "at most 0 wei"},
			"a receiver on the list":       {bounds: Bounds{Targets: []string{to.String()}}, call: open, want: "q-1=5"},
			"another receiver":             {bounds: Bounds{Targets: []string{"deploy"}}, call: open, want: "q-1 rejected", why: "does not allow this receiver"},
			"a deployment":                 {bounds: Bounds{Targets: []string{to.String()}}, call: Call{Value: wei(1), Gas: 30_000}, want: "q-1 rejected", why: "does not allow this receiver"},
			"a deployment on the list":     {bounds: Bounds{Targets: []string{"deploy"}}, call: Call{Value: wei(1), Gas: 30_000}, want: "q-1=5"},
			"gas above":                    {bounds: Bounds{Gas: 29_999}, call: open, want: "q-1 rejected", why: "at most 29999 gas"},
			"a tip above":                  {bounds: Bounds{TipWei: wei(2)}, call: given(30_000, 22, 3), want: "q-1 rejected", why: "a tip of at most 2"},
			"the node's tip above":         {bounds: Bounds{TipWei: wei(1)}, call: open, want: "q-1=5", params: params(30_000, 22, 1)},
			"a fee above":                  {bounds: Bounds{FeeWei: wei(30_000*22 - 1)}, call: given(30_000, 22, 2), want: "q-1 rejected", why: "a fee of at most 659999"},
			"the node's fee above":         {bounds: Bounds{FeeWei: wei(30_000 * 15)}, call: open, want: "q-1=5", params: params(30_000, 15, 2)},
			"only the base fee above":      {bounds: Bounds{FeeWei: wei(30_000*10 - 1)}, call: open, want: "q-1 waits", why: "fee: at what blocks take now"},
			"no fee is that small":         {bounds: Bounds{FeeWei: wei(29_999)}, call: open, want: "q-1 rejected", why: "a fee of at most 29999"},
			"a day of nothing":             {bounds: Bounds{FeesPerDayWei: wei(0)}, call: open, want: "q-1 rejected", why: "at most 0 wei"},
			"a day's fees are fitted to":   {bounds: Bounds{FeesPerDayWei: wei(30_000 * 20)}, call: open, want: "q-1=5", params: params(30_000, 20, 2)},
			"a day that is used up":        {bounds: Bounds{FeesPerDayWei: wei(30_000 * 22), FeesUsedWei: wei(1)}, call: open, want: "q-1 waits", why: "fee: the submitter's policy"},
			"the deployment's, both given": {rules: func(r *Rules) { r.TxFeeCapWei = wei(30_000*22 - 1) }, call: given(30_000, 22, 2), want: "q-1 rejected", why: "fees.maxFeePerTx"},
			"the deployment's, no cap":     {rules: func(r *Rules) { r.TxFeeCapWei = wei(30_000 * 12) }, call: open, want: "q-1=5", params: params(30_000, 12, 2)},
			"the deployment's, base fee":   {rules: func(r *Rules) { r.TxFeeCapWei = wei(30_000 * 9) }, call: open, want: "q-1 waits", why: "fees.maxFeePerTx"},
			"a tip of many times advice":   {rules: func(r *Rules) { r.TipMultiple = 10 }, call: given(30_000, 100, 90), want: "q-1=5", params: params(30_000, 100, 20)},
			"a floor above that":           {rules: func(r *Rules) { r.TipMultiple, r.TipFloorWei = 10, wei(30) }, call: given(30_000, 100, 90), want: "q-1=5", params: params(30_000, 100, 30)},
		} {
			r := rulesOf(3)
			if c.rules != nil {
				c.rules(&r)
			}
			w := queue(stateOf(1, 5), queued(1, "it"))
			w.Bounds = c.bounds
			p := r.planAllocations(w, reader(map[string]Call{"it": c.call}), viewOf(w, block('a', 100)), nil)
			if got := outline(p); got != c.want {
				t.Errorf("%s: got %q, want %q", name, got, c.want)
				continue
			}
			if c.why != "" && !strings.Contains(p.transitions[0].To.LastError, c.why) {
				t.Errorf("%s: got %q, want %q in it", name, p.transitions[0].To.LastError, c.why)
			}
			if c.params != nil && p.unsigned[0].FeeCapWei.Cmp(c.params.FeeCapWei) != 0 {
				t.Errorf("%s: got a cap of %s, want %s", name, p.unsigned[0].FeeCapWei, c.params.FeeCapWei)
			}
		}
	})
}

// An estimate above the policy's gas is refused as a reverting one is: only where no open
// transaction can change it.
func TestBoundsOfAnEstimate(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := queue(stateOf(2, 5), queued(1, "call"))
		w.Bounds.Gas = 50_000
		e := map[string]Estimate{"q-1": {Outcome: Done, Gas: 50_001}}
		p := rulesOf(3).planAllocations(w, reader(nil), viewOf(w, block('a', 100)), e)
		if got := outline(p); got != "q-1 rejected" || !strings.Contains(p.transitions[0].To.LastError, "50000") {
			t.Errorf("got %q %+v, want it refused", got, p.transitions)
		}
		w = queue(stateOf(2, 6, pending(5)), queued(1, "call"))
		w.Bounds.Gas = 50_000
		if p := rulesOf(3).planAllocations(w, reader(nil), viewOf(w, block('a', 100)), e); len(p.transitions) != 1 || p.transitions[0].To.State != Queued {
			t.Errorf("behind what is in flight: got %+v, want it set aside", p.transitions)
		}
		e["q-1"] = Estimate{Outcome: Done, Gas: 49_000}
		w = queue(stateOf(2, 5), queued(1, "call"))
		w.Bounds.Gas = 50_000
		if p := rulesOf(3).planAllocations(w, reader(nil), viewOf(w, block('a', 100)), e); len(p.unsigned) != 1 || p.unsigned[0].Gas != 50_000 {
			t.Errorf("below it: got %+v, want a limit of 50000", p.unsigned)
		}
	})
}

// Of many intents only as many get a nonce as the day has fees for; the rest wait.
func TestFeesOfADayLimitAWholeIteration(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := queue(stateOf(4, 5), queued(1, "pay"), queued(2, "pay"), queued(3, "pay"))
		w.Bounds = Bounds{FeesPerDayWei: wei(21_000*22*2 + 1), FeesUsedWei: wei(1)}
		p := rulesOf(3).planAllocations(w, reader(nil), viewOf(w, block('a', 100)), nil)
		if len(p.allocations) != 2 || !p.waiting {
			t.Fatalf("got %d bound, want 2 and the third to wait", len(p.allocations))
		}
		after := w.afterCommit(Commit{Allocations: p.allocations})
		if got := after.Bounds.FeesUsedWei.Int64(); got != 21_000*22*2+1 {
			t.Errorf("used after it: got %d, want all", got)
		}
	})
}

// A first version and every gas bump stay within the bounds, whatever a caller, a node and a
// policy contain. The worst-case fees of a day therefore never exceed the policy's limit.
func TestPropertyNothingIsSignedAboveItsBounds(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		to := Address{19: 0xb0}
		rnd := rand.New(rand.NewPCG(5, 18))
		some := func(most int64) *big.Int {
			if rnd.IntN(2) == 0 {
				return nil
			}
			return wei(1 + rnd.Int64N(most))
		}
		signed, bid := 0, 0
		for range 20_000 {
			r := bumpRules()
			r.FeeCapWei, r.PlaceholderFeeCapWei, r.TxFeeCapWei = some(200), wei(1+rnd.Int64N(300)), some(21_000*200)
			r.TipMultiple, r.TipFloorWei = rnd.Int64N(4), some(20)
			b := Bounds{TipWei: some(30), FeeWei: some(21_000 * 100), FeesPerDayWei: some(21_000 * 300), FeesUsedWei: wei(rnd.Int64N(21_000 * 100))}
			call := Call{To: &to, Value: wei(1), Gas: 21_000, FeeCapWei: some(200)}
			if call.TipCapWei = some(100); call.FeeCapWei != nil && exceeds(call.TipCapWei, call.FeeCapWei) {
				call.TipCapWei = nil
			}
			w := queue(stateOf(1, 5), queued(1, "it"))
			w.Bounds = b
			v := viewOf(w, block('a', 100))
			v.Account.BaseFeeWei, v.Account.TipWei = wei(rnd.Int64N(100)), wei(rnd.Int64N(10))
			chain := reader(map[string]Call{"it": call})
			p := r.planAllocations(w, chain, v, nil)
			if len(p.allocations) == 0 {
				continue
			}
			signed++
			g := *p.allocations[0].Tx.Gas
			check := func(what string, g GasParams, txFee *big.Int) {
				if reason := b.RefusalReason(BoundedTerms{Gas: g.Gas, TipWei: g.TipCapWei, FeeWei: g.feeWei()}); reason != "" {
					t.Fatalf("%s: %+v of %+v: %s", what, g, b, reason)
				}
				if most := r.maxTip(b, v.Account); exceeds(g.TipCapWei, most) || exceeds(g.feeWei(), txFee) {
					t.Fatalf("%s: %+v: above a tip of %s or a fee of %s", what, g, most, txFee)
				}
			}
			check("a first version", g, r.TxFeeCapWei)
			after := w.afterCommit(Commit{Allocations: p.allocations})
			if exceeds(after.Bounds.FeesUsedWei, b.FeesPerDayWei) && b.FeesPerDayWei != nil {
				t.Fatalf("%+v of %+v: above the day's fees", g, b)
			}
			tx := waiting(5)
			tx.Payload, tx.Gas, tx.NextBumpAt = []byte("it"), &g, ago(time.Second)
			now := stateOf(1, 6, tx)
			now.Bounds = after.Bounds
			later := viewOf(now, block('a', 100))
			later.Account.BaseFeeWei, later.Account.TipWei = wei(rnd.Int64N(300)), v.Account.TipWei
			jobs, _ := r.planSignatures(now, chain, later, nil)
			if len(jobs) == 0 {
				continue
			}
			bid++
			next := *jobs[0].tx.Gas
			most := r.TxFeeCapWei
			if most != nil {
				most = thousandths(thousandths(most, replaceFactor), replaceFactor)
			}
			check("a bid", next, most)
			if exceeds(thousandths(next.FeeCapWei, replaceFactor), r.PlaceholderFeeCapWei) {
				t.Fatalf("a bid of %s: no placeholder of %s outbids it", next.FeeCapWei, r.PlaceholderFeeCapWei)
			}
			if used := now.afterCommit(Commit{Versions: []Version{{Tx: jobs[0].tx, Kind: VersionBump}}}).Bounds.FeesUsedWei; b.FeesPerDayWei != nil && exceeds(used, b.FeesPerDayWei) {
				t.Fatalf("a bid of %+v of %+v: above the day's fees", next, b)
			}
		}
		if signed < 1000 || bid < 100 {
			t.Errorf("got %d first versions and %d bids: too few to tell", signed, bid)
		}
	})
}

// An operator's replacement must fit the policy, and leave room for a placeholder. A placeholder
// has only its own limit.
func TestBoundsOfAReplacement(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		tx := submitted(5)
		tx.RequestedAction, tx.Gas = ActionReplace, params(21_000, 80, 1)
		for name, c := range map[string]struct {
			bounds Bounds
			rules  Rules
			order  Action
			want   string // in the reason; "": it is signed
			fee    int64  // that is signed, wei per gas; 0: any
		}{
			"no bounds":                     {order: ActionReplace, fee: 90},
			"the policy's fee":              {bounds: Bounds{FeeWei: wei(21_000*88 - 1)}, order: ActionReplace, want: "at least 88 wei per gas, a tenth more than the last version, and only 87"},
			"lowered to the policy's fee":   {bounds: Bounds{FeeWei: wei(21_000 * 88)}, order: ActionReplace, fee: 88},
			"the policy's tip":              {bounds: Bounds{TipWei: wei(1)}, order: ActionReplace, want: "must tip at least 2 wei per gas, a tenth more than the last version, and only 1"},
			"the day's fees":                {bounds: Bounds{FeesPerDayWei: wei(21_000 * 100), FeesUsedWei: wei(21_000*90 + 1)}, order: ActionReplace, want: "used up"},
			"room for a placeholder":        {rules: Rules{Limits: Limits{PlaceholderFeeCapWei: wei(98)}}, order: ActionReplace, want: "8/9 of nonce.placeholderMaxFeePerGas"},
			"just enough room":              {rules: Rules{Limits: Limits{PlaceholderFeeCapWei: wei(99)}}, order: ActionReplace, fee: 88},
			"a fee that nodes do not send":  {rules: Rules{Limits: Limits{TxFeeCapWei: wei(21_000 * 69)}}, order: ActionReplace, want: "81/64 of fees.maxFeePerTx"},
			"a placeholder under a policy":  {bounds: Bounds{FeeWei: wei(1), TipWei: wei(1), FeesPerDayWei: wei(0)}, order: ActionPlaceholder},
			"a placeholder under its bound": {rules: Rules{Limits: Limits{PlaceholderFeeCapWei: wei(87)}}, order: ActionPlaceholder, want: "at least 88 wei per gas, a tenth more than the last version, and only 87 is allowed by nonce.placeholderMaxFeePerGas"},
			"a placeholder at its bound":    {rules: Rules{Limits: Limits{PlaceholderFeeCapWei: wei(88)}}, order: ActionPlaceholder, fee: 88},
		} {
			r := rulesOf(3)
			r.PlaceholderFeeCapWei, r.TxFeeCapWei = c.rules.PlaceholderFeeCapWei, c.rules.TxFeeCapWei
			x := tx
			x.RequestedAction = c.order
			w := stateOf(1, 6, x)
			w.Bounds = c.bounds
			v := viewOf(w, block('a', 100))
			v.SelfTransfer = Estimate{Outcome: Done, Gas: 21_000}
			jobs, moves := r.planSignatures(w, reader(nil), v, nil)
			if signed := len(jobs) == 1; signed != (c.want == "") {
				t.Errorf("%s: got %d signed, %+v; want %q", name, len(jobs), moves, c.want)
			} else if !signed && !strings.Contains(moves[0].To.LastError, c.want) {
				t.Errorf("%s: got %q, want %q in it", name, moves[0].To.LastError, c.want)
			} else if signed && c.fee != 0 && jobs[0].unsigned.FeeCapWei.Int64() != c.fee {
				t.Errorf("%s: got a fee of %s wei per gas, want %d", name, jobs[0].unsigned.FeeCapWei, c.fee)
			}
		}
	})
}

// Fees of bytes signed elsewhere cannot be lowered: above a bound they are refused. For legacy
// bytes the tip is the part of the price above the base fee.
func TestBoundsOfSignedBytes(t *testing.T) {
	t.Parallel()
	r := rulesOf(3)
	r.TipMultiple, r.TxFeeCapWei = 10, wei(21_000*1000)
	a := Account{BaseFeeWei: wei(10), TipWei: wei(2)}
	legacy := func(price int64) GasParams {
		return GasParams{Gas: 21_000, Legacy: true, FeeCapWei: wei(price), TipCapWei: wei(price)}
	}
	tipped := func(tip int64) GasParams { return GasParams{Gas: 21_000, FeeCapWei: wei(100), TipCapWei: wei(tip)} }
	for name, c := range map[string]struct {
		bounds Bounds
		g      GasParams
		a      Account
		want   string
	}{
		"a tip of many times advice":    {g: tipped(21), a: a},
		"the policy's tip":              {bounds: Bounds{TipWei: wei(5)}, g: tipped(6), a: a, want: "a tip of at most 5"},
		"legacy form":                   {bounds: Bounds{TipWei: wei(5)}, g: legacy(15), a: a},
		"legacy form with a higher tip": {bounds: Bounds{TipWei: wei(5)}, g: legacy(16), a: a, want: "a tip of at most 5"},
		"one price in type 2":           {bounds: Bounds{TipWei: wei(5)}, g: GasParams{Gas: 21_000, FeeCapWei: wei(16), TipCapWei: wei(16)}, a: a, want: "a tip of at most 5"},
		"a chain of one price":          {bounds: Bounds{TipWei: wei(5)}, g: legacy(31), a: Account{BaseFeeWei: wei(0), GasPriceWei: wei(30)}},
		"a fee that nodes do not send":  {g: legacy(1001), a: Account{BaseFeeWei: wei(0), GasPriceWei: wei(30)}, want: "fees.maxFeePerTx"},
		"the policy's gas":              {bounds: Bounds{Gas: 20_999}, g: tipped(1), a: a, want: "at most 20999 gas"},
	} {
		if got := r.signedFeesReason(c.bounds, c.g, c.a); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q in it", name, got, c.want)
		}
	}
}

// The pure function checks value and receiver too.
func TestBoundsOfValueAndTarget(t *testing.T) {
	t.Parallel()
	b := Bounds{ValueWei: wei(5), Targets: []string{"0xa"}}
	for want, a := range map[string]BoundedTerms{
		"":                 {ValueWei: wei(5), Target: "0xa"},
		"at most 5 wei":    {ValueWei: wei(6), Target: "0xa"},
		"not allow this r": {ValueWei: wei(5), Target: "deploy"},
	} {
		if got := b.RefusalReason(a); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%+v: got %q, want %q in it", a, got, want)
		}
	}
	if got := b.RefusalReason(BoundedTerms{}); got != "" {
		t.Errorf("what is not known yet: got %q", got)
	}
}

// Where a policy names functions of a contract, a queued intent may call only these, and must not
// send value without a call.
func TestBoundsOfFunctions(t *testing.T) {
	t.Parallel()
	to, other := Address{19: 0xa}, Address{19: 0xb}
	transfer := []byte{0xa9, 0x05, 0x9c, 0xbb}
	b := Bounds{Targets: []string{to.String() + ":0xa9059cbb", other.String()}}
	for name, c := range map[string]struct {
		call    Call
		allowed bool
	}{
		"the function":                 {Call{To: &to, Data: append(transfer, 1, 2)}, true},
		"the function, without data":   {Call{To: &to, Data: transfer}, true},
		"another function":             {Call{To: &to, Data: []byte{0x09, 0x5e, 0xa7, 0xb3, 1}}, false},
		"no function":                  {Call{To: &to}, false},
		"data too short for one":       {Call{To: &to, Data: transfer[:3]}, false},
		"its data as a contract":       {Call{Data: transfer}, false},
		"an address that stands alone": {Call{To: &other, Data: []byte{0x09, 0x5e, 0xa7, 0xb3}}, true},
		"payment to one":               {Call{To: &other}, true},
	} {
		if got := (Rules{}).forbiddenReason(b, Tx{}, c.call); (got == "") != c.allowed {
			t.Errorf("%s: got %q, want it allowed: %t", name, got, c.allowed)
		}
		if got := (Rules{}).forbiddenReason(b, Tx{Handler: "shop"}, c.call); got != "" {
			t.Errorf("%s, of a handler that was not asked yet: got %q", name, got)
		}
	}
}

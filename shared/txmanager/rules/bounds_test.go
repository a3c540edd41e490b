package rules

import (
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// An intent that the policy never allows is refused without a nonce. One that is only too
// expensive now waits. Fees that the caller left open are lowered to the bounds.
func TestBoundsBeforeANonceIsBound(t *testing.T) {
	t.Parallel()
	to := eip155.Address([20]byte{19: 0xb0})
	given := func(gas uint64, cap, tip int64) txmanager.Call {
		return txmanager.Call{To: &to, Value: txtest.Wei(1), Gas: gas, FeeCapWei: txtest.Wei(cap), TipCapWei: txtest.Wei(tip)}
	}
	open := txmanager.Call{To: &to, Value: txtest.Wei(1), Gas: 30_000} // fees by the node: a cap of 22, a tip of 2
	for name, c := range map[string]struct {
		bounds txmanager.Bounds
		rules  func(*Rules)
		call   txmanager.Call
		want   string // outline
		why    string // in the reason
		params *txmanager.GasParams
	}{
		"no bounds":                    {call: open, want: "q-1=5", params: txtest.Params(30_000, 22, 1)},
		"gas at its bound":             {bounds: txmanager.Bounds{Gas: 30_000}, call: open, want: "q-1=5"},
		"value at its bound":           {bounds: txmanager.Bounds{ValueWei: txtest.Wei(1)}, call: open, want: "q-1=5"},
		"value above":                  {bounds: txmanager.Bounds{ValueWei: txtest.Wei(0)}, call: open, want: "q-1 rejected", why: "at most 0 wei"},
		"a receiver on the list":       {bounds: txmanager.Bounds{Targets: []string{to.String()}}, call: open, want: "q-1=5"},
		"another receiver":             {bounds: txmanager.Bounds{Targets: []string{"deploy"}}, call: open, want: "q-1 rejected", why: "does not allow this target"},
		"a deployment":                 {bounds: txmanager.Bounds{Targets: []string{to.String()}}, call: txmanager.Call{Value: txtest.Wei(1), Gas: 30_000}, want: "q-1 rejected", why: "does not allow this target"},
		"a deployment on the list":     {bounds: txmanager.Bounds{Targets: []string{"deploy"}}, call: txmanager.Call{Value: txtest.Wei(1), Gas: 30_000}, want: "q-1=5"},
		"gas above":                    {bounds: txmanager.Bounds{Gas: 29_999}, call: open, want: "q-1 rejected", why: "at most 29999 gas"},
		"a tip above":                  {bounds: txmanager.Bounds{TipWei: txtest.Wei(2)}, call: given(30_000, 22, 3), want: "q-1 rejected", why: "a tip of at most 2"},
		"the node's tip above":         {bounds: txmanager.Bounds{TipWei: txtest.Wei(1)}, call: open, want: "q-1=5", params: txtest.Params(30_000, 22, 1)},
		"a fee above":                  {bounds: txmanager.Bounds{FeeWei: txtest.Wei(30_000*22 - 1)}, call: given(30_000, 22, 2), want: "q-1 rejected", why: "a fee of at most 659999"},
		"the node's fee above":         {bounds: txmanager.Bounds{FeeWei: txtest.Wei(30_000 * 15)}, call: open, want: "q-1=5", params: txtest.Params(30_000, 15, 2)},
		"only the base fee above":      {bounds: txmanager.Bounds{FeeWei: txtest.Wei(30_000*10 - 1)}, call: open, want: "q-1 waits", why: "fee: at the current fees"},
		"no fee is that small":         {bounds: txmanager.Bounds{FeeWei: txtest.Wei(29_999)}, call: open, want: "q-1 rejected", why: "a fee of at most 29999"},
		"a day of nothing":             {bounds: txmanager.Bounds{FeesPerDayWei: txtest.Wei(0)}, call: open, want: "q-1 rejected", why: "at most 0 wei"},
		"a day's fees are fitted to":   {bounds: txmanager.Bounds{FeesPerDayWei: txtest.Wei(30_000 * 20)}, call: open, want: "q-1=5", params: txtest.Params(30_000, 20, 2)},
		"a day that is used up":        {bounds: txmanager.Bounds{FeesPerDayWei: txtest.Wei(30_000 * 22), FeesUsedWei: txtest.Wei(1)}, call: open, want: "q-1 waits", why: "fee: the submitter's policy"},
		"the deployment's, both given": {rules: func(r *Rules) { r.TxFeeCapWei = txtest.Wei(30_000*22 - 1) }, call: given(30_000, 22, 2), want: "q-1 rejected", why: "fees.maxFeePerTx"},
		"the deployment's, no cap":     {rules: func(r *Rules) { r.TxFeeCapWei = txtest.Wei(30_000 * 12) }, call: open, want: "q-1=5", params: txtest.Params(30_000, 12, 2)},
		"the deployment's, base fee":   {rules: func(r *Rules) { r.TxFeeCapWei = txtest.Wei(30_000 * 9) }, call: open, want: "q-1 waits", why: "fees.maxFeePerTx"},
		"a tip of many times advice":   {rules: func(r *Rules) { r.TipMultiple = 10 }, call: given(30_000, 100, 90), want: "q-1=5", params: txtest.Params(30_000, 100, 20)},
		"a floor above that":           {rules: func(r *Rules) { r.TipMultiple, r.TipFloorWei = 10, txtest.Wei(30) }, call: given(30_000, 100, 90), want: "q-1=5", params: txtest.Params(30_000, 100, 30)},
	} {
		r := rulesOf(3)
		if c.rules != nil {
			c.rules(&r)
		}
		w := txtest.Queue(txtest.StateOf(1, 5), txtest.Queued(1, "it"))
		w.Bounds = c.bounds
		p := r.PlanAllocations(w, txtest.Reader(map[string]txmanager.Call{"it": c.call}), txtest.ViewOf(w, txtest.Block('a', 100)), nil)
		if got := outline(p); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
			continue
		}
		if c.why != "" && !strings.Contains(p.Transitions[0].To.LastError, c.why) {
			t.Errorf("%s: got %q, want %q in it", name, p.Transitions[0].To.LastError, c.why)
		}
		if c.params != nil && p.Unsigned[0].FeeCapWei.Cmp(c.params.FeeCapWei) != 0 {
			t.Errorf("%s: got a cap of %s, want %s", name, p.Unsigned[0].FeeCapWei, c.params.FeeCapWei)
		}
	}
}

// An estimate above the policy's gas is refused as a reverting one is: only where no open
// transaction can change it.
func TestBoundsOfAnEstimate(t *testing.T) {
	t.Parallel()
	w := txtest.Queue(txtest.StateOf(2, 5), txtest.Queued(1, "call"))
	w.Bounds.Gas = 50_000
	e := map[string]txmanager.Estimate{"q-1": {Outcome: txmanager.Done, Gas: 50_001}}
	p := rulesOf(3).PlanAllocations(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), e)
	if got := outline(p); got != "q-1 rejected" || !strings.Contains(p.Transitions[0].To.LastError, "50000") {
		t.Errorf("got %q %+v, want it refused", got, p.Transitions)
	}
	w = txtest.Queue(txtest.StateOf(2, 6, txtest.Pending(5)), txtest.Queued(1, "call"))
	w.Bounds.Gas = 50_000
	if p := rulesOf(3).PlanAllocations(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), e); len(p.Transitions) != 1 || p.Transitions[0].To.State != txmanager.Queued {
		t.Errorf("behind what is in flight: got %+v, want it set aside", p.Transitions)
	}
	e["q-1"] = txmanager.Estimate{Outcome: txmanager.Done, Gas: 49_000}
	w = txtest.Queue(txtest.StateOf(2, 5), txtest.Queued(1, "call"))
	w.Bounds.Gas = 50_000
	if p := rulesOf(3).PlanAllocations(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), e); len(p.Unsigned) != 1 || p.Unsigned[0].Gas != 50_000 {
		t.Errorf("below it: got %+v, want a limit of 50000", p.Unsigned)
	}
}

// Of many intents only as many get a nonce as the day has fees for; the rest wait.
func TestFeesOfADayLimitAWholeIteration(t *testing.T) {
	t.Parallel()
	w := txtest.Queue(txtest.StateOf(4, 5), txtest.Queued(1, "pay"), txtest.Queued(2, "pay"), txtest.Queued(3, "pay"))
	w.Bounds = txmanager.Bounds{FeesPerDayWei: txtest.Wei(21_000*22*2 + 1), FeesUsedWei: txtest.Wei(1)}
	p := rulesOf(3).PlanAllocations(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), nil)
	if len(p.Allocations) != 2 || !p.Waiting {
		t.Fatalf("got %d bound, want 2 and the third to wait", len(p.Allocations))
	}
	after := AfterCommit(w, txmanager.Commit{Allocations: p.Allocations})
	check.Equal(t, "used after it", after.Bounds.FeesUsedWei.Int64(), 21_000*22*2+1)
}

// A first version and every gas bump stay within the bounds, whatever a caller, a node and a
// policy contain. The worst-case fees of a day therefore never exceed the policy's limit.
func TestPropertyNothingIsSignedAboveItsBounds(t *testing.T) {
	t.Parallel()
	to := eip155.Address([20]byte{19: 0xb0})
	rnd := rand.New(rand.NewPCG(5, 18))
	some := func(most int64) *big.Int {
		if rnd.IntN(2) == 0 {
			return nil
		}
		return txtest.Wei(1 + rnd.Int64N(most))
	}
	signed, bid := 0, 0
	for range 20_000 {
		r := bumpRules()
		r.MaxFeePerGasWei, r.PlaceholderFeeCapWei, r.TxFeeCapWei = some(200), txtest.Wei(1+rnd.Int64N(300)), some(21_000*200)
		r.TipMultiple, r.TipFloorWei = rnd.Int64N(4), some(20)
		b := txmanager.Bounds{TipWei: some(30), FeeWei: some(21_000 * 100), FeesPerDayWei: some(21_000 * 300), FeesUsedWei: txtest.Wei(rnd.Int64N(21_000 * 100))}
		call := txmanager.Call{To: &to, Value: txtest.Wei(1), Gas: 21_000, FeeCapWei: some(200)}
		if call.TipCapWei = some(100); call.FeeCapWei != nil && txmanager.ExceedsLimit(call.TipCapWei, call.FeeCapWei) {
			call.TipCapWei = nil
		}
		w := txtest.Queue(txtest.StateOf(1, 5), txtest.Queued(1, "it"))
		w.Bounds = b
		v := txtest.ViewOf(w, txtest.Block('a', 100))
		v.Account.BaseFeeWei, v.Account.TipWei = txtest.Wei(rnd.Int64N(100)), txtest.Wei(rnd.Int64N(10))
		chain := txtest.Reader(map[string]txmanager.Call{"it": call})
		p := r.PlanAllocations(w, chain, v, nil)
		if len(p.Allocations) == 0 {
			continue
		}
		signed++
		g := *p.Allocations[0].Tx.Gas
		check := func(what string, g txmanager.GasParams, txFee *big.Int) {
			if reason := b.RefusalReason(txmanager.BoundedTerms{Gas: g.Gas, TipWei: g.TipCapWei, FeeWei: g.FeeWei()}); reason != "" {
				t.Fatalf("%s: %+v of %+v: %s", what, g, b, reason)
			}
			if most := r.MaxTip(b, v.Account); txmanager.ExceedsLimit(g.TipCapWei, most) || txmanager.ExceedsLimit(g.FeeWei(), txFee) || txmanager.ExceedsLimit(g.FeeCapWei, r.MaxFeePerGasWei) {
				t.Fatalf("%s: %+v: above a tip of %s, a fee of %s or a price of %s", what, g, most, txFee, r.MaxFeePerGasWei)
			}
		}
		check("a first version", g, r.TxFeeCapWei)
		after := AfterCommit(w, txmanager.Commit{Allocations: p.Allocations})
		if txmanager.ExceedsLimit(after.Bounds.FeesUsedWei, b.FeesPerDayWei) && b.FeesPerDayWei != nil {
			t.Fatalf("%+v of %+v: above the day's fees", g, b)
		}
		tx := waiting(5)
		tx.Payload, tx.Gas, tx.NextBumpAt = []byte("it"), &g, txtest.Ago(time.Second)
		now := txtest.StateOf(1, 6, tx)
		now.Bounds = after.Bounds
		later := txtest.ViewOf(now, txtest.Block('a', 100))
		later.Account.BaseFeeWei, later.Account.TipWei = txtest.Wei(rnd.Int64N(300)), v.Account.TipWei
		jobs, _ := r.PlanSignatures(now, chain, later, HandlerResult{})
		if len(jobs) == 0 {
			continue
		}
		bid++
		next := *jobs[0].Tx.Gas
		most := r.TxFeeCapWei
		if most != nil {
			most = gas.Thousandths(gas.Thousandths(most, gas.ReplaceFactor), gas.ReplaceFactor)
		}
		check("a bid", next, most)
		if txmanager.ExceedsLimit(gas.Thousandths(next.FeeCapWei, gas.ReplaceFactor), r.PlaceholderFeeCapWei) {
			t.Fatalf("a bid of %s: no placeholder of %s outbids it", next.FeeCapWei, r.PlaceholderFeeCapWei)
		}
		if used := AfterCommit(now, txmanager.Commit{Versions: []txmanager.Version{{Tx: jobs[0].Tx, Kind: txmanager.VersionBump}}}).Bounds.FeesUsedWei; b.FeesPerDayWei != nil && txmanager.ExceedsLimit(used, b.FeesPerDayWei) {
			t.Fatalf("a bid of %+v of %+v: above the day's fees", next, b)
		}
	}
	if signed < 1000 || bid < 100 {
		t.Errorf("got %d first versions and %d bids: too few to tell", signed, bid)
	}
}

// An operator's replacement must fit the policy, and leave room for a placeholder. A placeholder
// has only its own limit.
func TestBoundsOfAReplacement(t *testing.T) {
	t.Parallel()
	tx := txtest.Submitted(5)
	tx.RequestedAction, tx.Gas = txmanager.ActionReplace, txtest.Params(21_000, 80, 1)
	for name, c := range map[string]struct {
		bounds txmanager.Bounds
		rules  Rules
		order  txmanager.Action
		want   string // in the reason; "": it is signed
		fee    int64  // that is signed, wei per gas; 0: any
	}{
		"no bounds":                     {order: txmanager.ActionReplace, fee: 90},
		"the policy's fee":              {bounds: txmanager.Bounds{FeeWei: txtest.Wei(21_000*88 - 1)}, order: txmanager.ActionReplace, want: "at least 88 wei per gas, a tenth more than the last version, and only 87"},
		"lowered to the policy's fee":   {bounds: txmanager.Bounds{FeeWei: txtest.Wei(21_000 * 88)}, order: txmanager.ActionReplace, fee: 88},
		"the policy's tip":              {bounds: txmanager.Bounds{TipWei: txtest.Wei(1)}, order: txmanager.ActionReplace, want: "must tip at least 2 wei per gas, a tenth more than the last version, and only 1"},
		"the day's fees":                {bounds: txmanager.Bounds{FeesPerDayWei: txtest.Wei(21_000 * 100), FeesUsedWei: txtest.Wei(21_000*90 + 1)}, order: txmanager.ActionReplace, want: "used up"},
		"room for a placeholder":        {rules: Rules{Limits: gas.Limits{PlaceholderFeeCapWei: txtest.Wei(98)}}, order: txmanager.ActionReplace, want: "8/9 of nonce.placeholderMaxFeePerGas"},
		"just enough room":              {rules: Rules{Limits: gas.Limits{PlaceholderFeeCapWei: txtest.Wei(99)}}, order: txmanager.ActionReplace, fee: 88},
		"a fee that nodes do not send":  {rules: Rules{Limits: gas.Limits{TxFeeCapWei: txtest.Wei(21_000 * 69)}}, order: txmanager.ActionReplace, want: "81/64 of fees.maxFeePerTx"},
		"a placeholder under a policy":  {bounds: txmanager.Bounds{FeeWei: txtest.Wei(1), TipWei: txtest.Wei(1), FeesPerDayWei: txtest.Wei(0)}, order: txmanager.ActionPlaceholder},
		"a placeholder under its bound": {rules: Rules{Limits: gas.Limits{PlaceholderFeeCapWei: txtest.Wei(87)}}, order: txmanager.ActionPlaceholder, want: "at least 88 wei per gas, a tenth more than the last version, and only 87 is allowed by nonce.placeholderMaxFeePerGas"},
		"a placeholder at its bound":    {rules: Rules{Limits: gas.Limits{PlaceholderFeeCapWei: txtest.Wei(88)}}, order: txmanager.ActionPlaceholder, fee: 88},
	} {
		r := rulesOf(3)
		r.PlaceholderFeeCapWei, r.TxFeeCapWei = c.rules.PlaceholderFeeCapWei, c.rules.TxFeeCapWei
		x := tx
		x.RequestedAction = c.order
		w := txtest.StateOf(1, 6, x)
		w.Bounds = c.bounds
		v := txtest.ViewOf(w, txtest.Block('a', 100))
		v.SelfTransfer = txmanager.Estimate{Outcome: txmanager.Done, Gas: 21_000}
		jobs, moves := r.PlanSignatures(w, txtest.Reader(nil), v, HandlerResult{})
		if signed := len(jobs) == 1; signed != (c.want == "") {
			t.Errorf("%s: got %d signed, %+v; want %q", name, len(jobs), moves, c.want)
		} else if !signed && !strings.Contains(moves[0].To.LastError, c.want) {
			t.Errorf("%s: got %q, want %q in it", name, moves[0].To.LastError, c.want)
		} else if signed && c.fee != 0 && jobs[0].Unsigned.FeeCapWei.Int64() != c.fee {
			t.Errorf("%s: got a fee of %s wei per gas, want %d", name, jobs[0].Unsigned.FeeCapWei, c.fee)
		}
	}
}

// Fees of bytes signed elsewhere cannot be lowered: above a bound they are refused. For legacy
// bytes the tip is the part of the price above the base fee.
func TestBoundsOfSignedBytes(t *testing.T) {
	t.Parallel()
	r := rulesOf(3)
	r.TipMultiple, r.TxFeeCapWei = 10, txtest.Wei(21_000*1000)
	a := txmanager.Account{BaseFeeWei: txtest.Wei(10), TipWei: txtest.Wei(2)}
	legacy := func(price int64) txmanager.GasParams {
		return txmanager.GasParams{Gas: 21_000, Legacy: true, FeeCapWei: txtest.Wei(price), TipCapWei: txtest.Wei(price)}
	}
	tipped := func(tip int64) txmanager.GasParams {
		return txmanager.GasParams{Gas: 21_000, FeeCapWei: txtest.Wei(100), TipCapWei: txtest.Wei(tip)}
	}
	for name, c := range map[string]struct {
		bounds txmanager.Bounds
		g      txmanager.GasParams
		a      txmanager.Account
		want   string
	}{
		"a tip of many times advice":    {g: tipped(21), a: a},
		"the policy's tip":              {bounds: txmanager.Bounds{TipWei: txtest.Wei(5)}, g: tipped(6), a: a, want: "a tip of at most 5"},
		"legacy form":                   {bounds: txmanager.Bounds{TipWei: txtest.Wei(5)}, g: legacy(15), a: a},
		"legacy form with a higher tip": {bounds: txmanager.Bounds{TipWei: txtest.Wei(5)}, g: legacy(16), a: a, want: "a tip of at most 5"},
		"one price in type 2":           {bounds: txmanager.Bounds{TipWei: txtest.Wei(5)}, g: txmanager.GasParams{Gas: 21_000, FeeCapWei: txtest.Wei(16), TipCapWei: txtest.Wei(16)}, a: a, want: "a tip of at most 5"},
		"a chain of one price":          {bounds: txmanager.Bounds{TipWei: txtest.Wei(5)}, g: legacy(31), a: txmanager.Account{BaseFeeWei: txtest.Wei(0), GasPriceWei: txtest.Wei(30)}},
		"a fee that nodes do not send":  {g: legacy(1001), a: txmanager.Account{BaseFeeWei: txtest.Wei(0), GasPriceWei: txtest.Wei(30)}, want: "fees.maxFeePerTx"},
		"the policy's gas":              {bounds: txmanager.Bounds{Gas: 20_999}, g: tipped(1), a: a, want: "at most 20999 gas"},
	} {
		if got := r.SignedFeesReason(c.bounds, c.g, c.a); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q in it", name, got, c.want)
		}
	}
}

// Where a policy names functions of a contract, a queued intent may call only these, and must not
// send value without a call.
func TestBoundsOfFunctions(t *testing.T) {
	t.Parallel()
	to, other := eip155.Address([20]byte{19: 0xa}), eip155.Address([20]byte{19: 0xb})
	transfer := []byte{0xa9, 0x05, 0x9c, 0xbb}
	b := txmanager.Bounds{Targets: []string{to.String() + ":0xa9059cbb", other.String()}}
	for name, c := range map[string]struct {
		call    txmanager.Call
		allowed bool
	}{
		"the function":                 {txmanager.Call{To: &to, Data: append(transfer, 1, 2)}, true},
		"the function, without data":   {txmanager.Call{To: &to, Data: transfer}, true},
		"another function":             {txmanager.Call{To: &to, Data: []byte{0x09, 0x5e, 0xa7, 0xb3, 1}}, false},
		"no function":                  {txmanager.Call{To: &to}, false},
		"data too short for one":       {txmanager.Call{To: &to, Data: transfer[:3]}, false},
		"its data as a contract":       {txmanager.Call{Data: transfer}, false},
		"an address that stands alone": {txmanager.Call{To: &other, Data: []byte{0x09, 0x5e, 0xa7, 0xb3}}, true},
		"payment to one":               {txmanager.Call{To: &other}, true},
	} {
		check.Equal(t, name+": allowed", (Rules{}).forbiddenReason(b, txmanager.Tx{}, c.call) == "", c.allowed)
		check.Equal(t, name+", of a handler that was not asked yet", (Rules{}).forbiddenReason(b, txmanager.Tx{Handler: "shop"}, c.call), "")
	}
}

// An intent that the submitter's callers no longer allow ends without a nonce, with the reason,
// and blocks no later intent. The value and receiver of a handler's transaction are unknown before
// the handler call.
func TestWhatIsBarredGetsNoNonce(t *testing.T) {
	t.Parallel()
	barred, handled := txtest.Queued(1, "pay"), txtest.Queued(3, "anything")
	barred.BarredReason, handled.Handler = "the submitter's callers do not name sub:1 any more", "wage"
	w := txtest.Queue(txtest.StateOf(3, 5), barred, txtest.Queued(2, "pay"), handled)
	p := rulesOf(3).PlanAllocations(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), nil)
	if got := outline(p); got != "q-2=5, q-3=6, q-1 rejected" {
		t.Fatalf("outline: got %s, want q-2=5, q-3=6, q-1 rejected", got)
	}
	if m := p.Transitions[0]; m.From != txmanager.Queued || m.To.Nonce != nil || m.To.LastError != barred.BarredReason {
		t.Errorf("got %+v, want from QUEUED, without a nonce, with the reason", m)
	}
	w.Bounds = txmanager.Bounds{ValueWei: txtest.Wei(0), Targets: []string{"0x00000000000000000000000000000000000000ff"}}
	p = rulesOf(3).PlanAllocations(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), nil)
	check.Equal(t, "under a policy", outline(p), "q-3=5, q-1 rejected, q-2 rejected")
}

// A queued intent must respect the limit of its caller, and those of a token that the policy
// names. A function that targets lists is also allowed.
func TestBoundsOfCallersAndTokens(t *testing.T) {
	t.Parallel()
	o, token := txtest.Oracle(t), eip155.Address([20]byte{19: 10})
	data := func(name string, amount int64) []byte {
		return check.Value(o.Pack(name, common.Address{1}, big.NewInt(amount)))(t)
	}
	named := txmanager.Bounds{Tokens: map[string]*big.Int{token.String(): big.NewInt(5)}}
	free := txmanager.Bounds{Tokens: map[string]*big.Int{token.String(): nil}, Targets: []string{token.String(), token.String() + ":0x39509351", token.String() + ":0xa9059cbb"}}
	for name, c := range map[string]struct {
		bounds txmanager.Bounds
		caller *big.Int
		call   txmanager.Call
		want   bool // it is refused
	}{
		"the caller's most":                   {txmanager.Bounds{}, big.NewInt(5), txmanager.Call{To: &token, Value: big.NewInt(5)}, false},
		"more than the caller's most":         {txmanager.Bounds{}, big.NewInt(5), txmanager.Call{To: &token, Value: big.NewInt(6)}, true},
		"the most units":                      {named, nil, txmanager.Call{To: &token, Data: data("transfer", 5)}, false},
		"more units":                          {named, nil, txmanager.Call{To: &token, Data: data("approve", 6)}, true},
		"another function":                    {named, nil, txmanager.Call{To: &token, Data: data("increaseAllowance", 1)}, true},
		"a byte too many":                     {named, nil, txmanager.Call{To: &token, Data: append(data("transfer", 1), 0)}, true},
		"a payment":                           {named, nil, txmanager.Call{To: &token, Value: big.NewInt(1)}, true},
		"another contract":                    {named, nil, txmanager.Call{To: new(eip155.Address([20]byte{19: 11})), Value: big.NewInt(1)}, false},
		"a deployment":                        {named, nil, txmanager.Call{Data: data("transfer", 9)}, false},
		"a function that targets names":       {free, nil, txmanager.Call{To: &token, Data: data("increaseAllowance", 9)}, false},
		"any amount where none is bounded":    {free, nil, txmanager.Call{To: &token, Data: data("approve", 9)}, false},
		"malformed, though targets names it":  {free, nil, txmanager.Call{To: &token, Data: data("transfer", 9)[:60]}, true},
		"a payment, though targets allows it": {free, nil, txmanager.Call{To: &token}, true},
	} {
		check.Equal(t, name+": refused", (Rules{}).forbiddenReason(c.bounds, txmanager.Tx{MaxValueWei: c.caller}, c.call) != "", c.want)
	}
}

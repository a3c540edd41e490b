package gas

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// A gas bump is an eighth higher, at least what blocks require now, at least what nodes accept as
// a replacement, and never above the cap.
func TestBid(t *testing.T) {
	t.Parallel()
	dynamic := func(fee, tip int64) txmanager.GasParams {
		return txmanager.GasParams{Gas: 10, FeeCapWei: big.NewInt(fee), TipCapWei: big.NewInt(tip), ValueWei: big.NewInt(7)}
	}
	times := func(factor int64) BumpLimits { return BumpLimits{Multiplier: factor} }
	legacy := func(price int64) txmanager.GasParams { g := dynamic(price, price); g.Legacy = true; return g }
	for _, c := range []struct {
		name         string
		limits       BumpLimits
		last, market txmanager.GasParams
		cap          *big.Int
		want         txmanager.GasParams
		ok           bool
	}{
		{"an eighth more, rounded up", times(1125), dynamic(100, 9), dynamic(50, 1), nil, dynamic(113, 11), true},
		{"of a wei", times(1125), dynamic(1, 1), dynamic(0, 0), nil, dynamic(2, 2), true},
		{"what blocks take", times(1125), dynamic(100, 9), dynamic(300, 40), nil, dynamic(300, 40), true},
		{"more by the multiplier", times(2000), dynamic(100, 9), dynamic(50, 1), nil, dynamic(200, 18), true},
		{"cut to the cap", times(1125), dynamic(100, 9), dynamic(300, 1), big.NewInt(110), dynamic(110, 11), true},
		{"nodes would not take what the cap leaves", times(1125), dynamic(100, 9), dynamic(300, 1), big.NewInt(109), dynamic(0, 0), false},
		{"a tip above the cap", times(1125), dynamic(100, 99), dynamic(50, 1), big.NewInt(111), dynamic(111, 111), true},
		{"legacy", times(1125), legacy(100), legacy(90), nil, legacy(113), true},
		{"from one price", times(1125), legacy(100), dynamic(50, 1), nil, dynamic(113, 113), true},
		{"to one price", times(1125), dynamic(100, 9), legacy(90), nil, legacy(113), true},
		{"legacy, by the node's advice", times(1125), legacy(100), legacy(200), big.NewInt(150), legacy(150), true},
	} {
		fees, _, refused := c.limits.propose(BumpRequest{Last: c.last, Market: c.market})
		got := fees
		if refused == "" {
			got, refused = limitReplacement(c.last, fees, FeeCaps{FeeWei: c.cap})
		}
		if ok := refused == ""; ok != c.ok || ok && txtest.Diff(c.want, got) != "" {
			t.Errorf("%s: got %+v, %q; want %+v, %v", c.name, got, refused, c.want, c.ok)
		}
		if c.last.FeeCapWei.Int64() > 100 || c.market.FeeCapWei.Int64() > 300 {
			t.Errorf("%s: what it was given became %v, %v", c.name, c.last, c.market)
		}
	}
}

// A replacement that is not refused is acceptable to nodes, and within its caps. It is refused
// only where the caps allow less than nodes require.
func TestPropertyReplacementFees(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 11))
	some := func(most int64) *big.Int { return big.NewInt(random.Int64N(most)) }
	for i := range 100_000 {
		last := txmanager.GasParams{Gas: 21_000, FeeCapWei: new(big.Int).Add(some(1000), big.NewInt(1)), ValueWei: new(big.Int)}
		last.TipCapWei = txmanager.LowerLimit(some(1000), last.FeeCapWei)
		market := txmanager.GasParams{FeeCapWei: some(1500), Legacy: random.IntN(4) == 0}
		market.TipCapWei = txmanager.LowerLimit(some(500), market.FeeCapWei)
		caps := FeeCaps{}
		if random.IntN(3) > 0 {
			caps.FeeWei = some(2000)
		}
		if random.IntN(3) > 0 && !market.Legacy {
			caps.TipWei = some(1500)
		}
		g, refused := ReplacementFees(last, market, caps)
		what := fmt.Sprintf("case %d: %+v over %+v at %+v within %+v, %q", i, g, last, market, caps, refused)
		tenth := func(now, before *big.Int) bool {
			return new(big.Int).Mul(now, big.NewInt(10)).Cmp(new(big.Int).Mul(before, big.NewInt(11))) >= 0 && now.Cmp(before) > 0
		}
		eighth := new(big.Int).Mul(g.FeeCapWei, big.NewInt(8)).Cmp(new(big.Int).Mul(last.FeeCapWei, big.NewInt(9))) >= 0
		switch taken := tenth(g.FeeCapWei, last.FeeCapWei) && tenth(g.TipCapWei, last.TipCapWei); {
		case txmanager.ExceedsLimit(g.FeeCapWei, caps.FeeWei), txmanager.ExceedsLimit(g.TipCapWei, caps.TipWei), txmanager.ExceedsLimit(g.TipCapWei, g.FeeCapWei):
			t.Fatal("above a cap: ", what)
		case taken != (refused == ""):
			t.Fatal("nodes take it or not, and it is the other: ", what)
		case g.Legacy && g.FeeCapWei.Cmp(g.TipCapWei) != 0:
			t.Fatal("two prices on a chain with one: ", what)
		case caps.FeeWei == nil && !eighth:
			t.Fatal("less than an eighth more without a cap: ", what)
		}
	}
}

// H26: the worst cost is the whole gas limit at the fee cap, plus the value; a placeholder must
// pay an eighth more.
func TestH26WorstCosts(t *testing.T) {
	t.Parallel()
	g := txtest.Params(50_000, 300, 7)
	txtest.Same(t, "worst cost", g.WorstCostWei(), txtest.Wei(50_000*300+7))
	txtest.Same(t, "placeholder", placeholderCostWei(txtest.Wei(800)), txtest.Wei(21_000*900))
	txtest.Same(t, "together", CostWithPlaceholder(*g), txtest.Wei(50_000*300+7+21_000*300*9/8))
	txtest.Same(t, "what was added up, afterwards", g, txtest.Params(50_000, 300, 7))
}

// proposes is a policy made of a function.
type proposes func(BumpRequest) (ProposedFees, bool)

func (p proposes) Propose(r BumpRequest) (ProposedFees, bool) { return p(r) }

// A proposal below what nodes require, an incomplete one, or a panic makes no gas bump, and says why.
// The policy cannot change what it is given.
func TestProposalsAreBounded(t *testing.T) {
	t.Parallel()
	fixed := func(fee, tip *big.Int) proposes {
		return func(BumpRequest) (ProposedFees, bool) { return ProposedFees{fee, tip}, true }
	}
	for _, c := range []struct {
		name   string
		policy proposes
		ok     bool
		why    string
	}{
		{"a tenth more in both fees", fixed(big.NewInt(110), big.NewInt(11)), true, ""},
		{"too low a fee", fixed(big.NewInt(109), big.NewInt(11)), false, "at least 110 and 11"},
		{"too low a tip", fixed(big.NewInt(200), big.NewInt(10)), false, "at least 110 and 11"},
		{"a negative fee", fixed(big.NewInt(-200), big.NewInt(11)), false, "at least 110 and 11"},
		{"no tip", fixed(big.NewInt(200), nil), false, "no tip"},
		{"nothing", func(BumpRequest) (ProposedFees, bool) { return ProposedFees{}, false }, false, ""},
		{"a panic", func(BumpRequest) (ProposedFees, bool) { panic("no market") }, false, "panicked: no market"},
		{"lower fees for what it was given", func(r BumpRequest) (ProposedFees, bool) {
			r.Last.FeeCapWei.SetInt64(1)
			r.Last.TipCapWei.SetInt64(1)
			return ProposedFees{big.NewInt(2), big.NewInt(2)}, true
		}, false, "at least 110 and 11"},
	} {
		last := txmanager.GasParams{Gas: 21_000, FeeCapWei: big.NewInt(100), TipCapWei: big.NewInt(10), ValueWei: big.NewInt(7)}
		got, ok, why := BumpLimits{Policy: c.policy}.propose(BumpRequest{Last: CopyParams(last), Market: CopyParams(last)})
		if ok != c.ok || !strings.Contains(why, c.why) || c.why == "" && why != "" {
			t.Errorf("%s: got %v, %q; want %v, %q", c.name, ok, why, c.ok, c.why)
		}
		if ok && (got.FeeCapWei.Int64() != 110 || got.TipCapWei.Int64() != 11 || got.Gas != 21_000 || got.ValueWei.Int64() != 7) {
			t.Errorf("%s: got %+v, want the fees proposed, and the gas and value as before", c.name, got)
		}
	}
	legacy := txmanager.GasParams{Legacy: true, FeeCapWei: big.NewInt(100), TipCapWei: big.NewInt(100)}
	if got, ok, why := (BumpLimits{Policy: fixed(big.NewInt(110), nil)}).propose(BumpRequest{Last: legacy, Market: legacy}); !ok || !got.Legacy || got.TipCapWei.Int64() != 110 {
		t.Errorf("one price: got %+v, %q; want it in both fees", got, why)
	}
}

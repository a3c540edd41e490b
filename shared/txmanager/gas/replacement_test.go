package gas

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
)

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
		g, refused := ReplacementFees(last, market, ReplaceFactor, caps)
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

package gas

import (
	"math/big"
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// H26: the worst cost is the whole gas limit at the fee cap, plus the value; a placeholder must
// pay an eighth more.
func TestH26WorstCosts(t *testing.T) {
	t.Parallel()
	g := txtest.Params(50_000, 300, 7)
	if got, want := g.WorstCostWei(), big.NewInt(50_000*300+7); got.Cmp(want) != 0 {
		t.Errorf("worst cost: got %s, want %s", got, want)
	}
	if got, want := placeholderCostWei(big.NewInt(800)), big.NewInt(21_000*900); got.Cmp(want) != 0 {
		t.Errorf("placeholder: got %s, want %s", got, want)
	}
	if got, want := CostWithPlaceholder(*g), big.NewInt(50_000*300+7+21_000*300*9/8); got.Cmp(want) != 0 {
		t.Errorf("together: got %s, want %s", got, want)
	}
	if g.FeeCapWei.Int64() != 300 || g.ValueWei.Int64() != 7 {
		t.Errorf("adding up changed what is added: %+v", g)
	}
}

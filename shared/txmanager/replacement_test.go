package txmanager

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
)

// Page 6, 5.22, as changed: both fees rise by an eighth and are lowered to the cap, but not below
// a tenth more. A cap of 500 gwei allows replacing 450 gwei, and does not allow replacing 460.
func TestOneRuleForEachReplacement(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		last int64
		want string // of the reason
	}{
		{450_000_000_000, ""},
		{460_000_000_000, "a replacement must offer at least 506000000000 wei per gas, a tenth more than the last version, and only 500000000000 is allowed"},
	} {
		frozen(t, func(t *testing.T) {
			tx := waiting(5)
			tx.Gas = params(21_000, c.last, 1)
			w := stateOf(1, 6, tx)
			v := viewOf(w, block('a', 100))
			v.Account.BalanceWei = new(big.Int).Lsh(big.NewInt(1), 100)
			v.SelfTransfer = Estimate{Outcome: Done, Gas: 21_000}
			for name, got := range map[string]func() (signingJob, string){
				"a placeholder": func() (signingJob, string) {
					r := rulesOf(3)
					r.PlaceholderFeeCapWei = big.NewInt(500_000_000_000)
					return r.placeholderVersion(tx, v)
				},
				"an operator's replacement": func() (signingJob, string) {
					r := rulesOf(3)
					r.PlaceholderFeeCapWei = big.NewInt(562_500_000_000) // 8/9 of it are 500
					return r.replacementVersion(Bounds{}, tx, reader(nil), v)
				},
				"a gas bump": func() (signingJob, string) {
					r := bumpRules()
					r.FeeCapWei, r.Bump.BudgetWei, r.Bump.FeeCapWei = nil, nil, big.NewInt(500_000_000_000)
					next, reason, _ := r.newBumpPlanner(w, reader(nil), v).next(tx)
					return signingJob{unsigned: Unsigned{FeeCapWei: next.params.FeeCapWei}}, reason
				},
			} {
				job, reason := got()
				switch signed := reason == ""; {
				case signed != (c.want == ""), !signed && reason[:min(len(reason), len(c.want))] != c.want:
					t.Errorf("%s over %d: got %q, want %q", name, c.last, reason, c.want)
				case signed && job.unsigned.FeeCapWei.Int64() != 500_000_000_000:
					t.Errorf("%s over %d: got %s wei per gas, want the cap", name, c.last, job.unsigned.FeeCapWei)
				}
			}
		})
	}
}

// A replacement that is not refused is acceptable to nodes, and within its caps. It is refused
// only where the caps allow less than nodes require.
func TestPropertyReplacementFees(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 11))
	some := func(most int64) *big.Int { return big.NewInt(random.Int64N(most)) }
	for i := range 100_000 {
		last := GasParams{Gas: 21_000, FeeCapWei: new(big.Int).Add(some(1000), big.NewInt(1)), ValueWei: new(big.Int)}
		last.TipCapWei = lesser(some(1000), last.FeeCapWei)
		market := GasParams{FeeCapWei: some(1500), Legacy: random.IntN(4) == 0}
		market.TipCapWei = lesser(some(500), market.FeeCapWei)
		caps := feeCaps{}
		if random.IntN(3) > 0 {
			caps.feeWei = some(2000)
		}
		if random.IntN(3) > 0 && !market.Legacy {
			caps.tipWei = some(1500)
		}
		g, refused := replacementFees(last, market, replaceFactor, caps)
		what := fmt.Sprintf("case %d: %+v over %+v at %+v within %+v, %q", i, g, last, market, caps, refused)
		tenth := func(now, before *big.Int) bool {
			return new(big.Int).Mul(now, big.NewInt(10)).Cmp(new(big.Int).Mul(before, big.NewInt(11))) >= 0 && now.Cmp(before) > 0
		}
		eighth := new(big.Int).Mul(g.FeeCapWei, big.NewInt(8)).Cmp(new(big.Int).Mul(last.FeeCapWei, big.NewInt(9))) >= 0
		switch taken := tenth(g.FeeCapWei, last.FeeCapWei) && tenth(g.TipCapWei, last.TipCapWei); {
		case exceeds(g.FeeCapWei, caps.feeWei), exceeds(g.TipCapWei, caps.tipWei), exceeds(g.TipCapWei, g.FeeCapWei):
			t.Fatal("above a cap: ", what)
		case taken != (refused == ""):
			t.Fatal("nodes take it or not, and it is the other: ", what)
		case g.Legacy && g.FeeCapWei.Cmp(g.TipCapWei) != 0:
			t.Fatal("two prices on a chain with one: ", what)
		case caps.feeWei == nil && !eighth:
			t.Fatal("less than an eighth more without a cap: ", what)
		}
	}
}

package rules

import (
	"math/big"
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
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
		txtest.FrozenSerial(t, func(t *testing.T) {
			tx := waiting(5)
			tx.Gas = txtest.Params(21_000, c.last, 1)
			w := txtest.StateOf(1, 6, tx)
			v := txtest.ViewOf(w, txtest.Block('a', 100))
			v.Account.BalanceWei = new(big.Int).Lsh(big.NewInt(1), 100)
			v.SelfTransfer = txmanager.Estimate{Outcome: txmanager.Done, Gas: 21_000}
			for name, got := range map[string]func() (SigningJob, txmanager.Wait){
				"a placeholder": func() (SigningJob, txmanager.Wait) {
					r := rulesOf(3)
					r.PlaceholderFeeCapWei = big.NewInt(500_000_000_000)
					return r.placeholderVersion(tx, v)
				},
				"an operator's replacement": func() (SigningJob, txmanager.Wait) {
					r := rulesOf(3)
					r.PlaceholderFeeCapWei = big.NewInt(562_500_000_000) // 8/9 of it are 500
					return r.replacementVersion(txmanager.Bounds{}, tx, txtest.Reader(nil), v)
				},
				"a gas bump": func() (SigningJob, txmanager.Wait) {
					r := bumpRules()
					r.MaxFeePerGasWei, r.Bump.BudgetWei, r.Bump.FeeCapWei = nil, nil, big.NewInt(500_000_000_000)
					next, reason, _ := r.NewBumpPlanner(w, txtest.Reader(nil), v).Next(tx)
					return SigningJob{Unsigned: txmanager.Unsigned{FeeCapWei: next.Params.FeeCapWei}}, txmanager.WaitFor(txmanager.WaitGasBump, reason)
				},
			} {
				job, why := got()
				reason := why.Reason
				switch signed := reason == ""; {
				case signed != (c.want == ""), !signed && reason[:min(len(reason), len(c.want))] != c.want:
					t.Errorf("%s over %d: got %q, want %q", name, c.last, reason, c.want)
				case signed && job.Unsigned.FeeCapWei.Int64() != 500_000_000_000:
					t.Errorf("%s over %d: got %s wei per gas, want the cap", name, c.last, job.Unsigned.FeeCapWei)
				}
			}
		})
	}
}

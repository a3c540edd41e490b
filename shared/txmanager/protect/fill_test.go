package protect

import (
	"errors"
	"math/big"
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
	"github.com/fencepost/fencepost/shared/txmanager/session"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// An account that cannot pay for all its placeholders gets none. Its open transactions count,
// except those lost below the final count.
func TestPlaceholdersWithoutABalanceAreRefused(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(1, 6, txtest.Pending(4), txtest.Pending(5))
	for i := range w.Open {
		w.Open[i].Gas = &txmanager.GasParams{Gas: 21_000, FeeCapWei: big.NewInt(100), TipCapWei: big.NewInt(1), ValueWei: new(big.Int)}
	}
	v := txtest.ViewOf(w, txtest.Block('a', 100))
	v.Account.LatestCount = 5
	v.Account.BaseFeeWei, v.Account.TipWei, v.Account.GasPriceWei = big.NewInt(50), big.NewInt(10), nil
	each := gas.CostWithPlaceholder(gas.CompleteFees(txmanager.Call{}, gas.PlaceholderGas, v.Account))
	held := gas.CostWithPlaceholder(*w.Open[1].Gas)
	for name, c := range map[string]struct {
		balance *big.Int
		paid    bool
	}{
		"for each":       {new(big.Int).Add(held, new(big.Int).Mul(each, big.NewInt(2))), true},
		"a wei too few":  {new(big.Int).Sub(new(big.Int).Add(held, new(big.Int).Mul(each, big.NewInt(2))), big.NewInt(1)), false},
		"for the others": {held, false},
	} {
		v.Account.BalanceWei = c.balance
		tn := &incident{Session: &session.Session{Service: &session.Service{Rules: rulesOf(3), Timing: testTiming}, State: w}}
		l := txmanager.ReleaseRequest{Count: 5, Fill: new(uint64(3))}
		err := tn.planFill(&l, v, txmanager.LostNonces{Window: 1})
		_, refused := errors.AsType[txmanager.FillError](err)
		if c.paid && (err != nil || l.Filling == nil || *l.Filling != (txmanager.Filling{From: 6, Below: 8})) || !c.paid && (!refused || l.Filling != nil) {
			t.Errorf("%s: got %v, %v; want it filled %v", name, l.Filling, err, c.paid)
		}
	}
}

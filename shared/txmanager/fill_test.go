package txmanager

import (
	"errors"
	"math/big"
	"testing"
)

// An account that cannot pay for all its placeholders gets none. Its open transactions count,
// except those lost below the final count.
func TestPlaceholdersWithoutABalanceAreRefused(t *testing.T) {
	t.Parallel()
	w := stateOf(1, 6, pending(4), pending(5))
	for i := range w.Open {
		w.Open[i].Gas = &GasParams{Gas: 21_000, FeeCapWei: big.NewInt(100), TipCapWei: big.NewInt(1), ValueWei: new(big.Int)}
	}
	v := viewOf(w, block('a', 100))
	v.Account.LatestCount = 5
	v.Account.BaseFeeWei, v.Account.TipWei, v.Account.GasPriceWei = big.NewInt(50), big.NewInt(10), nil
	each := costWithPlaceholder(completeFees(Call{}, placeholderGas, v.Account))
	held := costWithPlaceholder(*w.Open[1].Gas)
	for name, c := range map[string]struct {
		balance *big.Int
		paid    bool
	}{
		"for each":       {new(big.Int).Add(held, new(big.Int).Mul(each, big.NewInt(2))), true},
		"a wei too few":  {new(big.Int).Sub(new(big.Int).Add(held, new(big.Int).Mul(each, big.NewInt(2))), big.NewInt(1)), false},
		"for the others": {held, false},
	} {
		v.Account.BalanceWei = c.balance
		tn := &incident{leaseSession: &leaseSession{Service: &Service{Rules: rulesOf(3), Timing: testTiming}, state: w}}
		l := ReleaseRequest{Count: 5, Fill: new(uint64(3))}
		err := tn.planFill(&l, v, LostNonces{Window: 1})
		_, refused := errors.AsType[FillError](err)
		if c.paid && (err != nil || l.Filling == nil || *l.Filling != (Filling{From: 6, Below: 8})) || !c.paid && (!refused || l.Filling != nil) {
			t.Errorf("%s: got %v, %v; want it filled %v", name, l.Filling, err, c.paid)
		}
	}
}

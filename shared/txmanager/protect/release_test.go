package protect

import (
	"errors"
	"math/big"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
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
		tn := incidentOf(nil, w, nil)
		l := txmanager.ReleaseRequest{Count: 5, Fill: new(uint64(3))}
		err := tn.planFill(&l, v, txmanager.LostNonces{Window: 1})
		_, refused := errors.AsType[txmanager.FillError](err)
		if c.paid && (err != nil || l.Filling == nil || *l.Filling != (txmanager.Filling{From: 6, Below: 8})) || !c.paid && (!refused || l.Filling != nil) {
			t.Errorf("%s: got %v, %v; want it filled %v", name, l.Filling, err, c.paid)
		}
	}
}

// Nothing is signed for a retired submitter: its release fills no nonces, and a payer's needs no fill.
func TestRetiredSubmittersAreNotFilled(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(1, 6)
	tn := incidentOf(nil, w, nil)
	retired := txmanager.LostNonces{Payer: true, Retired: true, Window: 1}
	l := txmanager.ReleaseRequest{Count: 6, Fill: new(uint64(3))}
	if _, refused := errors.AsType[txmanager.FillError](tn.planFill(&l, txtest.ViewOf(w, txtest.Block('a', 100)), retired)); !refused || l.Filling != nil {
		t.Errorf("with fill: got %v, refused %t; want it refused", l.Filling, refused)
	}
	check.Err(t, "a payer by resume", nil)(tn.checkResume(t.Context(), txmanager.ReleaseRequest{}, retired))
}

// Two blocks of one height may be remembered after a reorg between two queries of a release. That
// must not stop later releases.
func TestTwoFinalBlocksOfOneHeightAreOneHeightToCompare(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(1, 6)
	w.Protected, w.FinalBlocks = true, []txmanager.Header{txtest.Block('a', 90), txtest.Block('a', 95), txtest.Block('b', 95)}
	check.Same(t, "heights to compare", rules.WatchedHeights(w), []uint64{90, 95})
	for name, c := range map[string]struct {
		shown []txmanager.Header
		ok    bool
	}{"both heights": {[]txmanager.Header{txtest.Block('a', 90), txtest.Block('b', 95)}, true}, "one of them": {[]txmanager.Header{txtest.Block('b', 95)}, false}} {
		view := txtest.Watching(txtest.ViewOf(w, txtest.Block('b', 100)), c.shown...)
		tn := incidentOf(&txtest.Panel{Views: []txmanager.ChainObservation{view}, Needed: 1}, w, &evidenceStore{})
		tn.Rules.WatchDepth = 10
		kept, missing, err := tn.recheckFinalBlocks(t.Context())
		if (err == nil) != c.ok || len(missing) != 0 {
			t.Fatalf("the node shows %s: got %v, %v; want it enough: %v", name, missing, err, c.ok)
		}
		if want := []txmanager.Header{txtest.Block('a', 90), txtest.Block('b', 95)}; c.ok && !slices.Equal(kept, want) {
			t.Errorf("kept: got %v, want %v", kept, want)
		}
	}
}

// A DISPLACED transaction keeps no receipt: its block was reorged out.
func TestDisplacedKeepsNoReceipt(t *testing.T) {
	t.Parallel()
	tx := txtest.Included(5, txtest.Blocks('a', 100, 101)...)
	tx.State, tx.Sub = txmanager.Protect, ""
	w := txtest.StateOf(1, 6, tx)
	moves, lost := displaceLost(w, txtest.ViewOf(w, txtest.Block('b', 200)), 6)
	if len(moves) != 1 || len(lost) != 1 || moves[0].To.State != txmanager.Failed || moves[0].To.Receipt != nil || moves[0].To.Confirmations != nil {
		t.Errorf("got %+v, lost %v; want nonce 5 FAILED/DISPLACED without a receipt", moves, lost)
	}
}

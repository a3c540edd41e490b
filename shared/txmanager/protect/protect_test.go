package protect

import (
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// A DISPLACED transaction keeps no receipt: its block was reorged out.
func TestDisplacedKeepsNoReceipt(t *testing.T) {
	t.Parallel()
	txtest.Frozen(t, func(t *testing.T) {
		tx := txtest.Included(5, txtest.Blocks('a', 100, 101)...)
		tx.State, tx.Sub = txmanager.Protect, ""
		w := txtest.StateOf(1, 6, tx)
		moves, lost := displaceLost(w, txtest.ViewOf(w, txtest.Block('b', 200)), 6)
		if len(moves) != 1 || len(lost) != 1 || moves[0].To.State != txmanager.Failed || moves[0].To.Receipt != nil || moves[0].To.Confirmations != nil {
			t.Errorf("got %+v, lost %v; want nonce 5 FAILED/DISPLACED without a receipt", moves, lost)
		}
	})
}

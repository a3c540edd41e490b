package rules

import (
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// A node below the block of PROTECT's evidence does not show that a reorg freed the nonce.
func TestLaggardFreesNoNonceInProtect(t *testing.T) {
	t.Parallel()
	txtest.Frozen(t, func(t *testing.T) {
		x := txtest.Held(5, txmanager.Protect, "")
		w := txtest.StateOf(1, 6, x)
		w.Protected, w.Evidence = true, &txmanager.Violation{Kind: txmanager.NonceConsumed, Block: 100, ExpectedNonce: 5}
		for head, want := range map[uint64]txmanager.State{99: txmanager.Protect, 100: txmanager.Tracking} {
			v := txtest.ViewOf(w, txtest.Block('a', head))
			if got := rulesOf(3).Evaluate(w, txtest.Asking(w), v).After[0].State; got != want {
				t.Errorf("head %d: got %s, want %s", head, got, want)
			}
		}
	})
}

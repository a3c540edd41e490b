package worker

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// The iteration that binds a nonce for a caller commits the end of its held back time.
func TestAnIterationCommitsTheHeldBackTimes(t *testing.T) {
	t.Parallel()
	txtest.Frozen(t, func(t *testing.T) {
		w := txtest.Queue(txtest.StateOf(2, 5), txtest.Of("a", txtest.Queued(1, "pay")))
		w.HeldBackSince = map[string]time.Time{"a": txtest.DbNow, "b": txtest.DbNow}
		tn, _, _ := iterationOf(w, true, txmanager.SendAccepted)
		if _, err := tn.iterate(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if _, kept := tn.State.HeldBackSince["a"]; kept || len(tn.State.HeldBackSince) != 1 {
			t.Errorf("held back times: got %v, want b's alone", tn.State.HeldBackSince)
		}
	})
}

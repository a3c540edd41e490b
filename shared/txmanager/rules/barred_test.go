package rules

import (
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// An intent that the submitter's callers no longer allow ends without a nonce, with the reason,
// and blocks no later intent. The value and receiver of a handler's transaction are unknown before
// the handler call.
func TestWhatIsBarredGetsNoNonce(t *testing.T) {
	t.Parallel()
	txtest.Frozen(t, func(t *testing.T) {
		barred, handled := txtest.Queued(1, "pay"), txtest.Queued(3, "anything")
		barred.BarredReason, handled.Handler = "the submitter's callers do not name sub:1 any more", "wage"
		w := txtest.Queue(txtest.StateOf(3, 5), barred, txtest.Queued(2, "pay"), handled)
		p := rulesOf(3).PlanAllocations(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), nil)
		if got, want := outline(p), "q-2=5, q-3=6, q-1 rejected"; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		if m := p.Transitions[0]; m.From != txmanager.Queued || m.To.Nonce != nil || m.To.LastError != barred.BarredReason {
			t.Errorf("got %+v, want from QUEUED, without a nonce, with the reason", m)
		}
		w.Bounds = txmanager.Bounds{ValueWei: txtest.Wei(0), Targets: []string{"0x00000000000000000000000000000000000000ff"}}
		p = rulesOf(3).PlanAllocations(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), nil)
		if got, want := outline(p), "q-3=5, q-1 rejected, q-2 rejected"; got != want {
			t.Errorf("under a policy: got %q, want %q", got, want)
		}
	})
}

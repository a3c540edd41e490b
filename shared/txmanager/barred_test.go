package txmanager

import "testing"

// An intent that the submitter's callers no longer allow ends without a nonce, with the reason,
// and blocks no later intent. The value and receiver of a handler's transaction are unknown before
// the handler call.
func TestWhatIsBarredGetsNoNonce(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		barred, handled := queued(1, "pay"), queued(3, "anything")
		barred.BarredReason, handled.Handler = "the submitter's callers do not name sub:1 any more", "wage"
		w := queue(stateOf(3, 5), barred, queued(2, "pay"), handled)
		p := rulesOf(3).planAllocations(w, reader(nil), viewOf(w, block('a', 100)), nil)
		if got, want := outline(p), "q-2=5, q-3=6, q-1 rejected"; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		if m := p.transitions[0]; m.From != Queued || m.To.Nonce != nil || m.To.LastError != barred.BarredReason {
			t.Errorf("got %+v, want from QUEUED, without a nonce, with the reason", m)
		}
		w.Bounds = Bounds{ValueWei: wei(0), Targets: []string{"0x00000000000000000000000000000000000000ff"}}
		p = rulesOf(3).planAllocations(w, reader(nil), viewOf(w, block('a', 100)), nil)
		if got, want := outline(p), "q-3=5, q-1 rejected, q-2 rejected"; got != want {
			t.Errorf("under a policy: got %q, want %q", got, want)
		}
	})
}

package rules

import (
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// H26: no version must be signed and sent above a nonce that cannot be signed or that no node
// holds.
func TestH26NothingIsSignedAheadOfWhatCannotBeSent(t *testing.T) {
	t.Parallel()
	txtest.Frozen(t, func(t *testing.T) {
		unreadable, waits := txtest.Bare(5), txtest.Bare(5)
		unreadable.Payload = []byte("junk")
		waits.Handler = "of another version"
		refused := txtest.Submitted(5) // the node had no room; its next attempt is to come
		for name, low := range map[string]txmanager.Tx{"a payload that cannot be read": unreadable, "a handler that waits": waits, "refused by the node": refused, "STUCK": txtest.Stuck(5)} {
			w := txtest.StateOf(2, 7, low, txtest.Bare(6))
			jobs, _ := rulesOf(3).PlanSignatures(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), map[string]HandlerResult{"tx-5": {Wait: "no handler in this process"}})
			for _, job := range jobs {
				t.Errorf("%s: got nonce %d signed, to be sent ahead of nonce 5; want it to wait", name, *job.Tx.Nonce)
			}
		}
	})
}

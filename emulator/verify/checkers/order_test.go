package checkers_test

import (
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// overtaken carries out alice's intent "second" while the earlier "first" waits for the reason. At the
// end both are terminal.
func (b *bench) overtaken(reason string) {
	b.Helper()
	b.post(b.alice, "first", transfer)
	w := b.take(b.alice)
	first := w.Queue[0]
	first.LastError = reason
	b.write(txmanager.Commit{Lease: w.Lease, Transitions: []txmanager.Transition{{From: txmanager.Queued, To: first}}})
	b.run(`update managed_tx set held = true where tx_id = $1`, b.ids["first"]) // so that the queue is read beyond it
	b.carryOut(b.alice, "second", transfer, txmanager.Confirmed, "")
	b.run(`update managed_tx set held = false where tx_id = $1`, b.ids["first"])
	b.carryOutQueued("first")
}

// carryOutQueued carries out the queued intent.
func (b *bench) carryOutQueued(requestID string) {
	b.Helper()
	view := check.Value(b.Store.Submitter(b.Context(), b.alice))(b)
	tx := b.sign(0, uint64(view.NextNonce), transfer)
	b.allocate(b.alice, tx)
	b.finish(b.alice, requestID, tx, txmanager.Confirmed, "")
}

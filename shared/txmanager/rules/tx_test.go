package rules

import (
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// The state after a commit has the changed rows and the new allocations, without terminal
// transactions.
func TestStateAfterACommit(t *testing.T) {
	t.Parallel()
	txtest.Frozen(t, func(t *testing.T) {
		load := func() txmanager.SubmitterState {
			return txtest.Queue(txtest.StateOf(4, 7, txtest.Pending(5), txtest.Bare(6)), txtest.Queued(1, "pay"), txtest.Queued(2, "pay"), txtest.Queued(3, "pay"), txtest.Queued(4, "pay"))
		}
		w := load()
		final, rejected, aside, first := endedByReceipt(txtest.Pending(5), txmanager.Receipt{Succeeded: true}), txtest.Queued(1, "pay"), txtest.Queued(2, "pay"), txtest.Queued(3, "pay")
		rejected.State, rejected.Sub = txmanager.Failed, txmanager.Rejected
		aside.DeferredUntilNonce = new(uint64(6))
		first.State, first.Nonce = txmanager.Submitted, new(uint64(7))
		signed := WithVersion(txtest.Bare(6), txmanager.VersionOriginal, txmanager.Signed{Hash: txtest.VersionHash(6, 1)}, txtest.DbNow)
		after := AfterCommit(w, txmanager.Commit{
			Transitions: []txmanager.Transition{{From: txmanager.Tracking, To: final}, {From: txmanager.Queued, To: rejected}, {From: txmanager.Queued, To: aside}},
			Versions:    []txmanager.Version{{Tx: signed}},
			Allocations: []txmanager.Allocation{{Tx: first, Nonce: 7}},
			Cursor:      txmanager.CursorChange{FinalHead: 100},
		})
		if d := txtest.Diff([]txmanager.Tx{signed, first}, after.Open); d != "" {
			t.Errorf("unsettled (-want +got):\n%s", d)
		}
		if d := txtest.Diff([]txmanager.Tx{txtest.Queued(4, "pay")}, after.Queue); d != "" {
			t.Errorf("queue (-want +got):\n%s", d)
		}
		if after.NextNonce != 8 || after.FinalHead != 100 || after.Protected || after.LowestOpenNonce() != 6 {
			t.Errorf("got next %d, final head %d, protected %v, lowest %d; want 8, 100, false, 6", after.NextNonce, after.FinalHead, after.Protected, after.LowestOpenNonce())
		}
		if d := txtest.Diff(load(), w); d != "" {
			t.Errorf("the work before changed (-want +got):\n%s", d)
		}
	})
}

func TestStateAfterACommitKeepsProtectAndFinalHead(t *testing.T) {
	t.Parallel()
	w := txmanager.SubmitterState{FinalHead: 100}
	if after := AfterCommit(w, txmanager.Commit{Cursor: txmanager.CursorChange{FinalHead: 90}}); after.FinalHead != 100 || after.Protected {
		t.Errorf("got final head %d, protected %v; want 100, false", after.FinalHead, after.Protected)
	}
	if after := AfterCommit(w, txmanager.Commit{Cursor: txmanager.CursorChange{OpenIncident: &txmanager.Violation{}}}); !after.Protected || !AfterCommit(after, txmanager.Commit{}).Protected {
		t.Error("PROTECT was opened and is not kept")
	}
}

package worker

import (
	"slices"
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// H5: of the requested allocations only the bound ones count.
func TestH05OnlyBoundAllocationsCount(t *testing.T) {
	t.Parallel()
	txtest.Frozen(t, func(t *testing.T) {
		w := txtest.Queue(txtest.StateOf(3, 5), txtest.Queued(1, "pay"), txtest.Queued(2, "pay"), txtest.Queued(3, "pay"))
		var wr txmanager.Commit
		for i, q := range w.Queue {
			n := 5 + uint64(i)
			q.Nonce, q.State = &n, txmanager.Submitted
			wr.Allocations = append(wr.Allocations, txmanager.Allocation{Tx: q, Nonce: n, Signed: &txmanager.Signed{}})
		}
		for bound := range 4 {
			after := rules.AfterCommit(w, rules.OnlyBound(wr, txmanager.CommitResult{Allocated: bound}))
			if len(after.Open) != bound || after.NextNonce != 5+uint64(bound) || len(after.Queue) != 3-bound {
				t.Errorf("%d bound: got %d held, next %d, %d queued", bound, len(after.Open), after.NextNonce, len(after.Queue))
			}
			if got := len(openByID(after, wr.SignedIDs())); got != bound {
				t.Errorf("%d bound: got %d to send, want only those", bound, got)
			}
		}
	})
}

func TestOpenByIDKeepsNonceOrder(t *testing.T) {
	t.Parallel()
	w := txmanager.SubmitterState{Open: []txmanager.Tx{txtest.Pending(5), txtest.Pending(6), txtest.Pending(7)}}
	var got []string
	for _, x := range openByID(w, []string{"tx-7", "tx-5", "tx-99"}) {
		got = append(got, x.ID)
	}
	if want := []string{"tx-5", "tx-7"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

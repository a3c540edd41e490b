package rules

import (
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// Each version in a query has a hint with its nonce, and the block where the nonce was seen
// consumed, by whichever version.
func TestQueryHasAHintForEachReceipt(t *testing.T) {
	t.Parallel()
	now := txtest.Ago(time.Second)
	two, lost := timed(txtest.Included(6, txtest.Block('a', 100)), now, nil), timed(txtest.Pending(7), now, nil)
	two.Versions = append(two.Versions, txtest.VersionHash(6, 2))
	q, _ := rulesOf(20).NextQuery(txtest.StateOf(5, 8, timed(txtest.Pending(5), now, nil), two, lost), txmanager.KindReceipt, txtest.Reader(nil))
	receipts := []txmanager.Hash{txtest.VersionHash(5, 1), txtest.VersionHash(6, 1), txtest.VersionHash(6, 2), txtest.VersionHash(7, 1)}
	hints := []txmanager.Hint{{Nonce: 5}, {Nonce: 6, Block: 100}, {Nonce: 6, Block: 100}, {Nonce: 7}}
	if !slices.Equal(q.Receipts, receipts) || !slices.Equal(q.Hints, hints) {
		t.Errorf("got %v with %v, want %v with %v", q.Receipts, q.Hints, receipts, hints)
	}
}

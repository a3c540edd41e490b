package txmanager

import (
	"slices"
	"testing"
	"time"
)

// Each version in a query has a hint with its nonce, and the block where the nonce was seen
// consumed, by whichever version.
func TestQueryHasAHintForEachReceipt(t *testing.T) {
	t.Parallel()
	now := ago(time.Second)
	two, lost := timed(included(6, block('a', 100)), now, nil), timed(pending(7), now, nil)
	two.Versions = append(two.Versions, versionHash(6, 2))
	q, _ := rulesOf(20).nextQuery(stateOf(5, 8, timed(pending(5), now, nil), two, lost), KindReceipt, reader(nil))
	receipts := []Hash{versionHash(5, 1), versionHash(6, 1), versionHash(6, 2), versionHash(7, 1)}
	hints := []Hint{{Nonce: 5}, {Nonce: 6, Block: 100}, {Nonce: 6, Block: 100}, {Nonce: 7}}
	if !slices.Equal(q.Receipts, receipts) || !slices.Equal(q.Hints, hints) {
		t.Errorf("got %v with %v, want %v with %v", q.Receipts, q.Hints, receipts, hints)
	}
}

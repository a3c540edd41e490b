package rules

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// A transaction is final exactly with N blocks on top of the receipt's, for N from 0 to 20.
func TestFinalWithExactlyTheConfirmationsRequired(t *testing.T) {
	t.Parallel()
	for _, n := range []uint64{0, 1, 2, 3, 20} {
		for onTop := uint64(0); onTop <= n+2; onTop++ {
			tx := txtest.Pending(5)
			after, j := evaluateOne(rulesOf(n), tx, minedIn(tx, txtest.Blocks('a', 100, 100+onTop)...))
			want := txmanager.Tracking
			if onTop >= n {
				want = txmanager.Confirmed
			}
			if after.State != want || j.NeedsHeaders {
				t.Errorf("%d required, %d on top: got %s, look again %v; want %s without", n, onTop, after.State, j.NeedsHeaders, want)
			}
			check.Equal(t, fmt.Sprintf("%d required, %d on top: blocks listed", n, onTop), len(after.Confirmations), int(min(n, onTop))+1)
		}
	}
}

// Until a transaction can be final, one check is planned for the time when the missing blocks are
// expected.
func TestNextCheckIsWhenTheLastConfirmationIsExpected(t *testing.T) {
	t.Parallel()
	r := rulesOf(20)
	tx := txtest.Pending(5)
	for onTop, missing := range map[uint64]uint64{0: 20, 7: 13, 19: 1} {
		v := minedIn(tx, txtest.Blocks('a', 100, 100+onTop)...)
		after, _ := evaluateOne(r, tx, v)
		if want := r.AfterBlocks(missing, v.Head, txtest.Now); !after.NextCheckAt.Equal(want) {
			t.Errorf("%d on top: next check %v, want %v", onTop, after.NextCheckAt, want)
		}
	}
}

// A tracked transaction is polled however far off its finality is, at the last block expected within
// the interval.
func TestIncludedIsWatchedAtLeastEveryInterval(t *testing.T) {
	t.Parallel()
	r := rulesOf(20)
	r.WatchEvery = time.Minute
	tx := txtest.Pending(5)
	for onTop, want := range map[uint64]time.Duration{0: 48500 * time.Millisecond, 15: 48500 * time.Millisecond, 16: 48500 * time.Millisecond, 19: 12500 * time.Millisecond} {
		after, _ := evaluateOne(r, tx, minedIn(tx, txtest.Blocks('a', 100, 100+onTop)...))
		check.Equal(t, fmt.Sprintf("%d on top: next check in", onTop), after.NextCheckAt.Sub(txtest.Now), want)
	}
}

// H11: blocks counted in an earlier query do not count. An observation without headers proves
// nothing; a query with headers follows only where it may help.
func TestH11OneViewMustProveFinality(t *testing.T) {
	t.Parallel()
	tx := txtest.Included(5, txtest.Blocks('a', 100, 120)...)
	for head, lookAgain := range map[uint64]bool{119: false, 120: true, 150: true} {
		v := txtest.Finding(txtest.ViewOf(txtest.StateOf(1, 6, tx), txtest.Block('a', head)), *tx.Receipt)
		v.Headers = nil
		after, j := evaluateOne(rulesOf(20), tx, v)
		if after.State != txmanager.Tracking || after.Sub != txmanager.Included || j.NeedsHeaders != lookAgain {
			t.Errorf("head %d: got %s, look again %v; want TRACKING, %v", head, after.State, j.NeedsHeaders, lookAgain)
		}
		if len(after.Confirmations) != 21 || len(j.Reorged) != 0 {
			t.Errorf("head %d: got %d blocks, %d new forks; want the list as it was", head, len(after.Confirmations), len(j.Reorged))
		}
	}
}

// H11: headers of another chain than the receipt's prove nothing.
func TestH11HeadersThatContradictTheReceiptChangeNothing(t *testing.T) {
	t.Parallel()
	r := rulesOf(3)
	for _, before := range []txmanager.Tx{txtest.Pending(5), txtest.Stuck(5), txtest.Included(5, txtest.Blocks('a', 100, 101)...)} {
		v := txtest.Finding(txtest.ViewOf(txtest.StateOf(1, 6, before), txtest.Blocks('b', 100, 110)...), txtest.ReceiptOf(before, txtest.Block('a', 100)))
		after, j := evaluateOne(r, before, v)
		if after.State != before.State || after.Sub != before.Sub || len(j.Reorged) != 0 || !after.NextCheckAt.Equal(txtest.Now.Add(r.BlockTime/2)) {
			t.Errorf("%s/%s: got %s/%s, %d new forks, next %v; want it as it was, looked at in half a block",
				before.State, before.Sub, after.State, after.Sub, len(j.Reorged), after.NextCheckAt)
		}
	}
}

// The list of confirming blocks grows, stays, or is replaced as a whole.
func TestConfirmingBlocksGrowOrAreReplaced(t *testing.T) {
	t.Parallel()
	joined := func(a, b []txmanager.Header) []txmanager.Header {
		return append(append([]txmanager.Header{}, a...), b...)
	}
	stored := txtest.Blocks('a', 100, 102)
	for _, c := range []struct {
		name     string
		shown    []txmanager.Header
		want     []txmanager.Header
		newForks int
	}{
		{"two more", txtest.Blocks('a', 100, 104), txtest.Blocks('a', 100, 104), 0},
		{"from below the receipt's block on", txtest.Blocks('a', 90, 119), txtest.Blocks('a', 100, 119), 0},
		{"the same", stored, stored, 0},
		{"a lagging node: fewer", txtest.Blocks('a', 100, 101), stored, 0},
		{"a lagging node: the first alone", txtest.Blocks('a', 100, 100), stored, 0},
		{"another last block", joined(txtest.Blocks('a', 100, 101), txtest.Blocks('b', 102, 104)), joined(txtest.Blocks('a', 100, 101), txtest.Blocks('b', 102, 104)), 1},
		{"another second block", joined(txtest.Blocks('a', 100, 100), txtest.Blocks('b', 101, 104)), joined(txtest.Blocks('a', 100, 100), txtest.Blocks('b', 101, 104)), 1},
	} {
		tx := txtest.Included(5, stored...)
		v := txtest.Finding(txtest.ViewOf(txtest.StateOf(1, 6, tx), c.shown...), *tx.Receipt)
		after, j := evaluateOne(rulesOf(20), tx, v)
		txtest.Same(t, c.name+": list", after.Confirmations, c.want)
		check.Equal(t, c.name+": new forks", len(j.Reorged), c.newForks)
		check.Equal(t, c.name+": sub-state", after.Sub, txmanager.Included)
		check.Equal(t, c.name+": block of the receipt", after.Receipt.BlockHash, stored[0].Hash)
	}
}

// A receipt in another block than before replaces the whole list.
func TestReceiptInAnotherBlockReplacesTheList(t *testing.T) {
	t.Parallel()
	tx := txtest.Included(5, txtest.Blocks('a', 100, 102)...)
	for _, at := range []uint64{99, 100, 101} {
		shown := txtest.Blocks('b', 99, 104)
		v := txtest.Finding(txtest.ViewOf(txtest.StateOf(1, 6, tx), shown...), txtest.ReceiptOf(tx, txtest.Block('b', at)))
		after, j := evaluateOne(rulesOf(20), tx, v)
		if d := txtest.Diff(txtest.Blocks('b', at, 104), after.Confirmations); d != "" || len(j.Reorged) != 1 {
			t.Errorf("block %d: got %d new forks, want 1; list (-want +got):\n%s", at, len(j.Reorged), d)
		}
		if after.Receipt.BlockNumber != at || after.Receipt.BlockHash != txtest.Block('b', at).Hash {
			t.Errorf("got receipt %+v, want that of block %d", after.Receipt, at)
		}
	}
}

// Only another block at the receipt's height removes a receipt; the transaction is then sent again
// at once.
func TestReceiptIsRemovedOnlyByAnotherBlockAtItsHeight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		shown   []txmanager.Header
		answer  txmanager.Answer
		removed bool
	}{
		{"another block there", txtest.Blocks('b', 100, 104), txmanager.AnswerNotFound, true},
		{"the same block there", txtest.Blocks('a', 100, 104), txmanager.AnswerNotFound, false},
		{"the head is below", txtest.Blocks('b', 97, 99), txmanager.AnswerNotFound, false},
		{"headers only above", txtest.Blocks('b', 101, 104), txmanager.AnswerNotFound, false},
		{"no answer about the receipt", txtest.Blocks('b', 100, 104), txmanager.AnswerUnknown, false},
	} {
		tx := txtest.Included(5, txtest.Blocks('a', 100, 102)...)
		v := txtest.ViewOf(txtest.StateOf(1, 6, tx), c.shown...)
		v.Receipts[tx.Hash()] = txmanager.ReceiptAnswer{Answer: c.answer}
		after, j := evaluateOne(rulesOf(20), tx, v)
		switch {
		case !c.removed && (after.Sub != txmanager.Included || after.Receipt == nil || len(after.Confirmations) != 3 || len(j.Reorged)+len(j.Rebroadcasts) > 0):
			t.Errorf("%s: got %s with %d blocks, %d new forks, %d sent; want no news", c.name, after.Sub, len(after.Confirmations), len(j.Reorged), len(j.Rebroadcasts))
		case c.removed && (after.Sub != txmanager.Pending || after.Receipt != nil || after.Confirmations != nil || len(j.Reorged) != 1):
			t.Errorf("%s: got %s, receipt %v, %d new forks; want PENDING without receipt, one", c.name, after.Sub, after.Receipt, len(j.Reorged))
		case c.removed && (len(j.Rebroadcasts) != 1 || after.SubmitAttempts != 1 || !after.FirstSubmitAt.Equal(txtest.Now) || !after.LastSubmitAt.Equal(txtest.Now)):
			t.Errorf("%s: got %d sent, attempt %d; want it claimed and sent again", c.name, len(j.Rebroadcasts), after.SubmitAttempts)
		}
	}
}

func TestTagsDecideFinality(t *testing.T) {
	t.Parallel()
	at := func(n uint64) *txmanager.Header { return new(txtest.Block('a', n)) }
	for _, c := range []struct {
		name      string
		headers   []txmanager.Header
		tagged    *txmanager.Header
		want      txmanager.State
		lookAgain bool
	}{
		{"the tag is on the receipt's block", txtest.Blocks('a', 100, 103), at(100), txmanager.Confirmed, false},
		{"the tag is above", txtest.Blocks('a', 100, 103), at(102), txmanager.Confirmed, false},
		{"the tag is below, however many blocks are on top", txtest.Blocks('a', 100, 180), at(99), txmanager.Tracking, false},
		{"the node has no such tag", txtest.Blocks('a', 100, 180), nil, txmanager.Tracking, false},
		{"the tag is above, the receipt's block unseen", nil, at(102), txmanager.Tracking, true},
		{"the tag is below, the receipt's block unseen", nil, at(99), txmanager.Tracking, false},
		{"another block at the receipt's height", txtest.Blocks('b', 100, 103), at(102), txmanager.Tracking, false},
	} {
		for _, mode := range []txmanager.Finality{txmanager.BySafe, txmanager.ByFinalized} {
			r := rulesOf(3)
			r.By = mode
			tx := txtest.Pending(5)
			v := txtest.Finding(txtest.ViewOf(txtest.StateOf(1, 6, tx), txtest.Block('a', 200)), txtest.ReceiptOf(tx, txtest.Block('a', 100)))
			v.Headers, v.Tagged = c.headers, c.tagged
			after, j := evaluateOne(r, tx, v)
			check.Equal(t, fmt.Sprintf("%s: %s: state", mode, c.name), after.State, c.want)
			check.Equal(t, fmt.Sprintf("%s: %s: look again", mode, c.name), j.NeedsHeaders, c.lookAgain)
		}
	}
}

package txmanager

import (
	"testing"
	"time"
)

// A transaction is final exactly with N blocks on top of the receipt's, for N from 0 to 20.
func TestFinalWithExactlyTheConfirmationsRequired(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		for _, n := range []uint64{0, 1, 2, 3, 20} {
			for onTop := uint64(0); onTop <= n+2; onTop++ {
				tx := pending(5)
				v := finding(viewOf(stateOf(1, 6, tx), blocks('a', 100, 100+onTop)...), receiptOf(tx, block('a', 100)))
				after, j := evaluateOne(rulesOf(n), tx, v)
				want := Tracking
				if onTop >= n {
					want = Confirmed
				}
				if after.State != want || j.needsHeaders {
					t.Errorf("%d required, %d on top: got %s, look again %v; want %s without", n, onTop, after.State, j.needsHeaders, want)
				}
				if got, want := len(after.Confirmations), int(min(n, onTop))+1; got != want {
					t.Errorf("%d required, %d on top: got %d blocks listed, want %d", n, onTop, got, want)
				}
			}
		}
	})
}

// Until a transaction can be final, one check is planned for the time when the missing blocks are
// expected.
func TestNextCheckIsWhenTheLastConfirmationIsExpected(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r := rulesOf(20)
		tx := pending(5)
		for onTop, missing := range map[uint64]uint64{0: 20, 7: 13, 19: 1} {
			v := finding(viewOf(stateOf(1, 6, tx), blocks('a', 100, 100+onTop)...), receiptOf(tx, block('a', 100)))
			after, _ := evaluateOne(r, tx, v)
			if want := r.afterBlocks(missing, v.Head, dbNow); !after.NextCheckAt.Equal(want) {
				t.Errorf("%d on top: next check %v, want %v", onTop, after.NextCheckAt, want)
			}
		}
	})
}

// A tracked transaction is polled however far off its finality is.
func TestIncludedIsWatchedAtLeastEveryInterval(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r := rulesOf(20)
		r.WatchEvery = time.Minute
		tx := pending(5)
		for onTop, want := range map[uint64]time.Duration{0: time.Minute, 15: time.Minute, 16: 48500 * time.Millisecond, 19: 12500 * time.Millisecond} {
			v := finding(viewOf(stateOf(1, 6, tx), blocks('a', 100, 100+onTop)...), receiptOf(tx, block('a', 100)))
			if after, _ := evaluateOne(r, tx, v); after.NextCheckAt.Sub(dbNow) != want {
				t.Errorf("%d on top: next check in %v, want %v", onTop, after.NextCheckAt.Sub(dbNow), want)
			}
		}
	})
}

// H11: blocks counted in an earlier query do not count. An observation without headers proves
// nothing; a query with headers follows only where it may help.
func TestH11OneViewMustProveFinality(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		tx := included(5, blocks('a', 100, 120)...)
		for head, lookAgain := range map[uint64]bool{119: false, 120: true, 150: true} {
			v := finding(viewOf(stateOf(1, 6, tx), block('a', head)), *tx.Receipt)
			v.Headers = nil
			after, j := evaluateOne(rulesOf(20), tx, v)
			if after.State != Tracking || after.Sub != Included || j.needsHeaders != lookAgain {
				t.Errorf("head %d: got %s, look again %v; want TRACKING, %v", head, after.State, j.needsHeaders, lookAgain)
			}
			if len(after.Confirmations) != 21 || j.newForks != 0 {
				t.Errorf("head %d: got %d blocks, %d new forks; want the list as it was", head, len(after.Confirmations), j.newForks)
			}
		}
	})
}

// H11: headers of another chain than the receipt's prove nothing.
func TestH11HeadersThatContradictTheReceiptChangeNothing(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r := rulesOf(3)
		for _, before := range []Tx{pending(5), stuck(5), included(5, blocks('a', 100, 101)...)} {
			v := finding(viewOf(stateOf(1, 6, before), blocks('b', 100, 110)...), receiptOf(before, block('a', 100)))
			after, j := evaluateOne(r, before, v)
			if after.State != before.State || after.Sub != before.Sub || j.newForks != 0 || !after.NextCheckAt.Equal(dbNow.Add(r.BlockTime/2)) {
				t.Errorf("%s/%s: got %s/%s, %d new forks, next %v; want it as it was, looked at in half a block",
					before.State, before.Sub, after.State, after.Sub, j.newForks, after.NextCheckAt)
			}
		}
	})
}

// The list of confirming blocks grows, stays, or is replaced as a whole.
func TestConfirmingBlocksGrowOrAreReplaced(t *testing.T) {
	t.Parallel()
	joined := func(a, b []Header) []Header { return append(append([]Header{}, a...), b...) }
	stored := blocks('a', 100, 102)
	for _, c := range []struct {
		name     string
		shown    []Header
		want     []Header
		newForks int
	}{
		{"two more", blocks('a', 100, 104), blocks('a', 100, 104), 0},
		{"from below the receipt's block on", blocks('a', 90, 119), blocks('a', 100, 119), 0},
		{"the same", stored, stored, 0},
		{"a lagging node: fewer", blocks('a', 100, 101), stored, 0},
		{"a lagging node: the first alone", blocks('a', 100, 100), stored, 0},
		{"another last block", joined(blocks('a', 100, 101), blocks('b', 102, 104)), joined(blocks('a', 100, 101), blocks('b', 102, 104)), 1},
		{"another second block", joined(blocks('a', 100, 100), blocks('b', 101, 104)), joined(blocks('a', 100, 100), blocks('b', 101, 104)), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			frozen(t, func(t *testing.T) {
				tx := included(5, stored...)
				v := finding(viewOf(stateOf(1, 6, tx), c.shown...), *tx.Receipt)
				after, j := evaluateOne(rulesOf(20), tx, v)
				if d := diff(c.want, after.Confirmations); d != "" || j.newForks != c.newForks {
					t.Errorf("got %d new forks, want %d; list (-want +got):\n%s", j.newForks, c.newForks, d)
				}
				if after.Sub != Included || after.Receipt.BlockHash != stored[0].Hash {
					t.Errorf("got %s/%s in %s, want INCLUDED in the same block", after.State, after.Sub, after.Receipt.BlockHash)
				}
			})
		})
	}
}

// A receipt in another block than before replaces the whole list.
func TestReceiptInAnotherBlockReplacesTheList(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		tx := included(5, blocks('a', 100, 102)...)
		for _, at := range []uint64{99, 100, 101} {
			shown := blocks('b', 99, 104)
			v := finding(viewOf(stateOf(1, 6, tx), shown...), receiptOf(tx, block('b', at)))
			after, j := evaluateOne(rulesOf(20), tx, v)
			if d := diff(blocks('b', at, 104), after.Confirmations); d != "" || j.newForks != 1 {
				t.Errorf("block %d: got %d new forks, want 1; list (-want +got):\n%s", at, j.newForks, d)
			}
			if after.Receipt.BlockNumber != at || after.Receipt.BlockHash != block('b', at).Hash {
				t.Errorf("got receipt %+v, want that of block %d", after.Receipt, at)
			}
		}
	})
}

// Only another block at the receipt's height removes a receipt; the transaction is then sent again
// at once.
func TestReceiptIsRemovedOnlyByAnotherBlockAtItsHeight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		shown   []Header
		answer  Answer
		removed bool
	}{
		{"another block there", blocks('b', 100, 104), AnswerNotFound, true},
		{"the same block there", blocks('a', 100, 104), AnswerNotFound, false},
		{"the head is below", blocks('b', 97, 99), AnswerNotFound, false},
		{"headers only above", blocks('b', 101, 104), AnswerNotFound, false},
		{"no answer about the receipt", blocks('b', 100, 104), AnswerUnknown, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			frozen(t, func(t *testing.T) {
				tx := included(5, blocks('a', 100, 102)...)
				v := viewOf(stateOf(1, 6, tx), c.shown...)
				v.Receipts[tx.Hash()] = ReceiptAnswer{Answer: c.answer}
				after, j := evaluateOne(rulesOf(20), tx, v)
				switch {
				case !c.removed && (after.Sub != Included || after.Receipt == nil || len(after.Confirmations) != 3 || j.newForks+len(j.rebroadcasts) > 0):
					t.Errorf("got %s with %d blocks, %d new forks, %d sent; want no news", after.Sub, len(after.Confirmations), j.newForks, len(j.rebroadcasts))
				case c.removed && (after.Sub != Pending || after.Receipt != nil || after.Confirmations != nil || j.newForks != 1):
					t.Errorf("got %s, receipt %v, %d new forks; want PENDING without receipt, one", after.Sub, after.Receipt, j.newForks)
				case c.removed && (len(j.rebroadcasts) != 1 || after.SubmitAttempts != 1 || !after.FirstSubmitAt.Equal(dbNow) || !after.LastSubmitAt.Equal(dbNow)):
					t.Errorf("got %d sent, attempt %d; want it claimed and sent again", len(j.rebroadcasts), after.SubmitAttempts)
				}
			})
		})
	}
}

func TestTagsDecideFinality(t *testing.T) {
	t.Parallel()
	at := func(n uint64) *Header { return new(block('a', n)) }
	for _, c := range []struct {
		name      string
		headers   []Header
		tagged    *Header
		want      State
		lookAgain bool
	}{
		{"the tag is on the receipt's block", blocks('a', 100, 103), at(100), Confirmed, false},
		{"the tag is above", blocks('a', 100, 103), at(102), Confirmed, false},
		{"the tag is below, however many blocks are on top", blocks('a', 100, 180), at(99), Tracking, false},
		{"the node has no such tag", blocks('a', 100, 180), nil, Tracking, false},
		{"the tag is above, the receipt's block unseen", nil, at(102), Tracking, true},
		{"the tag is below, the receipt's block unseen", nil, at(99), Tracking, false},
		{"another block at the receipt's height", blocks('b', 100, 103), at(102), Tracking, false},
	} {
		for _, mode := range []Finality{BySafe, ByFinalized} {
			t.Run(string(mode)+": "+c.name, func(t *testing.T) {
				t.Parallel()
				frozen(t, func(t *testing.T) {
					r := rulesOf(3)
					r.Finality = mode
					tx := pending(5)
					v := finding(viewOf(stateOf(1, 6, tx), block('a', 200)), receiptOf(tx, block('a', 100)))
					v.Headers, v.Tagged = c.headers, c.tagged
					after, j := evaluateOne(r, tx, v)
					if after.State != c.want || j.needsHeaders != c.lookAgain {
						t.Errorf("got %s, look again %v; want %s, %v", after.State, j.needsHeaders, c.want, c.lookAgain)
					}
				})
			})
		}
	}
}

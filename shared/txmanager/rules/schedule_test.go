package rules

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// timed is t with the times given; nil: no time.
func timed(t txmanager.Tx, check, resubmit *time.Time) txmanager.Tx {
	t.NextCheckAt, t.NextResubmitAt = check, resubmit
	return t
}

// H21: the next task is planned from the state alone, for every state.
func TestH21WhatIsDueIsReadFromTheState(t *testing.T) {
	t.Parallel()
	soon, later := txtest.In(10*time.Second), txtest.In(time.Minute)
	waits := txtest.Queued(1, "pay")
	waits.NextCheckAt = soon
	past := txtest.Queued(1, "pay")
	past.NextCheckAt = txtest.Ago(time.Second)
	ready := txtest.Queued(1, "pay")
	for _, c := range []struct {
		name  string
		w     func(txmanager.SubmitterState) txmanager.SubmitterState
		held  []txmanager.Tx
		queue []txmanager.Tx
		want  NextWork
	}{
		{"nothing at all", nil, nil, nil, NextWork{}},
		{"held without bytes, in PROTECT", func(w txmanager.SubmitterState) txmanager.SubmitterState { w.Protected = true; return w }, []txmanager.Tx{txtest.Bare(5)}, nil, NextWork{}},
		{"held without bytes", nil, []txmanager.Tx{txtest.Bare(5)}, nil, NextWork{AdvanceNow: true}},
		{"sent, the outcome unknown", nil, []txmanager.Tx{timed(txtest.Submitted(5), later, soon)}, nil, NextWork{Kind: txmanager.KindResubmit, At: *soon}},
		{"sent, to be checked first", nil, []txmanager.Tx{timed(txtest.Submitted(5), soon, later)}, nil, NextWork{Kind: txmanager.KindReceipt, At: *soon}},
		{"pending", nil, []txmanager.Tx{timed(txtest.Pending(5), soon, later)}, nil, NextWork{Kind: txmanager.KindReceipt, At: *soon}},
		{"pending, to be sent again", nil, []txmanager.Tx{timed(txtest.Pending(5), later, soon)}, nil, NextWork{Kind: txmanager.KindResubmit, At: *soon}},
		{"included", nil, []txmanager.Tx{timed(txtest.Included(5, txtest.Block('a', 99)), later, soon)}, nil, NextWork{Kind: txmanager.KindConfirm, At: *later}},
		{"stuck goes on being watched", nil, []txmanager.Tx{timed(txtest.Stuck(5), soon, nil)}, nil, NextWork{Kind: txmanager.KindReceipt, At: *soon}},
		{"in PROTECT it is watched too", func(w txmanager.SubmitterState) txmanager.SubmitterState { w.Protected = true; return w }, []txmanager.Tx{timed(txtest.Pending(5), soon, later)}, []txmanager.Tx{ready}, NextWork{Kind: txmanager.KindReceipt, At: *soon}},
		{"the earliest of several", nil, []txmanager.Tx{timed(txtest.Included(4, txtest.Block('a', 99)), later, nil), timed(txtest.Pending(5), soon, later)}, nil, NextWork{Kind: txmanager.KindReceipt, At: *soon}},
		{"a queue and room", nil, nil, []txmanager.Tx{ready}, NextWork{AdvanceNow: true}},
		{"a queue whose wait is over", nil, nil, []txmanager.Tx{past}, NextWork{AdvanceNow: true}},
		{"a queue that waits", nil, nil, []txmanager.Tx{waits}, NextWork{Kind: txmanager.KindAdvance, At: *soon}},
		{"a queue behind one that waits", nil, nil, []txmanager.Tx{waits, ready}, NextWork{Kind: txmanager.KindAdvance, At: *soon}},
		{"a queue and room above an acknowledged one", nil, []txmanager.Tx{timed(txtest.Pending(5), soon, later)}, []txmanager.Tx{ready}, NextWork{AdvanceNow: true, Kind: txmanager.KindReceipt, At: *soon}},
		{"a queue above an unacknowledged one", nil, []txmanager.Tx{timed(txtest.Submitted(5), soon, later)}, []txmanager.Tx{ready}, NextWork{Kind: txmanager.KindReceipt, At: *soon}},
		{"a queue above a stuck one", nil, []txmanager.Tx{timed(txtest.Stuck(5), soon, nil)}, []txmanager.Tx{ready}, NextWork{Kind: txmanager.KindReceipt, At: *soon}},
		{"a queue without room", func(w txmanager.SubmitterState) txmanager.SubmitterState { w.Window = 1; return w }, []txmanager.Tx{timed(txtest.Pending(5), soon, later)}, []txmanager.Tx{ready}, NextWork{Kind: txmanager.KindReceipt, At: *soon}},
		{"a queue in PROTECT", func(w txmanager.SubmitterState) txmanager.SubmitterState { w.Protected = true; return w }, nil, []txmanager.Tx{ready}, NextWork{}},
		{"a queue that is suspended", func(w txmanager.SubmitterState) txmanager.SubmitterState { w.Suspended = true; return w }, nil, []txmanager.Tx{ready}, NextWork{}},
		{"all that was loaded is done, there is more", func(w txmanager.SubmitterState) txmanager.SubmitterState { w.QueueMore = true; return w }, nil, nil, NextWork{AdvanceNow: true}},
		{"there is more, and no room", func(w txmanager.SubmitterState) txmanager.SubmitterState { w.QueueMore, w.Window = true, 1; return w }, []txmanager.Tx{timed(txtest.Pending(5), soon, nil)}, nil, NextWork{Kind: txmanager.KindReceipt, At: *soon}},
	} {
		w := txtest.Queue(txtest.StateOf(5, 6, c.held...), c.queue...)
		if c.w != nil {
			w = c.w(w)
		}
		check.Equal(t, c.name, rulesOf(3).PlanNextWork(w), c.want)
	}
}

// With resubmission off, a missing receipt causes no task; the first broadcast's unknown outcome
// still does.
func TestResubmitSwitchedOffIsNotDue(t *testing.T) {
	t.Parallel()
	r := rulesOf(3)
	r.Resubmit = false
	check.Equal(t, "pending", r.PlanNextWork(txtest.StateOf(1, 6, timed(txtest.Pending(5), txtest.In(time.Minute), txtest.In(time.Second)))), (NextWork{Kind: txmanager.KindReceipt, At: *txtest.In(time.Minute)}))
	check.Equal(t, "sent", r.PlanNextWork(txtest.StateOf(1, 6, timed(txtest.Submitted(5), txtest.In(time.Minute), txtest.In(time.Second)))), (NextWork{Kind: txmanager.KindResubmit, At: *txtest.In(time.Second)}))
}

// Every transaction that holds a nonce outside PROTECT is due at some time.
func TestEveryOpenNonceIsDue(t *testing.T) {
	t.Parallel()
	r := rulesOf(3)
	v := txtest.ViewOf(txtest.StateOf(1, 6, txtest.Pending(5)), txtest.Blocks('a', 100, 101)...)
	var reached []txmanager.Tx
	for _, tx := range []txmanager.Tx{txtest.Pending(5), txtest.Submitted(5), txtest.Stuck(5), txtest.Included(5, txtest.Blocks('a', 100, 101)...)} {
		for _, answer := range []txmanager.Answer{txmanager.AnswerUnknown, txmanager.AnswerNotFound, txmanager.AnswerFound} {
			v.Receipts[tx.Hash()] = txmanager.ReceiptAnswer{Answer: answer, Receipt: txtest.ReceiptOf(tx, txtest.Block('a', 100))}
			after, _ := evaluateOne(r, tx, v)
			reached = append(reached, after)
		}
	}
	for class := txmanager.SendUnknown; class <= txmanager.SendInvalid; class++ {
		reached = append(reached, r.AfterBroadcast(txtest.Submitted(5), txmanager.SendResult{Class: class}, v.Head, txtest.Now))
	}
	reached = append(reached, txtest.Bare(5), WithVersion(txtest.Bare(5), txmanager.VersionOriginal, txmanager.Signed{}, txtest.Now))
	for _, tx := range reached {
		if d := r.PlanNextWork(txtest.StateOf(1, 6, tx)); !d.AdvanceNow && d.At.IsZero() {
			t.Errorf("%s/%s %q: nothing is due", tx.State, tx.Sub, tx.LastError)
		}
	}
}

// A query asks for receipts of every version of due transactions, and headers from the lowest
// stored receipt to the last confirmation of the highest.
func TestQueryAsksForDueTransactions(t *testing.T) {
	t.Parallel()
	now, far := txtest.Ago(time.Second), txtest.In(time.Hour)
	two := timed(txtest.Pending(6), now, far)
	two.Versions = append(two.Versions, txtest.VersionHash(6, 2))
	for _, c := range []struct {
		name     string
		held     []txmanager.Tx
		receipts []txmanager.Hash
		from, to uint64
		ok       bool
	}{
		{"nothing held", nil, nil, 0, 0, false},
		{"nothing due", []txmanager.Tx{timed(txtest.Pending(5), far, far)}, nil, 0, 0, false},
		{"a check is due", []txmanager.Tx{timed(txtest.Pending(5), now, far)}, []txmanager.Hash{txtest.VersionHash(5, 1)}, 0, 0, true},
		{"a check is due within a moment", []txmanager.Tx{timed(txtest.Pending(5), txtest.In(3*time.Second), far)}, []txmanager.Hash{txtest.VersionHash(5, 1)}, 0, 0, true},
		{"a check is due a little later", []txmanager.Tx{timed(txtest.Pending(5), txtest.In(3*time.Second+1), far)}, nil, 0, 0, false},
		{"to be sent again", []txmanager.Tx{timed(txtest.Pending(5), far, now)}, []txmanager.Hash{txtest.VersionHash(5, 1)}, 0, 0, true},
		{"no time is on record", []txmanager.Tx{timed(txtest.Submitted(5), nil, nil)}, []txmanager.Hash{txtest.VersionHash(5, 1)}, 0, 0, true},
		{"a stuck one", []txmanager.Tx{timed(txtest.Stuck(5), now, nil)}, []txmanager.Hash{txtest.VersionHash(5, 1)}, 0, 0, true},
		{"every version", []txmanager.Tx{timed(txtest.Pending(5), far, far), two}, []txmanager.Hash{txtest.VersionHash(6, 1), txtest.VersionHash(6, 2)}, 0, 0, true},
		{"without bytes", []txmanager.Tx{txtest.Bare(5)}, nil, 0, 0, true},
		{"included", []txmanager.Tx{timed(txtest.Included(5, txtest.Block('a', 100)), now, nil)}, []txmanager.Hash{txtest.VersionHash(5, 1)}, 100, 120, true},
		{"included, not due", []txmanager.Tx{timed(txtest.Included(5, txtest.Block('a', 100)), far, nil)}, nil, 0, 0, false},
		{"two included", []txmanager.Tx{timed(txtest.Included(5, txtest.Block('a', 100)), now, nil), timed(txtest.Included(6, txtest.Block('a', 103)), now, nil)},
			[]txmanager.Hash{txtest.VersionHash(5, 1), txtest.VersionHash(6, 1)}, 100, 123, true},
	} {
		for _, k := range []txmanager.Kind{txmanager.KindAdvance, txmanager.KindReceipt, txmanager.KindConfirm, txmanager.KindResubmit} {
			q, ok := rulesOf(20).NextQuery(txtest.StateOf(5, 7, c.held...), k, txtest.Reader(nil))
			wantOK := c.ok && (c.name != "without bytes" || k.MaySign()) // only the signer can do anything there
			if ok != wantOK || !slices.Equal(q.Receipts, c.receipts) || q.FromBlock != c.from || q.ToBlock != c.to {
				t.Errorf("%s, %s: got %v, %d receipts, headers %d to %d; want %v, %d, %d to %d",
					c.name, k, ok, len(q.Receipts), q.FromBlock, q.ToBlock, c.ok, len(c.receipts), c.from, c.to)
			}
			if !q.Account || q.Submitter != txtest.Alice || q.Finality != "" {
				t.Errorf("%s, %s: got %+v, want the account of %s, no tag", c.name, k, q, txtest.Alice)
			}
		}
	}
}

// Only a function that may sign queries for the queue, and only where a nonce is free.
func TestQueryCoversTheQueueOnlyForASigner(t *testing.T) {
	t.Parallel()
	waits := txtest.Queued(1, "call")
	waits.NextCheckAt = txtest.In(time.Minute)
	calls := []txmanager.Tx{txtest.Queued(1, "call"), txtest.Queued(2, "pay"), txtest.Queued(3, "junk"), txtest.Queued(4, "call")}
	for _, c := range []struct {
		name      string
		change    func(*txmanager.SubmitterState)
		kind      txmanager.Kind
		queue     []txmanager.Tx
		estimates int
		ok        bool
	}{
		{"an advance", nil, txmanager.KindAdvance, calls, 2, true},
		{"a receipt", nil, txmanager.KindReceipt, calls, 0, false},
		{"a confirm", nil, txmanager.KindConfirm, calls, 0, false},
		{"an empty queue", nil, txmanager.KindAdvance, nil, 0, false},
		{"the head waits", nil, txmanager.KindAdvance, []txmanager.Tx{waits, txtest.Queued(2, "call")}, 0, false},
		{"in PROTECT", func(w *txmanager.SubmitterState) { w.Protected = true }, txmanager.KindAdvance, calls, 0, false},
		{"suspended", func(w *txmanager.SubmitterState) { w.Suspended = true }, txmanager.KindAdvance, calls, 0, false},
		{"no room", func(w *txmanager.SubmitterState) { w.Open, w.Window = []txmanager.Tx{txtest.Pending(5)}, 1 }, txmanager.KindAdvance, calls, 2, false},
	} {
		w := txtest.Queue(txtest.StateOf(5, 6), c.queue...)
		if c.change != nil {
			c.change(&w)
		}
		q, ok := rulesOf(20).NextQuery(w, c.kind, txtest.Reader(nil))
		check.Equal(t, c.name+": something to ask", ok, c.ok)
		check.Equal(t, c.name+": estimates", len(q.Estimates), c.estimates)
	}
}

// Estimates are mapped to their transactions in order.
func TestEstimatesFindTheirTransactions(t *testing.T) {
	t.Parallel()
	w := txmanager.SubmitterState{Queue: []txmanager.Tx{txtest.Queued(1, "call"), txtest.Queued(2, "pay"), txtest.Queued(3, "junk"), txtest.Queued(4, "call")}}
	got := EstimatesByTx(w, txtest.Reader(nil), []txmanager.Estimate{txtest.Estimated(1), txtest.Estimated(2)})
	txtest.Same(t, "each answer", got, map[string]txmanager.Estimate{"q-1": txtest.Estimated(1), "q-4": txtest.Estimated(2)})
	got = EstimatesByTx(w, txtest.Reader(nil), []txmanager.Estimate{txtest.Estimated(1)})
	txtest.Same(t, "one answer too few", got, map[string]txmanager.Estimate{"q-1": txtest.Estimated(1)})
	check.Equal(t, "no answers: estimates", len(EstimatesByTx(w, txtest.Reader(nil), nil)), 0)
}

// A further query asks for the same and for the headers on top of the receipts that were found.
func TestFinalityQueryCoversFoundReceipts(t *testing.T) {
	t.Parallel()
	h := func(n uint64) txmanager.Hash { return txtest.VersionHash(n, 1) }
	v := txmanager.ChainObservation{Receipts: map[txmanager.Hash]txmanager.ReceiptAnswer{
		h(5): {Answer: txmanager.AnswerFound, Receipt: txmanager.Receipt{BlockNumber: 100}},
		h(6): {Answer: txmanager.AnswerFound, Receipt: txmanager.Receipt{BlockNumber: 104}},
		h(7): {Answer: txmanager.AnswerNotFound, Receipt: txmanager.Receipt{BlockNumber: 1}},
		h(8): {Receipt: txmanager.Receipt{BlockNumber: 1}},
	}}
	before := txmanager.ChainQuery{Submitter: txtest.Alice, Account: true, Receipts: []txmanager.Hash{h(5), h(6), h(7), h(8)}, Finality: "safe"}
	want := before
	want.FromBlock, want.ToBlock = 100, 124
	txtest.Same(t, "found receipts", rulesOf(20).WithFinalityHeaders(before, v), want)
	before.FromBlock, before.ToBlock, want.FromBlock, want.ToBlock = 90, 140, 90, 140
	txtest.Same(t, "a wider range", rulesOf(20).WithFinalityHeaders(before, v), want)
	txtest.Same(t, "nothing found", rulesOf(20).WithFinalityHeaders(before, txmanager.ChainObservation{}), before)
}

// Where a tag decides finality, the query asks for the tag and a bounded list.
func TestTagsAreAskedFor(t *testing.T) {
	t.Parallel()
	for mode, tag := range map[txmanager.Finality]string{txmanager.BySafe: "safe", txmanager.ByFinalized: "finalized", txmanager.ByConfirmations: ""} {
		r := rulesOf(20)
		r.By = mode
		depth := uint64(maxListed)
		if mode == txmanager.ByConfirmations {
			depth = 20
		}
		q, _ := r.NextQuery(txtest.StateOf(1, 6, timed(txtest.Included(5, txtest.Block('a', 100)), nil, nil)), txmanager.KindConfirm, nil)
		if q.Finality != tag || q.FromBlock != 100 || q.ToBlock != 100+depth {
			t.Errorf("%s: got tag %q, headers %d to %d; want %q, 100 to %d", mode, q.Finality, q.FromBlock, q.ToBlock, tag, 100+depth)
		}
	}
}

// Work that arrived while a submitter was served waits half a block, at most half a second, and
// never longer than other due work.
func TestNewWorkWaitsAtMostHalfABlock(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	for _, c := range []struct{ block, due, want time.Duration }{
		{time.Second, 0, 500 * time.Millisecond},
		{12 * time.Second, 0, 500 * time.Millisecond},
		{250 * time.Millisecond, 0, 125 * time.Millisecond},
		{time.Second, 100 * time.Millisecond, 100 * time.Millisecond},
		{12 * time.Second, 5 * time.Second, 500 * time.Millisecond},
	} {
		var d NextWork
		if c.due > 0 {
			d.At = now.Add(c.due)
		}
		check.Equal(t, fmt.Sprintf("blocks of %s, something due in %s", c.block, c.due), (Rules{Finality: Finality{BlockTime: c.block}}).PacedAt(d, now).Sub(now), c.want)
	}
}

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
	check.Same(t, "receipts", q.Receipts, receipts)
	check.Same(t, "hints", q.Hints, hints)
}

package txmanager

import (
	"slices"
	"testing"
	"time"
)

// timed is t with the times given; nil: no time.
func timed(t Tx, check, resubmit *time.Time) Tx {
	t.NextCheckAt, t.NextResubmitAt = check, resubmit
	return t
}

// H21: the next task is planned from the state alone, for every state.
func TestH21WhatIsDueIsReadFromTheState(t *testing.T) {
	t.Parallel()
	soon, later := in(10*time.Second), in(time.Minute)
	waits := queued(1, "pay")
	waits.NextCheckAt = soon
	past := queued(1, "pay")
	past.NextCheckAt = ago(time.Second)
	ready := queued(1, "pay")
	for _, c := range []struct {
		name  string
		w     func(SubmitterState) SubmitterState
		held  []Tx
		queue []Tx
		want  nextWork
	}{
		{"nothing at all", nil, nil, nil, nextWork{}},
		{"held without bytes", nil, []Tx{bare(5)}, nil, nextWork{advanceNow: true}},
		{"sent, the outcome unknown", nil, []Tx{timed(submitted(5), later, soon)}, nil, nextWork{kind: KindResubmit, at: *soon}},
		{"sent, to be checked first", nil, []Tx{timed(submitted(5), soon, later)}, nil, nextWork{kind: KindReceipt, at: *soon}},
		{"pending", nil, []Tx{timed(pending(5), soon, later)}, nil, nextWork{kind: KindReceipt, at: *soon}},
		{"pending, to be sent again", nil, []Tx{timed(pending(5), later, soon)}, nil, nextWork{kind: KindResubmit, at: *soon}},
		{"included", nil, []Tx{timed(included(5, block('a', 99)), later, soon)}, nil, nextWork{kind: KindConfirm, at: *later}},
		{"stuck goes on being watched", nil, []Tx{timed(stuck(5), soon, nil)}, nil, nextWork{kind: KindReceipt, at: *soon}},
		{"in PROTECT it is watched too", func(w SubmitterState) SubmitterState { w.Protected = true; return w }, []Tx{timed(pending(5), soon, later)}, []Tx{ready}, nextWork{kind: KindReceipt, at: *soon}},
		{"the earliest of several", nil, []Tx{timed(included(4, block('a', 99)), later, nil), timed(pending(5), soon, later)}, nil, nextWork{kind: KindReceipt, at: *soon}},
		{"a queue and room", nil, nil, []Tx{ready}, nextWork{advanceNow: true}},
		{"a queue whose wait is over", nil, nil, []Tx{past}, nextWork{advanceNow: true}},
		{"a queue that waits", nil, nil, []Tx{waits}, nextWork{kind: KindAdvance, at: *soon}},
		{"a queue behind one that waits", nil, nil, []Tx{waits, ready}, nextWork{kind: KindAdvance, at: *soon}},
		{"a queue and room above an acknowledged one", nil, []Tx{timed(pending(5), soon, later)}, []Tx{ready}, nextWork{advanceNow: true, kind: KindReceipt, at: *soon}},
		{"a queue above an unacknowledged one", nil, []Tx{timed(submitted(5), soon, later)}, []Tx{ready}, nextWork{kind: KindReceipt, at: *soon}},
		{"a queue above a stuck one", nil, []Tx{timed(stuck(5), soon, nil)}, []Tx{ready}, nextWork{kind: KindReceipt, at: *soon}},
		{"a queue without room", func(w SubmitterState) SubmitterState { w.Window = 1; return w }, []Tx{timed(pending(5), soon, later)}, []Tx{ready}, nextWork{kind: KindReceipt, at: *soon}},
		{"a queue in PROTECT", func(w SubmitterState) SubmitterState { w.Protected = true; return w }, nil, []Tx{ready}, nextWork{}},
		{"a queue that is suspended", func(w SubmitterState) SubmitterState { w.Suspended = true; return w }, nil, []Tx{ready}, nextWork{}},
		{"all that was loaded is done, there is more", func(w SubmitterState) SubmitterState { w.QueueMore = true; return w }, nil, nil, nextWork{advanceNow: true}},
		{"there is more, and no room", func(w SubmitterState) SubmitterState { w.QueueMore, w.Window = true, 1; return w }, []Tx{timed(pending(5), soon, nil)}, nil, nextWork{kind: KindReceipt, at: *soon}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			frozen(t, func(t *testing.T) {
				w := queue(stateOf(5, 6, c.held...), c.queue...)
				if c.w != nil {
					w = c.w(w)
				}
				if got := rulesOf(3).planNextWork(w); got != c.want {
					t.Errorf("got %+v, want %+v", got, c.want)
				}
			})
		})
	}
}

// With resubmission off, a missing receipt causes no task; the first broadcast's unknown outcome
// still does.
func TestResubmitSwitchedOffIsNotDue(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r := rulesOf(3)
		r.Resubmit = false
		if got, want := r.planNextWork(stateOf(1, 6, timed(pending(5), in(time.Minute), in(time.Second)))), (nextWork{kind: KindReceipt, at: *in(time.Minute)}); got != want {
			t.Errorf("pending: got %+v, want %+v", got, want)
		}
		if got, want := r.planNextWork(stateOf(1, 6, timed(submitted(5), in(time.Minute), in(time.Second)))), (nextWork{kind: KindResubmit, at: *in(time.Second)}); got != want {
			t.Errorf("sent: got %+v, want %+v", got, want)
		}
	})
}

// Every transaction that holds a nonce outside PROTECT is due at some time.
func TestEveryOpenNonceIsDue(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r := rulesOf(3)
		v := viewOf(stateOf(1, 6, pending(5)), blocks('a', 100, 101)...)
		var reached []Tx
		for _, tx := range []Tx{pending(5), submitted(5), stuck(5), included(5, blocks('a', 100, 101)...)} {
			for _, answer := range []Answer{AnswerUnknown, AnswerNotFound, AnswerFound} {
				v.Receipts[tx.Hash()] = ReceiptAnswer{Answer: answer, Receipt: receiptOf(tx, block('a', 100))}
				after, _ := evaluateOne(r, tx, v)
				reached = append(reached, after)
			}
		}
		for class := SendUnknown; class <= SendInvalid; class++ {
			reached = append(reached, r.afterBroadcast(submitted(5), SendResult{Class: class}, v.Head, dbNow))
		}
		reached = append(reached, bare(5), withVersion(bare(5), VersionOriginal, Signed{}, dbNow))
		for _, tx := range reached {
			if d := r.planNextWork(stateOf(1, 6, tx)); !d.advanceNow && d.at.IsZero() {
				t.Errorf("%s/%s %q: nothing is due", tx.State, tx.Sub, tx.LastError)
			}
		}
	})
}

// A query asks for receipts of every version of due transactions, and headers from the lowest
// stored receipt to the last confirmation of the highest.
func TestQueryAsksForDueTransactions(t *testing.T) {
	t.Parallel()
	now, far := ago(time.Second), in(time.Hour)
	two := timed(pending(6), now, far)
	two.Versions = append(two.Versions, versionHash(6, 2))
	for _, c := range []struct {
		name     string
		held     []Tx
		receipts []Hash
		from, to uint64
		ok       bool
	}{
		{"nothing held", nil, nil, 0, 0, false},
		{"nothing due", []Tx{timed(pending(5), far, far)}, nil, 0, 0, false},
		{"a check is due", []Tx{timed(pending(5), now, far)}, []Hash{versionHash(5, 1)}, 0, 0, true},
		{"a check is due within a moment", []Tx{timed(pending(5), in(3*time.Second), far)}, []Hash{versionHash(5, 1)}, 0, 0, true},
		{"a check is due a little later", []Tx{timed(pending(5), in(3*time.Second+1), far)}, nil, 0, 0, false},
		{"to be sent again", []Tx{timed(pending(5), far, now)}, []Hash{versionHash(5, 1)}, 0, 0, true},
		{"no time is on record", []Tx{timed(submitted(5), nil, nil)}, []Hash{versionHash(5, 1)}, 0, 0, true},
		{"a stuck one", []Tx{timed(stuck(5), now, nil)}, []Hash{versionHash(5, 1)}, 0, 0, true},
		{"every version", []Tx{timed(pending(5), far, far), two}, []Hash{versionHash(6, 1), versionHash(6, 2)}, 0, 0, true},
		{"without bytes", []Tx{bare(5)}, nil, 0, 0, true},
		{"included", []Tx{timed(included(5, block('a', 100)), now, nil)}, []Hash{versionHash(5, 1)}, 100, 120, true},
		{"included, not due", []Tx{timed(included(5, block('a', 100)), far, nil)}, nil, 0, 0, false},
		{"two included", []Tx{timed(included(5, block('a', 100)), now, nil), timed(included(6, block('a', 103)), now, nil)},
			[]Hash{versionHash(5, 1), versionHash(6, 1)}, 100, 123, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			frozen(t, func(t *testing.T) {
				for _, k := range []Kind{KindAdvance, KindReceipt, KindConfirm, KindResubmit} {
					q, ok := rulesOf(20).nextQuery(stateOf(5, 7, c.held...), k, reader(nil))
					wantOK := c.ok && (c.name != "without bytes" || k.MaySign()) // only the signer can do anything there
					if ok != wantOK || !slices.Equal(q.Receipts, c.receipts) || q.FromBlock != c.from || q.ToBlock != c.to {
						t.Errorf("%s: got %v, %d receipts, headers %d to %d; want %v, %d, %d to %d",
							k, ok, len(q.Receipts), q.FromBlock, q.ToBlock, c.ok, len(c.receipts), c.from, c.to)
					}
					if !q.Account || q.Submitter != alice || q.Finality != "" {
						t.Errorf("%s: got %+v, want the account of %s, no tag", k, q, alice)
					}
				}
			})
		})
	}
}

// Only a function that may sign queries for the queue, and only where a nonce is free.
func TestQueryCoversTheQueueOnlyForASigner(t *testing.T) {
	t.Parallel()
	waits := queued(1, "call")
	waits.NextCheckAt = in(time.Minute)
	calls := []Tx{queued(1, "call"), queued(2, "pay"), queued(3, "junk"), queued(4, "call")}
	for _, c := range []struct {
		name      string
		change    func(*SubmitterState)
		kind      Kind
		queue     []Tx
		estimates int
		ok        bool
	}{
		{"an advance", nil, KindAdvance, calls, 2, true},
		{"a receipt", nil, KindReceipt, calls, 0, false},
		{"a confirm", nil, KindConfirm, calls, 0, false},
		{"an empty queue", nil, KindAdvance, nil, 0, false},
		{"the head waits", nil, KindAdvance, []Tx{waits, queued(2, "call")}, 0, false},
		{"in PROTECT", func(w *SubmitterState) { w.Protected = true }, KindAdvance, calls, 0, false},
		{"suspended", func(w *SubmitterState) { w.Suspended = true }, KindAdvance, calls, 0, false},
		{"no room", func(w *SubmitterState) { w.Open, w.Window = []Tx{pending(5)}, 1 }, KindAdvance, calls, 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			frozen(t, func(t *testing.T) {
				w := queue(stateOf(5, 6), c.queue...)
				if c.change != nil {
					c.change(&w)
				}
				q, ok := rulesOf(20).nextQuery(w, c.kind, reader(nil))
				if ok != c.ok || len(q.Estimates) != c.estimates {
					t.Errorf("got %v, %d estimates; want %v, %d", ok, len(q.Estimates), c.ok, c.estimates)
				}
			})
		})
	}
}

// Estimates are mapped to their transactions in order.
func TestEstimatesFindTheirTransactions(t *testing.T) {
	t.Parallel()
	w := SubmitterState{Queue: []Tx{queued(1, "call"), queued(2, "pay"), queued(3, "junk"), queued(4, "call")}}
	got := estimatesByTx(w, reader(nil), []Estimate{estimated(1), estimated(2)})
	if d := diff(map[string]Estimate{"q-1": estimated(1), "q-4": estimated(2)}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := estimatesByTx(w, reader(nil), []Estimate{estimated(1)}); len(got) != 1 || got["q-1"].Gas != 1 {
		t.Errorf("one answer too few: got %v, want the first alone", got)
	}
	if got := estimatesByTx(w, reader(nil), nil); len(got) != 0 {
		t.Errorf("no answers: got %v, want none", got)
	}
}

// A further query asks for the same and for the headers on top of the receipts that were found.
func TestFinalityQueryCoversFoundReceipts(t *testing.T) {
	t.Parallel()
	h := func(n uint64) Hash { return versionHash(n, 1) }
	v := ChainObservation{Receipts: map[Hash]ReceiptAnswer{
		h(5): {Answer: AnswerFound, Receipt: Receipt{BlockNumber: 100}},
		h(6): {Answer: AnswerFound, Receipt: Receipt{BlockNumber: 104}},
		h(7): {Answer: AnswerNotFound, Receipt: Receipt{BlockNumber: 1}},
		h(8): {Receipt: Receipt{BlockNumber: 1}},
	}}
	before := ChainQuery{Submitter: alice, Account: true, Receipts: []Hash{h(5), h(6), h(7), h(8)}, Finality: "safe"}
	want := before
	want.FromBlock, want.ToBlock = 100, 124
	if d := diff(want, rulesOf(20).withFinalityHeaders(before, v)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	before.FromBlock, before.ToBlock, want.FromBlock, want.ToBlock = 90, 140, 90, 140
	if d := diff(want, rulesOf(20).withFinalityHeaders(before, v)); d != "" {
		t.Errorf("a wider range was narrowed (-want +got):\n%s", d)
	}
	if d := diff(before, rulesOf(20).withFinalityHeaders(before, ChainObservation{})); d != "" {
		t.Errorf("nothing found (-want +got):\n%s", d)
	}
}

// Where a tag decides finality, the query asks for the tag and a bounded list.
func TestTagsAreAskedFor(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		for mode, tag := range map[Finality]string{BySafe: "safe", ByFinalized: "finalized", ByConfirmations: ""} {
			r := rulesOf(20)
			r.Finality = mode
			depth := uint64(maxListed)
			if mode == ByConfirmations {
				depth = 20
			}
			q, _ := r.nextQuery(stateOf(1, 6, timed(included(5, block('a', 100)), nil, nil)), KindConfirm, nil)
			if q.Finality != tag || q.FromBlock != 100 || q.ToBlock != 100+depth {
				t.Errorf("%s: got tag %q, headers %d to %d; want %q, 100 to %d", mode, q.Finality, q.FromBlock, q.ToBlock, tag, 100+depth)
			}
		}
	})
}

// The time of the next n blocks follows the head's time where that is plausible, and the
// database's clock otherwise.
func TestBlocksAreExpectedByTheChainsRhythm(t *testing.T) {
	t.Parallel()
	r := rulesOf(3) // 12 s, and 0.5 s to arrive
	for _, c := range []struct {
		name string
		made time.Duration // the head's time, before now
		n    uint64
		want time.Duration
	}{
		{"just made", 0, 1, 12500 * time.Millisecond},
		{"made five seconds ago", 5 * time.Second, 1, 7500 * time.Millisecond},
		{"three blocks", 5 * time.Second, 3, 31500 * time.Millisecond},
		{"no blocks is the next one", 5 * time.Second, 0, 7500 * time.Millisecond},
		{"overdue", 20 * time.Second, 1, 12 * time.Second},
		{"an hour old", time.Hour, 2, 24 * time.Second},
		{"from the future", -time.Hour, 1, 12 * time.Second},
	} {
		head := Header{Time: uint64(dbNow.Add(-c.made).Unix())}
		if got := r.afterBlocks(c.n, head, dbNow).Sub(dbNow); got != c.want {
			t.Errorf("%s: got in %v, want in %v", c.name, got, c.want)
		}
	}
}

// A transaction without bytes above one that no node holds is not overdue before that one is
// checked. Once that one is broadcasting, it is due at once.
func TestBlockedTransactionIsNotOverdue(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r := rulesOf(3)
		past, far := ago(time.Hour), dbNow.Add(stuckPollBlocks*r.BlockTime)
		waiting := func(reason string, at *time.Time) Tx {
			x := bare(6)
			x.NextCheckAt, x.LastError = at, reason
			return x
		}
		ordered := waiting("", past)
		ordered.RequestedAction = ActionPlaceholder
		due := stuck(5)
		due.NextCheckAt = past
		distant := stuck(5)
		distant.NextCheckAt = in(time.Hour)
		for _, c := range []struct {
			name         string
			below, above Tx
			want         *time.Time // nil: no move
		}{
			{"behind STUCK", stuck(5), waiting("", past), &far},
			{"behind STUCK, never planned", stuck(5), waiting("", nil), &far},
			{"behind what no node took", submitted(5), waiting("", past), &far},
			{"behind a later check", distant, waiting("", past), distant.NextCheckAt},
			{"behind a check that is due now", due, waiting("", past), nil},
			{"planned already", stuck(5), waiting("", in(time.Minute)), nil},
			{"behind what a node holds, planned", pending(5), waiting("", in(time.Minute)), &dbNow},
			{"behind what goes now, planned", claimBroadcast(submitted(5), dbNow), waiting("", in(time.Minute)), &dbNow},
			{"behind what a node holds, due", pending(5), waiting("", past), nil},
			{"it waits for something of its own", pending(5), waiting("not signed: no answer", in(time.Minute)), nil},
			{"with an order", stuck(5), ordered, nil},
		} {
			moves := r.postponeBlocked(stateOf(2, 7, c.below, c.above))
			if c.want == nil {
				if len(moves) != 0 {
					t.Errorf("%s: got %+v, want it left as it is", c.name, moves[0].To)
				}
				continue
			}
			if len(moves) != 1 || moves[0].To.ID != "tx-6" || moves[0].From != InFlight || !moves[0].To.NextCheckAt.Equal(*c.want) {
				t.Errorf("%s: got %+v, want its next look at %v", c.name, moves, c.want)
			}
		}
		w := stateOf(2, 7, stuck(5), waiting("", past))
		w.Protected = true
		if moves := r.postponeBlocked(w); len(moves) != 0 {
			t.Errorf("in PROTECT: got %+v, want nothing moved", moves)
		}
		w = stateOf(2, 7, stuck(5), waiting("", past))
		tn := invocationBy(&Worker{Service: Service{Rules: r, Timing: testTiming}}, leaseSession{chain: reader(nil), kind: KindReceipt, state: w})
		if p := tn.planUnsigned(t.Context(), viewOf(w, block('a', 100))); len(p.transitions) != 1 || !p.transitions[0].To.NextCheckAt.Equal(far) {
			t.Errorf("a look by receipt: got %+v, want it planned too", p.transitions)
		}
	})
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
		var d nextWork
		if c.due > 0 {
			d.at = now.Add(c.due)
		}
		if got := (Rules{BlockTime: c.block}).pacedAt(d, now).Sub(now); got != c.want {
			t.Errorf("blocks of %s, something due in %s: got %s, want %s", c.block, c.due, got, c.want)
		}
	}
}

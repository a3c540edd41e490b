package txmanager

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// evaluateOne evaluates one open transaction.
func evaluateOne(r Rules, t Tx, v ChainObservation) (Tx, evaluation) {
	w := stateOf(1, *t.Nonce+1, t)
	j := r.evaluate(w, asking(w), v)
	return j.after[0], j
}

// A receipt takes a transaction to TRACKING/INCLUDED from any state: a STUCK one needs no operator
// for it.
func TestReceiptTakesAnyUnsettledTransactionToIncluded(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		for _, before := range []Tx{pending(5), submitted(5), stuck(5), held(5, Protect, "")} {
			before.LastError = "a trouble that is over"
			headers := blocks('a', 100, 102)
			v := finding(viewOf(stateOf(1, 6, before), headers...), receiptOf(before, headers[0]))
			after, j := evaluateOne(rulesOf(20), before, v)
			if after.State != Tracking || after.Sub != Included || after.LastError != "" {
				t.Errorf("%s: got %s/%s %q, want TRACKING/INCLUDED", before.State, after.State, after.Sub, after.LastError)
			}
			if d := diff(headers, after.Confirmations); d != "" {
				t.Errorf("%s: confirming blocks (-want +got):\n%s", before.State, d)
			}
			if d := diff(new(receiptOf(before, headers[0])), after.Receipt); d != "" {
				t.Errorf("%s: receipt (-want +got):\n%s", before.State, d)
			}
			if len(j.transitions) != 1 || j.transitions[0].From != before.State || len(j.rebroadcasts) != 0 {
				t.Errorf("%s: got %d moves, %d to send again; want one move from there, nothing sent", before.State, len(j.transitions), len(j.rebroadcasts))
			}
		}
	})
}

// Neither "not found" nor a missing answer proves anything: only the check times change.
func TestMissingReceiptChangesNothing(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		for _, before := range []Tx{pending(5), submitted(5), stuck(5), included(5, blocks('a', 100, 102)...)} {
			for _, answer := range []Answer{AnswerNotFound, AnswerUnknown} {
				v := viewOf(stateOf(1, 6, before), blocks('a', 100, 103)...)
				v.Receipts[before.Hash()] = ReceiptAnswer{Answer: answer}
				after, j := evaluateOne(rulesOf(20), before, v)
				if after.LastCheckAt == nil || !after.LastCheckAt.Equal(dbNow) || !after.NextCheckAt.After(dbNow) {
					t.Errorf("%s/%s: looked at %v, next %v; want now and later", before.State, before.Sub, after.LastCheckAt, after.NextCheckAt)
				}
				want := before
				want.LastCheckAt, want.NextCheckAt = after.LastCheckAt, after.NextCheckAt
				if d := diff(want, after); d != "" || j.newForks != 0 || len(j.rebroadcasts) != 0 {
					t.Errorf("%s/%s, answer %d: got %d new forks, %d sent; (-want +got):\n%s", before.State, before.Sub, answer, j.newForks, len(j.rebroadcasts), d)
				}
			}
		}
	})
}

// An early check without a change writes nothing. Once the planned time has come, or is another
// now, the check is written.
func TestEarlyCheckWithoutChangeWritesNothing(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r := rulesOf(20)
		r.BlockTime = 12 * time.Second
		for name, c := range map[string]struct {
			planned time.Duration // from now
			moves   int
		}{
			"planned for when the block comes": {1500 * time.Millisecond, 0}, // and has arrived
			"due just now":                     {0, 1},
			"overdue":                          {-time.Second, 1},
			"planned for much later":           {time.Minute, 1},
		} {
			before := pending(5)
			before.NextCheckAt = new(dbNow.Add(c.planned))
			v := viewOf(stateOf(1, 6, before), blocks('a', 100, 103)...)
			v.Head.Time = uint64(dbNow.Add(time.Second - r.BlockTime).Unix()) // the next block is due in a second
			v.Receipts[before.Hash()] = ReceiptAnswer{Answer: AnswerNotFound}
			after, j := evaluateOne(r, before, v)
			if len(j.transitions) != c.moves {
				t.Errorf("%s: got %d moves, want %d", name, len(j.transitions), c.moves)
			}
			if !after.NextCheckAt.After(dbNow) {
				t.Errorf("%s: next look at %s, want later than now", name, after.NextCheckAt)
			}
		}
		before := pending(5) // a new head has come since the plan was made
		before.NextCheckAt = new(dbNow.Add(time.Second))
		v := viewOf(stateOf(1, 6, before), blocks('a', 100, 103)...)
		v.Head.Time = uint64(dbNow.Unix())
		v.Receipts[before.Hash()] = ReceiptAnswer{Answer: AnswerNotFound}
		if after, j := evaluateOne(r, before, v); len(j.transitions) != 1 || !after.NextCheckAt.After(dbNow.Add(2*time.Second)) {
			t.Errorf("a new head: got %d moves, next look at %s; want one, and a block later", len(j.transitions), after.NextCheckAt)
		}
	})
}

// A transaction that the query did not cover stays unchanged.
func TestOnlyQueriedTransactionsAreEvaluated(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := stateOf(3, 8, pending(5), pending(6), bare(7))
		v := finding(viewOf(w, blocks('a', 100, 101)...), receiptOf(w.Open[0], block('a', 100)))
		j := rulesOf(20).evaluate(w, ChainQuery{Receipts: w.Open[0].Versions}, v)
		if len(j.transitions) != 1 || j.transitions[0].To.ID != "tx-5" {
			t.Errorf("got moves %+v, want that of tx-5 alone", j.transitions)
		}
		if d := diff(w.Open[1:], j.after[1:]); d != "" {
			t.Errorf("the others (-want +got):\n%s", d)
		}
	})
}

// Any version may be the mined one; "not found" needs the answer for every version.
func TestAnyVersionMayBeTheMinedOne(t *testing.T) {
	t.Parallel()
	a, b, c := versionHash(5, 1), versionHash(5, 2), versionHash(5, 3)
	tx := Tx{Versions: []Hash{a, b, c}}
	found := ReceiptAnswer{Answer: AnswerFound, Receipt: Receipt{TxHash: b, BlockNumber: 100}}
	missing, silent := ReceiptAnswer{Answer: AnswerNotFound}, ReceiptAnswer{}
	for _, c := range []struct {
		name    string
		answers map[Hash]ReceiptAnswer
		want    Answer
	}{
		{"one of three is found", map[Hash]ReceiptAnswer{a: missing, b: found, c: missing}, AnswerFound},
		{"one is found, the others silent", map[Hash]ReceiptAnswer{b: found}, AnswerFound},
		{"none is found", map[Hash]ReceiptAnswer{a: missing, b: missing, c: missing}, AnswerNotFound},
		{"one is not answered", map[Hash]ReceiptAnswer{a: missing, b: silent, c: missing}, AnswerUnknown},
		{"one was not even asked", map[Hash]ReceiptAnswer{a: missing, b: missing}, AnswerUnknown},
	} {
		rec, got := findReceipt(tx, ChainObservation{Receipts: c.answers})
		if got != c.want || (got == AnswerFound) != (rec.TxHash == b) {
			t.Errorf("%s: got answer %d of %s, want %d", c.name, got, rec.TxHash, c.want)
		}
	}
}

// A replaced first version does not end a transaction whose second was mined.
func TestReceiptOfALaterVersionIsTaken(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		tx := pending(5)
		tx.Versions = append(tx.Versions, versionHash(5, 2))
		v := finding(viewOf(stateOf(1, 6, tx), blocks('a', 100, 101)...), receiptOf(tx, block('a', 100)))
		after, _ := evaluateOne(rulesOf(1), tx, v)
		if after.State != Confirmed || after.Receipt.TxHash != versionHash(5, 2) {
			t.Errorf("got %s by %+v, want CONFIRMED by the second version", after.State, after.Receipt)
		}
	})
}

func TestRevertedAndFinalIsFailed(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		tx := pending(5)
		rec := receiptOf(tx, block('a', 100))
		rec.Succeeded = false
		v := finding(viewOf(stateOf(1, 6, tx), blocks('a', 100, 103)...), rec)
		for confirmations, want := range map[uint64]State{4: Tracking, 3: Failed} {
			after, _ := evaluateOne(rulesOf(confirmations), tx, v)
			if after.State != want || (want == Failed && (after.Sub != Reverted || after.Receipt == nil || after.LastError == "")) {
				t.Errorf("3 blocks on top, %d wanted: got %s/%s %q, want %s", confirmations, after.State, after.Sub, after.LastError, want)
			}
		}
	})
}

// H21: a final transaction is never due again.
func TestFinalTransactionsAreNeverDueAgain(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		tx := pending(5)
		v := finding(viewOf(stateOf(1, 6, tx), blocks('a', 100, 103)...), receiptOf(tx, block('a', 100)))
		after, j := evaluateOne(rulesOf(3), tx, v)
		if after.State != Confirmed || after.NextCheckAt != nil || after.NextResubmitAt != nil {
			t.Errorf("got %s, check %v, resubmit %v; want CONFIRMED and no times", after.State, after.NextCheckAt, after.NextResubmitAt)
		}
		if j.finalHead != 100 || len(j.open()) != 0 || len(j.after) != 1 {
			t.Errorf("got final head %d, %d unsettled of %d; want 100, 0 of 1", j.finalHead, len(j.open()), len(j.after))
		}
	})
}

// Finals are written in nonce order: a transaction waits for every lower nonce.
func TestFinalsComeInNonceOrder(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := stateOf(3, 8, pending(5), pending(6), pending(7))
		headers := blocks('a', 100, 110)
		all := []Receipt{receiptOf(w.Open[0], headers[0]), receiptOf(w.Open[1], headers[1]), receiptOf(w.Open[2], headers[2])}
		for _, c := range []struct {
			name  string
			found []Receipt
			want  []State
			head  uint64
		}{
			{"all three", all, []State{Confirmed, Confirmed, Confirmed}, 102},
			{"the lowest alone", all[:1], []State{Confirmed, Tracking, Tracking}, 100},
			{"all but the lowest", all[1:], []State{Tracking, Tracking, Tracking}, 0},
			{"all but the middle", []Receipt{all[0], all[2]}, []State{Confirmed, Tracking, Tracking}, 100},
		} {
			j := rulesOf(3).evaluate(w, asking(w), finding(viewOf(w, headers...), c.found...))
			for i, want := range c.want {
				if j.after[i].State != want {
					t.Errorf("%s: nonce %d: got %s, want %s", c.name, i+5, j.after[i].State, want)
				}
			}
			if j.finalHead != c.head {
				t.Errorf("%s: final head: got %d, want %d", c.name, j.finalHead, c.head)
			}
		}
	})
}

// A transaction that may not end yet stores its receipt and is checked again soon.
func TestFinalOutOfOrderIsKeptAsIncluded(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := stateOf(2, 7, pending(5), pending(6))
		r := rulesOf(3)
		v := finding(viewOf(w, blocks('a', 100, 110)...), receiptOf(w.Open[1], block('a', 100)))
		upper := r.evaluate(w, asking(w), v).after[1]
		if upper.Sub != Included || upper.Receipt == nil || !upper.NextCheckAt.Equal(dbNow.Add(r.BlockTime/2)) {
			t.Errorf("got %s/%s, next check %v; want TRACKING/INCLUDED, in half a block", upper.State, upper.Sub, upper.NextCheckAt)
		}
	})
}

// An evaluation does not modify the loaded state, so that a second observation can be evaluated
// against it.
func TestEvaluationDoesNotChangeTheLoadedState(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		load := func() SubmitterState {
			late := pending(9)
			late.NextResubmitAt = ago(time.Second)
			return stateOf(5, 10, included(5, blocks('a', 100, 102)...), stuck(6), included(7, blocks('a', 101, 102)...), submitted(8), late)
		}
		w, want := load(), load()
		v := viewOf(w, blocks('b', 90, 140)...)
		v = finding(v, receiptOf(w.Open[1], block('b', 100)), receiptOf(w.Open[0], block('b', 99)))
		j := rulesOf(3).evaluate(w, asking(w), v)
		if j.newForks == 0 || len(j.rebroadcasts) == 0 || j.finalHead == 0 {
			t.Fatalf("got %d new forks, %d to send, final head %d; want some of each", j.newForks, len(j.rebroadcasts), j.finalHead)
		}
		if d := diff(want, w); d != "" {
			t.Errorf("the loaded work changed (-want +got):\n%s", d)
		}
		again := rulesOf(3).evaluate(w, asking(w), v)
		if d := diff(j.after, again.after); d != "" {
			t.Errorf("judging twice differs (-first +second):\n%s", d)
		}
	})
}

// Whatever nodes answer: every transition is allowed, no transaction ends without a proof in this
// one observation, none with a receipt is sent, and no nonce changes.
func TestEvaluationsAreSoundWhateverNodesSay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := rulesOf(rapid.Uint64Range(1, 5).Draw(t, "confirmations"))
		w := drawWork(t)
		v := drawView(t, w)
		j := r.evaluate(w, asking(w), v)
		lowerAreFinal := true
		for i, after := range j.after {
			before := w.Open[i]
			if !before.State.MayBecome(after.State) {
				t.Fatalf("%s became %s", before.State, after.State)
			}
			if *after.Nonce != *before.Nonce || after.ID != before.ID || after.Hash() != before.Hash() {
				t.Fatalf("identity changed: %+v to %+v", before, after)
			}
			if after.State.Terminal() && (!lowerAreFinal || !proven(after, v, r.Confirmations)) {
				t.Fatalf("nonce %d ended without proof, or before a lower one", *after.Nonce)
			}
			lowerAreFinal = lowerAreFinal && after.State.Terminal()
		}
		for _, i := range j.rebroadcasts {
			if x := j.after[i]; x.Receipt != nil || x.State == Stuck ||
				(x.SubmitAttempts != w.Open[i].SubmitAttempts+1 && w.Open[i].Receipt == nil) || (x.SubmitAttempts != 1 && w.Open[i].Receipt != nil) {
				t.Fatalf("sent again: %+v", x)
			}
		}
	})
}

// proven reports whether v alone shows the receipt of t with n blocks on top of it.
func proven(t Tx, v ChainObservation, n uint64) bool {
	a := v.Receipts[t.Hash()]
	for i, h := range v.Headers {
		if h.Number == a.Receipt.BlockNumber && h.Hash == a.Receipt.BlockHash {
			return a.Answer == AnswerFound && uint64(len(v.Headers)-i-1) >= n
		}
	}
	return false
}

func drawWork(t *rapid.T) SubmitterState {
	var txs []Tx
	for n := range uint64(rapid.IntRange(1, 4).Draw(t, "unsettled")) {
		from := rapid.Uint64Range(95, 105).Draw(t, "block")
		tx := rapid.SampledFrom([]Tx{pending(n), submitted(n), stuck(n), included(n, blocks('a', from, from+2)...)}).Draw(t, "tx")
		tx.SubmitAttempts = rapid.IntRange(1, 21).Draw(t, "attempts")
		tx.NextResubmitAt = rapid.SampledFrom([]*time.Time{nil, ago(time.Minute), in(time.Minute)}).Draw(t, "resubmit")
		tx.FirstSubmitAt = ago(rapid.SampledFrom([]time.Duration{time.Minute, time.Hour}).Draw(t, "age"))
		txs = append(txs, tx)
	}
	return stateOf(4, uint64(len(txs)), txs...)
}

func drawView(t *rapid.T, w SubmitterState) ChainObservation {
	chain := rapid.SampledFrom([]byte{'a', 'b'}).Draw(t, "chain")
	from := rapid.Uint64Range(94, 104).Draw(t, "from")
	v := viewOf(w, blocks(chain, from, from+rapid.Uint64Range(0, 8).Draw(t, "headers"))...)
	for h := range v.Receipts {
		switch rapid.IntRange(0, 2).Draw(t, "answer") {
		case 0:
			v.Receipts[h] = ReceiptAnswer{}
		case 1:
			b := block(rapid.SampledFrom([]byte{'a', 'b'}).Draw(t, "in"), rapid.Uint64Range(93, 112).Draw(t, "at"))
			ok := rapid.Bool().Draw(t, "succeeded")
			v.Receipts[h] = ReceiptAnswer{AnswerFound, Receipt{TxHash: h, BlockNumber: b.Number, BlockHash: b.Hash, Succeeded: ok}}
		}
	}
	if rapid.Bool().Draw(t, "without headers") {
		v.Headers = nil
	}
	return v
}

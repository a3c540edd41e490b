package rules

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// evaluateOne evaluates one open transaction.
func evaluateOne(r Rules, t txmanager.Tx, v txmanager.ChainObservation) (txmanager.Tx, Evaluation) {
	w := txtest.StateOf(1, *t.Nonce+1, t)
	j := r.Evaluate(w, txtest.Asking(w), v)
	return j.After[0], j
}

// minedIn is an observation of these headers with the receipt of t in the first of them.
func minedIn(t txmanager.Tx, headers ...txmanager.Header) txmanager.ChainObservation {
	return txtest.Finding(txtest.ViewOf(txtest.StateOf(1, *t.Nonce+1, t), headers...), txtest.ReceiptOf(t, headers[0]))
}

// A receipt takes a transaction to TRACKING/INCLUDED from any state: a STUCK one needs no operator
// for it.
func TestReceiptTakesAnyUnsettledTransactionToIncluded(t *testing.T) {
	t.Parallel()
	for _, before := range []txmanager.Tx{txtest.Pending(5), txtest.Submitted(5), txtest.Stuck(5), txtest.Held(5, txmanager.Protect, "")} {
		before.LastError = "a trouble that is over"
		headers := txtest.Blocks('a', 100, 102)
		after, j := evaluateOne(rulesOf(20), before, minedIn(before, headers...))
		if after.State != txmanager.Tracking || after.Sub != txmanager.Included || after.LastError != "" {
			t.Errorf("%s: got %s/%s %q, want TRACKING/INCLUDED", before.State, after.State, after.Sub, after.LastError)
		}
		txtest.Same(t, fmt.Sprintf("%s: confirming blocks", before.State), after.Confirmations, headers)
		txtest.Same(t, fmt.Sprintf("%s: receipt", before.State), after.Receipt, new(txtest.ReceiptOf(before, headers[0])))
		if len(j.Transitions) != 1 || j.Transitions[0].From != before.State || len(j.Rebroadcasts) != 0 {
			t.Errorf("%s: got %d moves, %d to send again; want one move from there, nothing sent", before.State, len(j.Transitions), len(j.Rebroadcasts))
		}
	}
}

// Neither "not found" nor a missing answer proves anything: only the check times change.
func TestMissingReceiptChangesNothing(t *testing.T) {
	t.Parallel()
	for _, before := range []txmanager.Tx{txtest.Pending(5), txtest.Submitted(5), txtest.Stuck(5), txtest.Included(5, txtest.Blocks('a', 100, 102)...)} {
		for _, answer := range []txmanager.Answer{txmanager.AnswerNotFound, txmanager.AnswerUnknown} {
			v := txtest.ViewOf(txtest.StateOf(1, 6, before), txtest.Blocks('a', 100, 103)...)
			v.Receipts[before.Hash()] = txmanager.ReceiptAnswer{Answer: answer}
			after, j := evaluateOne(rulesOf(20), before, v)
			if after.LastCheckAt == nil || !after.LastCheckAt.Equal(txtest.Now) || !after.NextCheckAt.After(txtest.Now) {
				t.Errorf("%s/%s: looked at %v, next %v; want now and later", before.State, before.Sub, after.LastCheckAt, after.NextCheckAt)
			}
			want := before
			want.LastCheckAt, want.NextCheckAt = after.LastCheckAt, after.NextCheckAt
			if d := txtest.Diff(want, after); d != "" || len(j.Reorged) != 0 || len(j.Rebroadcasts) != 0 {
				t.Errorf("%s/%s, answer %d: got %d new forks, %d sent; (-want +got):\n%s", before.State, before.Sub, answer, len(j.Reorged), len(j.Rebroadcasts), d)
			}
		}
	}
}

// An early check without a change writes nothing. Once the planned time has come, or is another
// now, the check is written.
func TestEarlyCheckWithoutChangeWritesNothing(t *testing.T) {
	t.Parallel()
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
		before := txtest.Pending(5)
		before.NextCheckAt = new(txtest.Now.Add(c.planned))
		v := txtest.ViewOf(txtest.StateOf(1, 6, before), txtest.Blocks('a', 100, 103)...)
		v.Head.Time = uint64(txtest.Now.Add(time.Second - r.BlockTime).Unix()) // the next block is due in a second
		v.Receipts[before.Hash()] = txmanager.ReceiptAnswer{Answer: txmanager.AnswerNotFound}
		after, j := evaluateOne(r, before, v)
		check.Equal(t, name+": moves", len(j.Transitions), c.moves)
		check.Equal(t, name+": the next look is later", after.NextCheckAt.After(txtest.Now), true)
	}
	before := txtest.Pending(5) // a new head has come since the plan was made
	before.NextCheckAt = new(txtest.Now.Add(time.Second))
	v := txtest.ViewOf(txtest.StateOf(1, 6, before), txtest.Blocks('a', 100, 103)...)
	v.Head.Time = uint64(txtest.Now.Unix())
	v.Receipts[before.Hash()] = txmanager.ReceiptAnswer{Answer: txmanager.AnswerNotFound}
	if after, j := evaluateOne(r, before, v); len(j.Transitions) != 1 || !after.NextCheckAt.After(txtest.Now.Add(2*time.Second)) {
		t.Errorf("a new head: got %d moves, next look at %s; want one, and a block later", len(j.Transitions), after.NextCheckAt)
	}
}

// A transaction that the query did not cover stays unchanged.
func TestOnlyQueriedTransactionsAreEvaluated(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(3, 8, txtest.Pending(5), txtest.Pending(6), txtest.Bare(7))
	v := txtest.Finding(txtest.ViewOf(w, txtest.Blocks('a', 100, 101)...), txtest.ReceiptOf(w.Open[0], txtest.Block('a', 100)))
	j := rulesOf(20).Evaluate(w, txmanager.ChainQuery{Receipts: w.Open[0].Versions}, v)
	if len(j.Transitions) != 1 || j.Transitions[0].To.ID != "tx-5" {
		t.Errorf("got moves %+v, want that of tx-5 alone", j.Transitions)
	}
	txtest.Same(t, "the others", j.After[1:], w.Open[1:])
}

// Any version may be the mined one; "not found" needs the answer for every version.
func TestAnyVersionMayBeTheMinedOne(t *testing.T) {
	t.Parallel()
	a, b, c := txtest.VersionHash(5, 1), txtest.VersionHash(5, 2), txtest.VersionHash(5, 3)
	tx := txmanager.Tx{Versions: []txmanager.Hash{a, b, c}}
	found := txmanager.ReceiptAnswer{Answer: txmanager.AnswerFound, Receipt: txmanager.Receipt{TxHash: b, BlockNumber: 100}}
	missing, silent := txmanager.ReceiptAnswer{Answer: txmanager.AnswerNotFound}, txmanager.ReceiptAnswer{}
	for _, c := range []struct {
		name    string
		answers map[txmanager.Hash]txmanager.ReceiptAnswer
		want    txmanager.Answer
	}{
		{"one of three is found", map[txmanager.Hash]txmanager.ReceiptAnswer{a: missing, b: found, c: missing}, txmanager.AnswerFound},
		{"one is found, the others silent", map[txmanager.Hash]txmanager.ReceiptAnswer{b: found}, txmanager.AnswerFound},
		{"none is found", map[txmanager.Hash]txmanager.ReceiptAnswer{a: missing, b: missing, c: missing}, txmanager.AnswerNotFound},
		{"one is not answered", map[txmanager.Hash]txmanager.ReceiptAnswer{a: missing, b: silent, c: missing}, txmanager.AnswerUnknown},
		{"one was not even asked", map[txmanager.Hash]txmanager.ReceiptAnswer{a: missing, b: missing}, txmanager.AnswerUnknown},
	} {
		rec, got := FindReceipt(tx, txmanager.ChainObservation{Receipts: c.answers})
		if got != c.want || (got == txmanager.AnswerFound) != (rec.TxHash == b) {
			t.Errorf("%s: got answer %d of %s, want %d", c.name, got, rec.TxHash, c.want)
		}
	}
}

// A replaced first version does not end a transaction whose second was mined.
func TestReceiptOfALaterVersionIsTaken(t *testing.T) {
	t.Parallel()
	tx := txtest.Pending(5)
	tx.Versions = append(tx.Versions, txtest.VersionHash(5, 2))
	after, _ := evaluateOne(rulesOf(1), tx, minedIn(tx, txtest.Blocks('a', 100, 101)...))
	if after.State != txmanager.Confirmed || after.Receipt.TxHash != txtest.VersionHash(5, 2) {
		t.Errorf("got %s by %+v, want CONFIRMED by the second version", after.State, after.Receipt)
	}
}

// Only a version of the transaction's own call that succeeded makes it CONFIRMED. Its placeholder ends it
// FAILED, whatever the receipt's status is.
func TestRevertOrPlaceholderEndsFailed(t *testing.T) {
	t.Parallel()
	tx := txtest.WithVersions(txtest.Pending(5), 2)
	tx.Placeholders = tx.Versions[1:]
	for _, c := range []struct {
		version   int
		succeeded bool
		want      txmanager.SubState
	}{{0, false, txmanager.Reverted}, {1, true, txmanager.Placeholder}, {1, false, txmanager.Placeholder}} {
		rec := txtest.ReceiptOf(tx, txtest.Block('a', 100))
		rec.TxHash, rec.Succeeded = tx.Versions[c.version], c.succeeded
		v := txtest.Finding(txtest.ViewOf(txtest.StateOf(1, 6, tx), txtest.Blocks('a', 100, 103)...), rec)
		for confirmations, want := range map[uint64]txmanager.State{4: txmanager.Tracking, 3: txmanager.Failed} {
			after, _ := evaluateOne(rulesOf(confirmations), tx, v)
			if after.State != want || (want == txmanager.Failed && (after.Sub != c.want || after.Receipt == nil || after.LastError == "")) {
				t.Errorf("3 blocks on top, %d wanted: got %s/%s %q, want %s by %s", confirmations, after.State, after.Sub, after.LastError, want, c.want)
			}
		}
	}
}

// H21: a final transaction is never due again.
func TestFinalTransactionsAreNeverDueAgain(t *testing.T) {
	t.Parallel()
	tx := txtest.Pending(5)
	after, j := evaluateOne(rulesOf(3), tx, minedIn(tx, txtest.Blocks('a', 100, 103)...))
	if after.State != txmanager.Confirmed || after.NextCheckAt != nil || after.NextResubmitAt != nil {
		t.Errorf("got %s, check %v, resubmit %v; want CONFIRMED and no times", after.State, after.NextCheckAt, after.NextResubmitAt)
	}
	if j.FinalHead != 100 || len(j.Open()) != 0 || len(j.After) != 1 {
		t.Errorf("got final head %d, %d unsettled of %d; want 100, 0 of 1", j.FinalHead, len(j.Open()), len(j.After))
	}
}

// Finals are written in nonce order: a transaction waits for every lower nonce.
func TestFinalsComeInNonceOrder(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(3, 8, txtest.Pending(5), txtest.Pending(6), txtest.Pending(7))
	headers := txtest.Blocks('a', 100, 110)
	all := []txmanager.Receipt{txtest.ReceiptOf(w.Open[0], headers[0]), txtest.ReceiptOf(w.Open[1], headers[1]), txtest.ReceiptOf(w.Open[2], headers[2])}
	for _, c := range []struct {
		name  string
		found []txmanager.Receipt
		want  []txmanager.State
		head  uint64
	}{
		{"all three", all, []txmanager.State{txmanager.Confirmed, txmanager.Confirmed, txmanager.Confirmed}, 102},
		{"the lowest alone", all[:1], []txmanager.State{txmanager.Confirmed, txmanager.Tracking, txmanager.Tracking}, 100},
		{"all but the lowest", all[1:], []txmanager.State{txmanager.Tracking, txmanager.Tracking, txmanager.Tracking}, 0},
		{"all but the middle", []txmanager.Receipt{all[0], all[2]}, []txmanager.State{txmanager.Confirmed, txmanager.Tracking, txmanager.Tracking}, 100},
	} {
		j := rulesOf(3).Evaluate(w, txtest.Asking(w), txtest.Finding(txtest.ViewOf(w, headers...), c.found...))
		for i, want := range c.want {
			check.Equal(t, fmt.Sprintf("%s: nonce %d", c.name, i+5), j.After[i].State, want)
		}
		check.Equal(t, c.name+": final head", j.FinalHead, c.head)
	}
}

// A transaction that may not end yet stores its receipt and is checked again soon.
func TestFinalOutOfOrderIsKeptAsIncluded(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(2, 7, txtest.Pending(5), txtest.Pending(6))
	r := rulesOf(3)
	v := txtest.Finding(txtest.ViewOf(w, txtest.Blocks('a', 100, 110)...), txtest.ReceiptOf(w.Open[1], txtest.Block('a', 100)))
	upper := r.Evaluate(w, txtest.Asking(w), v).After[1]
	if upper.Sub != txmanager.Included || upper.Receipt == nil || !upper.NextCheckAt.Equal(txtest.Now.Add(r.BlockTime/2)) {
		t.Errorf("got %s/%s, next check %v; want TRACKING/INCLUDED, in half a block", upper.State, upper.Sub, upper.NextCheckAt)
	}
}

// An evaluation does not modify the loaded state, so that a second observation can be evaluated
// against it.
func TestEvaluationDoesNotChangeTheLoadedState(t *testing.T) {
	t.Parallel()
	load := func() txmanager.SubmitterState {
		late := txtest.Pending(9)
		late.NextResubmitAt = txtest.Ago(time.Second)
		return txtest.StateOf(5, 10, txtest.Included(5, txtest.Blocks('a', 100, 102)...), txtest.Stuck(6), txtest.Included(7, txtest.Blocks('a', 101, 102)...), txtest.Submitted(8), late)
	}
	w, want := load(), load()
	v := txtest.ViewOf(w, txtest.Blocks('b', 90, 140)...)
	v = txtest.Finding(v, txtest.ReceiptOf(w.Open[1], txtest.Block('b', 100)), txtest.ReceiptOf(w.Open[0], txtest.Block('b', 99)))
	j := rulesOf(3).Evaluate(w, txtest.Asking(w), v)
	if len(j.Reorged) == 0 || len(j.Rebroadcasts) == 0 || j.FinalHead == 0 {
		t.Fatalf("got %d new forks, %d to send, final head %d; want some of each", len(j.Reorged), len(j.Rebroadcasts), j.FinalHead)
	}
	txtest.Same(t, "the loaded work afterwards", w, want)
	again := rulesOf(3).Evaluate(w, txtest.Asking(w), v)
	txtest.Same(t, "evaluated twice", again.After, j.After)
}

// Whatever nodes answer: every transition is allowed, no transaction ends without a proof in this
// one observation, none with a receipt is sent, and no nonce changes.
func TestEvaluationsAreSoundWhateverNodesSay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := rulesOf(rapid.Uint64Range(1, 5).Draw(t, "confirmations"))
		w := txtest.DrawState(t, rapid.SampledFrom([]uint64{0, 5}).Draw(t, "first"))
		v := txtest.DrawAnswers(t, w)
		j := r.Evaluate(w, txtest.Asking(w), v)
		lowerAreFinal := true
		for i, after := range j.After {
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
		for i, x := range j.After {
			if slices.Contains(j.Rebroadcasts, x.ID) && (x.Receipt != nil || x.State == txmanager.Stuck ||
				(x.SubmitAttempts != w.Open[i].SubmitAttempts+1 && w.Open[i].Receipt == nil) || (x.SubmitAttempts != 1 && w.Open[i].Receipt != nil)) {
				t.Fatalf("sent again: %+v", x)
			}
		}
	})
}

// proven reports whether v alone shows the receipt of t with n blocks on top of it.
func proven(t txmanager.Tx, v txmanager.ChainObservation, n uint64) bool {
	a := v.Receipts[t.Hash()]
	for i, h := range v.Headers {
		if h.Number == a.Receipt.BlockNumber && h.Hash == a.Receipt.BlockHash {
			return a.Answer == txmanager.AnswerFound && uint64(len(v.Headers)-i-1) >= n
		}
	}
	return false
}

// A request that ended by an operator's statement says so.
func TestAStatementIsNoReceipt(t *testing.T) {
	t.Parallel()
	x := EndRecorded(txtest.Pending(3), txmanager.Recorded{Nonce: 3})
	if x.State != txmanager.Confirmed || x.Sub != txmanager.RecordedOnChain || x.Receipt != nil || x.LastError != txmanager.StatedAsExecuted {
		t.Errorf("got %+v, want it CONFIRMED/RECORDED on an operator's statement", x)
	}
}

// A node below the block of PROTECT's evidence does not show that a reorg freed the nonce.
func TestLaggardFreesNoNonceInProtect(t *testing.T) {
	t.Parallel()
	x := txtest.Held(5, txmanager.Protect, "")
	w := txtest.StateOf(1, 6, x)
	w.Protected, w.Evidence = true, &txmanager.Violation{Kind: txmanager.NonceConsumed, Block: 100, ExpectedNonce: 5}
	for head, want := range map[uint64]txmanager.State{99: txmanager.Protect, 100: txmanager.Tracking} {
		v := txtest.ViewOf(w, txtest.Block('a', head))
		check.Equal(t, fmt.Sprintf("head %d", head), rulesOf(3).Evaluate(w, txtest.Asking(w), v).After[0].State, want)
	}
}

package rules

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// H10, H9, TX-008: a foreign transaction consumes the lowest open nonce. The count equals the
// cursor, so only "above the lowest, and no version known" shows it.
func TestH10ForeignUseOfTheNonceInFlightIsSuspected(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(1, 6, txtest.Pending(5))
	v := txtest.ViewOf(w, txtest.Block('a', 101))
	v.Account.LatestCount, v.Account.PendingCount = 6, 6
	v.Known = map[txmanager.Hash]txmanager.Answer{txtest.VersionHash(5, 1): txmanager.AnswerNotFound}
	check.Equal(t, "count 6, nonce 5 in flight, no version known", changed(EvaluateViolation(w, v)), "suspect")
	w.SuspectedViolation = &txmanager.Violation{Block: 100}
	check.Equal(t, "the same a block later", changed(EvaluateViolation(w, v)), "protect")
}

// H6: the iteration that opens PROTECT sends nothing.
func TestH06TheIterationThatOpensProtectSendsNothing(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(1, 6, timed(txtest.Pending(5), txtest.Ago(time.Second), txtest.Ago(time.Second)))
	w.SuspectedViolation = &txmanager.Violation{Block: 100}
	v := txtest.ViewOf(w, txtest.Block('a', 101))
	v.Account.LatestCount, v.Account.PendingCount = 7, 7
	if EvaluateViolation(w, v).OpenIncident == nil {
		t.Fatal("want a view that opens PROTECT")
	}
	check.Equal(t, "claimed to be sent in PROTECT", len(rulesOf(3).Evaluate(w, txtest.Asking(w), v).Rebroadcasts), 0)
}

// H21, H27: a deferred intent is due when the nonce that it waits for is terminal.
func TestH27DeferredIntentIsDueWhenItsNonceIsTerminal(t *testing.T) {
	t.Parallel()
	w := txtest.Queue(txtest.StateOf(2, 6, txtest.Pending(5)), txtest.Queued(1, "call"))
	r := rulesOf(1)
	p := r.PlanAllocations(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), estimates1(txtest.Reverts()))
	w = AfterCommit(w, txmanager.Commit{Transitions: p.Transitions}) // deferred until 5
	v := txtest.Finding(txtest.ViewOf(w, txtest.Blocks('a', 100, 101)...), txtest.ReceiptOf(w.Open[0], txtest.Block('a', 100)))
	w = AfterCommit(w, txmanager.Commit{Transitions: r.Evaluate(w, txtest.Asking(w), v).Transitions}) // 5 is final
	check.Equal(t, "q-1 can be estimated again: an advance now", r.PlanNextWork(w).AdvanceNow, true)
}

// H21: an intent that was deferred once and is in the queue again stays in it.
func TestH27IntentBackFromDeferralStaysInTheQueue(t *testing.T) {
	t.Parallel()
	back := txtest.Queued(1, "call")
	back.DeferredUntilNonce = new(uint64(5)) // terminal: the store loads it again
	w := txtest.Queue(txtest.StateOf(2, 6), back)
	check.Equal(t, "after an empty write: an advance now", rulesOf(3).PlanNextWork(AfterCommit(w, txmanager.Commit{})).AdvanceNow, true)
	p := rulesOf(3).PlanAllocations(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), nil) // no estimate: it waits
	if d := rulesOf(3).PlanNextWork(AfterCommit(w, txmanager.Commit{Transitions: p.Transitions})); d.Kind != txmanager.KindAdvance || d.At.IsZero() {
		t.Errorf("after it was made to wait: got %+v, want an advance when the wait is over", d)
	}
	back.NextCheckAt = txtest.In(time.Minute)
	w = txtest.Queue(w, back, txtest.Queued(2, "pay"))
	// With an advance now the holder of the lease would begin iterations without a pause.
	check.Equal(t, "it waits, another is behind it: an advance now", rulesOf(3).PlanNextWork(AfterCommit(w, txmanager.Commit{})).AdvanceNow, false)
}

// 1.4 confirm: a transaction that a reorg removed is sent again, whatever its age, with
// resubmission on or off.
func TestWhatAReorgRemovedIsSentAgainWhateverItsAge(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*txmanager.Tx, *Rules){
		"old":                 func(tx *txmanager.Tx, _ *Rules) { tx.FirstSubmitAt = txtest.Ago(time.Hour) },
		"attempts used up":    func(tx *txmanager.Tx, _ *Rules) { tx.SubmitAttempts = 20 },
		"resubmission is off": func(_ *txmanager.Tx, r *Rules) { r.Resubmit = false },
	} {
		r, tx := rulesOf(20), txtest.Included(5, txtest.Blocks('a', 100, 102)...)
		change(&tx, &r)
		after, j := evaluateOne(r, tx, txtest.ViewOf(txtest.StateOf(1, 6, tx), txtest.Blocks('b', 100, 104)...))
		if after.State != txmanager.Tracking || after.Sub != txmanager.Pending || len(j.Rebroadcasts) != 1 {
			t.Errorf("%s: got %s/%s, %d sent; want PENDING and sent again", name, after.State, after.Sub, len(j.Rebroadcasts))
		}
	}
}

// H11: a lower head changes nothing, whatever its hashes.
func TestH11LowerHeadWithOtherHashesChangesNothing(t *testing.T) {
	t.Parallel()
	tx := txtest.Included(5, txtest.Blocks('a', 100, 105)...)
	shown := append(txtest.Blocks('a', 100, 100), txtest.Block('b', 101))
	after, j := evaluateOne(rulesOf(20), tx, txtest.Finding(txtest.ViewOf(txtest.StateOf(1, 6, tx), shown...), *tx.Receipt))
	if len(j.Reorged) != 0 || len(after.Confirmations) != 6 {
		t.Errorf("head 101 against a list up to 105: got %d new forks, %d blocks; want none, 6", len(j.Reorged), len(after.Confirmations))
	}
	after, j = evaluateOne(rulesOf(20), tx, txtest.ViewOf(txtest.StateOf(1, 6, tx), txtest.Block('b', 100)))
	if len(j.Reorged) != 0 || after.Receipt == nil {
		t.Errorf("head 100', receipt in 100: got %d new forks, receipt %v; want it kept until the head is past it", len(j.Reorged), after.Receipt)
	}
}

// H26: a transaction that this observation's balance has not paid yet still counts.
func TestH26ReceiptAboveTheNodesHeadIsNotPaidYet(t *testing.T) {
	t.Parallel()
	tx := txtest.Included(5, txtest.Block('a', 101))
	tx.Gas = txtest.Params(21_000, 1000, 1_000_000)
	w := txtest.Queue(txtest.StateOf(2, 6, tx), txtest.Queued(1, "pay"))
	v := txtest.ViewOf(w, txtest.Block('a', 100)) // it lags: the count is still 5
	v.Account.BalanceWei = gas.CostWithPlaceholder(*tx.Gas)
	check.Equal(t, "the balance goes to nonce 5", outline(rulesOf(3).PlanAllocations(w, txtest.Reader(nil), v, nil)), "q-1 waits")
}

// A query asks for no more headers than a node gives, however far apart the receipts are. The
// lowest nonce's come first, since finals are in nonce order.
func TestHeadersAskedForAreBounded(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(2, 7, timed(txtest.Included(5, txtest.Block('a', 100)), nil, nil), timed(txtest.Pending(6), nil, nil))
	r := rulesOf(20)
	q, _ := r.NextQuery(w, txmanager.KindReceipt, nil)
	q = r.WithFinalityHeaders(q, txtest.Finding(txtest.ViewOf(w, txtest.Block('a', 20_000)), txtest.ReceiptOf(w.Open[1], txmanager.Header{Number: 19_000})))
	if q.FromBlock != 100 || q.ToBlock-q.FromBlock >= 10_000 {
		t.Errorf("got headers %d to %d, want from 100 and fewer than 10000", q.FromBlock, q.ToBlock)
	}
}

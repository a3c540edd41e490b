package rules

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// acknowledgedOrSent reports whether an open nonce is with a node, was mined, or is sent in the
// same broadcast, which is in nonce order.
func acknowledgedOrSent(j Evaluation, i int) bool {
	return j.After[i].IsAcknowledged() || j.After[i].State.Terminal() || slices.Contains(j.Rebroadcasts, j.After[i].ID)
}

// H26: no nonce may be broadcast above a lower one that is not with a node and is not sent now.
func TestH26NothingIsSentAheadOfWhatCannotBe(t *testing.T) {
	t.Parallel()
	sent, stopped := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		r := rulesOf(3)
		r.Resubmit = rapid.Bool().Draw(t, "resubmit")
		w := txtest.DrawState(t, 5)
		q, _ := r.NextQuery(w, txmanager.KindResubmit, txtest.Reader(nil))
		v := txtest.DrawAnswers(t, w)
		j := r.Evaluate(w, q, v)
		sent += len(j.Rebroadcasts)
		for i, x := range j.After {
			for lower := range i {
				if slices.Contains(j.Rebroadcasts, x.ID) && !acknowledgedOrSent(j, lower) {
					t.Fatalf("nonce %d is sent ahead of nonce %d, which is %s", *x.Nonce, *j.After[lower].Nonce, j.After[lower].State)
				}
			}
		}
		for i, before := range w.Open {
			if r.IsRebroadcastDue(before, w.DatabaseTime()) && !acknowledgedOrSent(j, i) {
				stopped++
			}
		}
	})
	if sent == 0 || stopped == 0 {
		t.Errorf("got %d sent and %d stopped in all books, want some of each", sent, stopped)
	}
}

// H26: the lowest open nonce must never wait for a higher one before it is checked or sent.
func TestH26TheLowestNonceIsNeverStarved(t *testing.T) {
	t.Parallel()
	first := 0
	rapid.Check(t, func(t *rapid.T) {
		r := rulesOf(3)
		w := txtest.DrawState(t, 5)
		q, _ := r.NextQuery(w, txmanager.KindResubmit, txtest.Reader(nil))
		v := txtest.DrawAnswers(t, w)
		low := w.Open[0]
		if d := r.PlanNextWork(w); low.State != txmanager.InFlight && low.NextCheckAt != nil && !d.AdvanceNow && (d.At.IsZero() || d.At.After(*low.NextCheckAt)) {
			t.Fatalf("due: got %+v, want a look at nonce 5 at %v at the latest", d, low.NextCheckAt)
		}
		if low.IsDueBy(w.DatabaseTime()) && len(low.Versions) > 0 {
			if !slices.Equal(q.Receipts[:len(low.Versions)], low.Versions) {
				t.Fatalf("question: got %v first, want the versions of nonce 5", q.Receipts)
			}
			if low.Receipt == nil && !slices.Equal(q.Known, low.Versions) {
				t.Fatalf("question: got %v to be known, want the versions of nonce 5", q.Known)
			}
		}
		if low.Receipt != nil && low.IsDueBy(w.DatabaseTime()) && (q.FromBlock > low.Receipt.BlockNumber || q.ToBlock < low.Receipt.BlockNumber+r.HeaderDepth()) {
			t.Fatalf("question: got headers %d to %d, want those that end nonce 5 in %d", q.FromBlock, q.ToBlock, low.Receipt.BlockNumber)
		}
		if _, answer := FindReceipt(low, v); answer == txmanager.AnswerFound || !r.IsRebroadcastDue(low, w.DatabaseTime()) || r.isPastStuckAfter(low, w.DatabaseTime()) || low.SubmitAttempts >= r.MaxResubmits {
			return
		}
		first++
		if j := r.Evaluate(w, q, v); len(j.Rebroadcasts) == 0 || j.Rebroadcasts[0] != low.ID {
			t.Fatalf("sent: got %v, want nonce 5 first: its time has come", j.Rebroadcasts)
		}
	})
	if first == 0 {
		t.Error("the lowest was never due to be sent, want it in some books")
	}
}

// H26: no version must be signed and sent above a nonce that cannot be signed or that no node
// holds.
func TestH26NothingIsSignedAheadOfWhatCannotBeSent(t *testing.T) {
	t.Parallel()
	unreadable, waits := txtest.Bare(5), txtest.Bare(5)
	unreadable.Payload = []byte("junk")
	waits.Handler = "of another version"
	refused := txtest.Submitted(5) // the node had no room; its next attempt is to come
	for name, low := range map[string]txmanager.Tx{"a payload that cannot be read": unreadable, "a handler that waits": waits, "refused by the node": refused, "STUCK": txtest.Stuck(5)} {
		w := txtest.StateOf(2, 7, low, txtest.Bare(6))
		jobs, _ := rulesOf(3).PlanSignatures(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), HandlerResult{TxID: "tx-5", Wait: txmanager.Wait{Cause: txmanager.WaitHandler, Reason: "no handler in this process"}})
		for _, job := range jobs {
			t.Errorf("%s: got nonce %d signed, to be sent ahead of nonce 5; want it to wait", name, *job.Tx.Nonce)
		}
	}
}

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

// Bytes are sent again if their broadcast was claimed without a recorded outcome, or if they have
// no receipt for an interval.
func TestWhatIsDueToBeSentAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state    txmanager.State
		sub      txmanager.SubState
		resubmit bool
		want     bool // where its time has come
	}{
		{txmanager.Submitted, "", true, true},
		{txmanager.Submitted, "", false, true}, // the outcome of the first broadcast is not known
		{txmanager.Tracking, txmanager.Pending, true, true},
		{txmanager.Tracking, txmanager.Pending, false, false},
		{txmanager.Tracking, txmanager.Included, true, false},
		{txmanager.InFlight, "", true, false},
		{txmanager.Stuck, "", true, false},
		{txmanager.Protect, "", true, false},
		{txmanager.Queued, "", true, false},
		{txmanager.Confirmed, "", true, false},
		{txmanager.Failed, txmanager.Reverted, true, false},
	} {
		r := rulesOf(3)
		r.Resubmit = c.resubmit
		for _, at := range []struct {
			next *time.Time
			due  bool
		}{{nil, true}, {txtest.Ago(time.Second), true}, {txtest.In(0), true}, {txtest.In(time.Nanosecond), false}, {txtest.In(time.Minute), false}} {
			tx := txmanager.Tx{State: c.state, Sub: c.sub, NextResubmitAt: at.next, SubmitAttempts: 1}
			check.Equal(t, fmt.Sprintf("%s/%s, resubmit %v, next at %v", c.state, c.sub, c.resubmit, at.next), r.IsRebroadcastDue(tx, txtest.Now), c.want && at.due)
		}
	}
}

// Claim before send: the attempt is stored first, and stays due until its outcome is recorded, so
// that a crash in between is recovered.
func TestClaimIsWrittenBeforeTheBroadcast(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(3, 8, txtest.Pending(5), txtest.Submitted(6), txtest.Pending(7))
	w.Open[1].NextResubmitAt, w.Open[2].NextResubmitAt = nil, txtest.Ago(time.Second)
	j := rulesOf(3).Evaluate(w, txtest.Asking(w), txtest.ViewOf(w, txtest.Blocks('a', 100, 101)...))
	check.Same(t, "claimed", j.Rebroadcasts, []string{"tx-6", "tx-7"})
	for _, i := range []int{1, 2} {
		before, after := w.Open[i], j.After[i]
		if after.State != before.State || after.SubmitAttempts != 2 || !after.LastSubmitAt.Equal(txtest.Now) || after.NextResubmitAt.After(txtest.Now) {
			t.Errorf("%s: got %s, attempt %d, last %v, next %v; want attempt 2, now, due at once", after.ID, after.State, after.SubmitAttempts, after.LastSubmitAt, after.NextResubmitAt)
		}
		if !slices.ContainsFunc(j.Transitions, func(m txmanager.Transition) bool { return m.To.ID == after.ID && m.To.SubmitAttempts == 2 }) {
			t.Errorf("%s is sent, and no move claims it", after.ID)
		}
	}
}

// A transaction with a receipt in the same observation is not sent again, however overdue it was.
func TestWhatIsFoundMinedIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for _, tx := range []txmanager.Tx{txtest.Pending(5), txtest.Submitted(5)} {
		tx.NextResubmitAt, tx.SubmitAttempts, tx.FirstSubmitAt = txtest.Ago(time.Hour), 99, txtest.Ago(24*time.Hour)
		if after, j := evaluateOne(rulesOf(3), tx, minedIn(tx, txtest.Blocks('a', 100, 101)...)); len(j.Rebroadcasts) != 0 || after.Sub != txmanager.Included || after.SubmitAttempts != 99 {
			t.Errorf("%s: got %s/%s, %d sent; want TRACKING/INCLUDED, none", tx.State, after.State, after.Sub, len(j.Rebroadcasts))
		}
	}
}

func TestStuckByAttemptsOrByAge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		attempts int
		age      *time.Time
		want     txmanager.State
		off      bool // resubmission
	}{
		{"the last attempt but one", 19, txtest.Ago(time.Minute), txmanager.Tracking, false},
		{"attempts used up", 20, txtest.Ago(time.Minute), txmanager.Stuck, false},
		{"more than used up: the setting was lowered", 25, txtest.Ago(time.Minute), txmanager.Stuck, false},
		{"a moment before stuck.after", 1, txtest.Ago(30*time.Minute - time.Nanosecond), txmanager.Tracking, false},
		{"stuck.after since the first broadcast", 1, txtest.Ago(30 * time.Minute), txmanager.Stuck, false},
		{"long after", 1, txtest.Ago(24 * time.Hour), txmanager.Stuck, false},
		{"both", 20, txtest.Ago(24 * time.Hour), txmanager.Stuck, false},
		{"the first broadcast is not on record", 1, nil, txmanager.Tracking, false},
		{"long after, without resubmission", 1, txtest.Ago(24 * time.Hour), txmanager.Stuck, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rulesOf(3)
			r.Resubmit = !c.off
			tx := txtest.Pending(5)
			tx.SubmitAttempts, tx.FirstSubmitAt, tx.NextResubmitAt = c.attempts, c.age, txtest.Ago(time.Second)
			after, j := evaluateOne(r, tx, txtest.ViewOf(txtest.StateOf(1, 6, tx), txtest.Blocks('a', 100, 101)...))
			if after.State != c.want {
				t.Fatalf("got %s, want %s", after.State, c.want)
			}
			if c.want != txmanager.Stuck {
				return
			}
			if len(j.Rebroadcasts) != 0 || after.SubmitAttempts != c.attempts || after.LastError == "" || after.Sub != "" {
				t.Errorf("got %d sent, attempt %d, reason %q; want none sent, and why", len(j.Rebroadcasts), after.SubmitAttempts, after.LastError)
			}
			check.Equal(t, "the next check is later: it goes on being watched", after.NextCheckAt.After(txtest.Now), true)
		})
	}
}

// In PROTECT polling continues; nothing is sent, and nothing becomes STUCK.
func TestNothingIsSentInProtect(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(4, 9, txtest.Pending(5), txtest.Pending(6), txtest.Submitted(7), txtest.Pending(8))
	for i := range w.Open {
		w.Open[i].NextResubmitAt = txtest.Ago(time.Hour)
	}
	w.Open[3].SubmitAttempts = 20
	w.Protected = true
	j := rulesOf(1).Evaluate(w, txtest.Asking(w), txtest.Finding(txtest.ViewOf(w, txtest.Blocks('a', 100, 101)...), txtest.ReceiptOf(w.Open[0], txtest.Block('a', 100))))
	if len(j.Rebroadcasts) != 0 {
		t.Errorf("got %v sent in PROTECT, want nothing", j.Rebroadcasts)
	}
	want := []txmanager.State{txmanager.Confirmed, txmanager.Tracking, txmanager.Submitted, txmanager.Tracking}
	for i, after := range j.After {
		if after.State != want[i] || after.SubmitAttempts != w.Open[i].SubmitAttempts {
			t.Errorf("nonce %d: got %s, attempt %d; want %s and no attempt", *after.Nonce, after.State, after.SubmitAttempts, want[i])
		}
	}
}

// With resubmission off, a broadcast claimed after a reorg or a requested action is repeated until
// a node has it: possibly only the claim was made.
func TestClaimedBroadcastIsSentUntilANodeHasIt(t *testing.T) {
	t.Parallel()
	r := rulesOf(3)
	r.Resubmit = false
	tx := ClaimBroadcast(txtest.Pending(5), txtest.Now)
	check.Equal(t, "claimed, its outcome not recorded: due", r.IsRebroadcastDue(tx, txtest.Now), true)
	silent := r.AfterBroadcast(tx, txmanager.SendResult{Class: txmanager.SendUnknown}, txtest.Block('a', 100), txtest.Now)
	check.Equal(t, "no answer: due at its time", r.IsRebroadcastDue(silent, *silent.NextResubmitAt), true)
	taken := r.AfterBroadcast(tx, txmanager.SendResult{Class: txmanager.SendAccepted}, txtest.Block('a', 100), txtest.Now)
	check.Equal(t, "taken by a node: due", r.IsRebroadcastDue(taken, txtest.Now.Add(time.Hour)), false)
	behind := r.blockedBy(tx, txtest.Submitted(4), txtest.Now)
	check.Equal(t, "behind a lower nonce that no node has taken: due later", r.IsRebroadcastDue(behind, *behind.NextResubmitAt), true)
}

// A STUCK transaction is checked ten blocks apart, and a check without a result changes nothing
// that callers can see.
func TestStuckIsWatchedTenBlocksApart(t *testing.T) {
	t.Parallel()
	r := rulesOf(3)
	tx := timed(txtest.Stuck(5), txtest.Ago(time.Second), nil)
	w := txtest.StateOf(1, 6, tx)
	after := r.Evaluate(w, txtest.Asking(w), txtest.ViewOf(w, txtest.Block('a', 100))).After[0]
	if want := txtest.Now.Add(10 * r.BlockTime); after.NextCheckAt == nil || !after.NextCheckAt.Equal(want) || after.State != txmanager.Stuck {
		t.Errorf("next look: got %v, want %v", after.NextCheckAt, want)
	}
}

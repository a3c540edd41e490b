package txmanager

import (
	"slices"
	"testing"
	"time"
)

// Bytes are sent again if their broadcast was claimed without a recorded outcome, or if they have
// no receipt for an interval.
func TestWhatIsDueToBeSentAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state    State
		sub      SubState
		resubmit bool
		want     bool // where its time has come
	}{
		{Submitted, "", true, true},
		{Submitted, "", false, true}, // the outcome of the first broadcast is not known
		{Tracking, Pending, true, true},
		{Tracking, Pending, false, false},
		{Tracking, Included, true, false},
		{InFlight, "", true, false},
		{Stuck, "", true, false},
		{Protect, "", true, false},
		{Queued, "", true, false},
		{Confirmed, "", true, false},
		{Failed, Reverted, true, false},
	} {
		r := rulesOf(3)
		r.Resubmit = c.resubmit
		for _, at := range []struct {
			next *time.Time
			due  bool
		}{{nil, true}, {ago(time.Second), true}, {in(0), true}, {in(time.Nanosecond), false}, {in(time.Minute), false}} {
			tx := Tx{State: c.state, Sub: c.sub, NextResubmitAt: at.next, SubmitAttempts: 1}
			if got, want := r.isRebroadcastDue(tx, dbNow), c.want && at.due; got != want {
				t.Errorf("%s/%s, resubmit %v, next at %v: got %v, want %v", c.state, c.sub, c.resubmit, at.next, got, want)
			}
		}
	}
}

// Claim before send: the attempt is stored first, and stays due until its outcome is recorded, so
// that a crash in between is recovered.
func TestClaimIsWrittenBeforeTheBroadcast(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := stateOf(3, 8, pending(5), submitted(6), pending(7))
		w.Open[1].NextResubmitAt, w.Open[2].NextResubmitAt = nil, ago(time.Second)
		j := rulesOf(3).evaluate(w, asking(w), viewOf(w, blocks('a', 100, 101)...))
		if got, want := j.claimedIDs(), []string{"tx-6", "tx-7"}; !slices.Equal(got, want) {
			t.Fatalf("claimed: got %v, want %v", got, want)
		}
		for _, i := range j.rebroadcasts {
			before, after := w.Open[i], j.after[i]
			if after.State != before.State || after.SubmitAttempts != 2 || !after.LastSubmitAt.Equal(dbNow) || after.NextResubmitAt.After(dbNow) {
				t.Errorf("%s: got %s, attempt %d, last %v, next %v; want attempt 2, now, due at once", after.ID, after.State, after.SubmitAttempts, after.LastSubmitAt, after.NextResubmitAt)
			}
			if !slices.ContainsFunc(j.transitions, func(m Transition) bool { return m.To.ID == after.ID && m.To.SubmitAttempts == 2 }) {
				t.Errorf("%s is sent, and no move claims it", after.ID)
			}
		}
	})
}

// A transaction with a receipt in the same observation is not sent again, however overdue it was.
func TestWhatIsFoundMinedIsNotSentAgain(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		for _, tx := range []Tx{pending(5), submitted(5)} {
			tx.NextResubmitAt, tx.SubmitAttempts, tx.FirstSubmitAt = ago(time.Hour), 99, ago(24*time.Hour)
			v := finding(viewOf(stateOf(1, 6, tx), blocks('a', 100, 101)...), receiptOf(tx, block('a', 100)))
			if after, j := evaluateOne(rulesOf(3), tx, v); len(j.rebroadcasts) != 0 || after.Sub != Included || after.SubmitAttempts != 99 {
				t.Errorf("%s: got %s/%s, %d sent; want TRACKING/INCLUDED, none", tx.State, after.State, after.Sub, len(j.rebroadcasts))
			}
		}
	})
}

func TestStuckByAttemptsOrByAge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		attempts int
		age      *time.Time
		want     State
	}{
		{"the last attempt but one", 19, ago(time.Minute), Tracking},
		{"attempts used up", 20, ago(time.Minute), Stuck},
		{"more than used up: the setting was lowered", 25, ago(time.Minute), Stuck},
		{"a moment before stuck.after", 1, ago(30*time.Minute - time.Nanosecond), Tracking},
		{"stuck.after since the first broadcast", 1, ago(30 * time.Minute), Stuck},
		{"long after", 1, ago(24 * time.Hour), Stuck},
		{"both", 20, ago(24 * time.Hour), Stuck},
		{"the first broadcast is not on record", 1, nil, Tracking},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			frozen(t, func(t *testing.T) {
				r := rulesOf(3)
				tx := pending(5)
				tx.SubmitAttempts, tx.FirstSubmitAt, tx.NextResubmitAt = c.attempts, c.age, ago(time.Second)
				after, j := evaluateOne(r, tx, viewOf(stateOf(1, 6, tx), blocks('a', 100, 101)...))
				if after.State != c.want {
					t.Fatalf("got %s, want %s", after.State, c.want)
				}
				if c.want != Stuck {
					return
				}
				if len(j.rebroadcasts) != 0 || after.SubmitAttempts != c.attempts || after.LastError == "" || after.Sub != "" {
					t.Errorf("got %d sent, attempt %d, reason %q; want none sent, and why", len(j.rebroadcasts), after.SubmitAttempts, after.LastError)
				}
				if !after.NextCheckAt.After(dbNow) {
					t.Errorf("next check %v, want later: it goes on being watched", after.NextCheckAt)
				}
			})
		})
	}
}

// In PROTECT polling continues; nothing is sent, and nothing becomes STUCK.
func TestNothingIsSentInProtect(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := stateOf(4, 9, pending(5), pending(6), submitted(7), pending(8))
		for i := range w.Open {
			w.Open[i].NextResubmitAt = ago(time.Hour)
		}
		w.Open[3].SubmitAttempts = 20
		w.Protected = true
		j := rulesOf(1).evaluate(w, asking(w), finding(viewOf(w, blocks('a', 100, 101)...), receiptOf(w.Open[0], block('a', 100))))
		if len(j.rebroadcasts) != 0 || len(j.claimedIDs()) != 0 {
			t.Errorf("got %v sent in PROTECT, want nothing", j.claimedIDs())
		}
		want := []State{Confirmed, Tracking, Submitted, Tracking}
		for i, after := range j.after {
			if after.State != want[i] || after.SubmitAttempts != w.Open[i].SubmitAttempts {
				t.Errorf("nonce %d: got %s, attempt %d; want %s and no attempt", *after.Nonce, after.State, after.SubmitAttempts, want[i])
			}
		}
	})
}

// With resubmission off, a broadcast claimed after a reorg or a requested action is repeated until
// a node has it: possibly only the claim was made.
func TestClaimedBroadcastIsSentUntilANodeHasIt(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r := rulesOf(3)
		r.Resubmit = false
		tx := claimBroadcast(pending(5), dbNow)
		if !r.isRebroadcastDue(tx, dbNow) {
			t.Error("claimed, its outcome not recorded: got not due, want it sent")
		}
		silent := r.afterBroadcast(tx, SendResult{Class: SendUnknown}, block('a', 100), dbNow)
		if !r.isRebroadcastDue(silent, *silent.NextResubmitAt) {
			t.Errorf("no answer: got %s/%s, not due at its time; want it sent again", silent.State, silent.Sub)
		}
		taken := r.afterBroadcast(tx, SendResult{Class: SendAccepted}, block('a', 100), dbNow)
		if r.isRebroadcastDue(taken, dbNow.Add(time.Hour)) {
			t.Errorf("taken by a node: got %s/%s due, want it left alone", taken.State, taken.Sub)
		}
	})
}

// A STUCK transaction is checked ten blocks apart, and a check without a result changes nothing
// that callers can see.
func TestStuckIsWatchedTenBlocksApart(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r := rulesOf(3)
		tx := timed(stuck(5), ago(time.Second), nil)
		w := stateOf(1, 6, tx)
		after := r.evaluate(w, asking(w), viewOf(w, block('a', 100))).after[0]
		if want := dbNow.Add(10 * r.BlockTime); after.NextCheckAt == nil || !after.NextCheckAt.Equal(want) || after.State != Stuck {
			t.Errorf("next look: got %v, want %v", after.NextCheckAt, want)
		}
	})
}

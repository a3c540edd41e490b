package txmanager

import (
	"math/big"
	"strings"
	"testing"
	"time"
)

// While a bound blocks a gas bump, rebroadcasts of the same bytes keep its reason, whatever nodes
// answer. The reason is removed when the bound allows the bump, or a receipt arrives.
func TestTheReasonOfABlockedBumpStays(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		const reason = "gas bump: the submitter's budget of 24 hours is used up"
		r, head := bumpRules(), block('a', 100)
		for _, class := range []SendClass{SendAccepted, SendAlreadyKnown, SendUnderpriced} {
			tx := submitted(5).versions(2)
			tx.LastError, tx.NextBumpAt, tx.SubmitAttempts = reason, in(time.Minute), 1
			got := r.afterBroadcast(tx, SendResult{Class: class}, head, dbNow)
			if got.LastError != reason || !got.NextBumpAt.Equal(dbNow.Add(time.Minute)) {
				t.Errorf("%s: got %q, next bid %v; want the reason as it was, in a minute", class, got.LastError, got.NextBumpAt)
			}
			if got.NextResubmitAt == nil || !got.NextResubmitAt.After(dbNow) || !got.NextCheckAt.After(dbNow) {
				t.Errorf("%s: got sent again %v, looked at %v; want both later", class, got.NextResubmitAt, got.NextCheckAt)
			}
			if got := rulesOf(3).afterBroadcast(tx, SendResult{Class: class}, head, dbNow); got.LastError == reason {
				t.Errorf("%s, switched off meanwhile: got %q, want it gone", class, got.LastError)
			}
			if got := r.afterBroadcast(tx.versions(4), SendResult{Class: class}, head, dbNow); got.LastError == reason {
				t.Errorf("%s, with no bid left: got %q, want it gone", class, got.LastError)
			}
		}
		held := waiting(5)
		held.LastError = reason
		w := stateOf(1, 6, held)
		calls := map[string]Call{"pay": {To: &Address{}, Gas: 21_000, FeeCapWei: big.NewInt(105)}}
		if _, moves := r.signs(w, dear(w), calls); len(moves) != 1 || moves[0].To.LastError != "" {
			t.Errorf("no bid is wanted any more: got %+v, want a move without a reason", moves)
		}
	})
}

// With nonce.placeholder=ask, an operator is asked only about a bump that would be made: not where
// a bound or its caller forbids it, nor where it would not help.
func TestOperatorIsAskedOnlyAboutAPossibleBump(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r := bumpRules()
		r.AskBeforePlaceholder = true
		w := stateOf(1, 6, waiting(5))
		calls := map[string]Call{"pay": {To: &Address{}, Gas: 21_000, FeeCapWei: big.NewInt(105)}}
		if _, moves := r.signs(w, dear(w), calls); len(moves) != 1 || moves[0].To.State != Tracking || moves[0].To.LastError != "" {
			t.Errorf("its caller allows no more: got %+v, want it to wait as it is", moves)
		}
		r.Bump.BudgetWei = big.NewInt(1)
		if _, moves := r.signs(w, dear(w), nil); len(moves) != 1 || moves[0].To.State != Tracking || !strings.Contains(moves[0].To.LastError, "budget") {
			t.Errorf("beyond the budget: got %+v, want it held with the reason", moves)
		}
		r.Bump.BudgetWei = nil
		if _, moves := r.signs(w, dear(w), nil); len(moves) != 1 || moves[0].To.State != Stuck {
			t.Errorf("a bid within all bounds: got %+v, want it STUCK", moves)
		}
	})
}

// After a reorg or a decision the same bytes are sent again at once. The next gas bump comes one
// interval later, however old the previous version is.
func TestRestartedTransactionIsSentBeforeItIsReplaced(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r := bumpRules()
		old := []Header{block('a', 100)}
		tx := included(5, old...)
		tx.NextBumpAt = ago(time.Minute)
		w := stateOf(1, 6, tx)
		q := asking(w)
		q.FromBlock, q.ToBlock = 100, 103
		j := r.evaluate(w, q, viewOf(w, blocks('b', 100, 102)...))
		if got := j.claimedIDs(); len(got) != 1 || r.isBumpDue(j.after[0], dbNow) || !r.isBumpDue(j.after[0], dbNow.Add(time.Minute)) {
			t.Errorf("after a reorg: got %v sent again, a bid due %v; want it sent, and a bid after an interval", got, r.isBumpDue(j.after[0], dbNow))
		}
		tx = stuck(5)
		tx.NextBumpAt, tx.RequestedAction, tx.Raw = ago(time.Hour), ActionRebroadcast, []byte{1}
		w = stateOf(1, 6, tx)
		j = r.evaluate(w, asking(w), viewOf(w, block('a', 100)))
		if got := j.claimedIDs(); len(got) != 1 || r.isBumpDue(j.after[0], dbNow) {
			t.Errorf("by a decision: got %v sent again, a bid due %v; want it sent, none due", got, r.isBumpDue(j.after[0], dbNow))
		}
	})
}

// A transaction above the lowest nonce that no node holds is bumped too, even if blocks would
// accept its price. It does not only wait for lower nonces.
func TestAWindowOutbidsWhatNoNodeHolds(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		refused := submitted(6).versions(2)
		refused.Gas, refused.Payload = &GasParams{Gas: 21_000, FeeCapWei: big.NewInt(900), TipCapWei: big.NewInt(9), ValueWei: new(big.Int)}, []byte("pay")
		below := waiting(5)
		below.NextBumpAt = in(time.Hour)
		w := stateOf(9, 7, below, refused)
		r := bumpRules()
		r.Bump.FeeCapWei = big.NewInt(2000)
		w.Open[1] = r.afterBroadcast(w.Open[1], SendResult{Class: SendUnderpriced}, block('a', 100), dbNow)
		jobs, moves := r.signs(w, dear(w), nil)
		if len(jobs) != 1 || *jobs[0].tx.Nonce != 6 {
			t.Errorf("got %d versions, moves %+v; want one of nonce 6", len(jobs), moves)
		}
	})
}

// No gas bump exceeds the deployment's fee limit, whatever the gas bump's own cap is.
func TestABidIsUnderTheCeiling(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r, w := bumpRules(), stateOf(1, 6, waiting(5))
		r.FeeCapWei = big.NewInt(150)
		jobs, _ := r.signs(w, dear(w), nil)
		if len(jobs) != 1 || jobs[0].unsigned.FeeCapWei.Int64() != 150 {
			t.Fatalf("got %+v, want a bid at the ceiling of 150", jobs)
		}
		r.FeeCapWei = big.NewInt(109)
		jobs, moves := r.signs(w, dear(w), nil)
		if len(jobs) != 0 || len(moves) != 1 || !strings.Contains(moves[0].To.LastError, "fees.maxFeePerGas") {
			t.Errorf("below what nodes demand: got %d versions, %+v; want it held, by fees.maxFeePerGas", len(jobs), moves)
		}
	})
}

// If a node cannot say whether a receipt exists, the same bytes are still rebroadcast: only the
// bump waits.
func TestWithoutAnAnswerTheSameIsSentAgain(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r, tx := bumpRules(), waiting(5)
		tx.NextResubmitAt = ago(time.Second)
		w := stateOf(1, 6, tx)
		v := dear(w)
		v.Receipts[tx.Versions[0]] = ReceiptAnswer{Answer: AnswerUnknown}
		if got := r.evaluate(w, asking(w), v).claimedIDs(); len(got) != 1 {
			t.Errorf("sent again as it is: got %v, want it", got)
		}
		if jobs, _ := r.signs(w, v, nil); len(jobs) != 0 {
			t.Errorf("got %d versions, want none", len(jobs))
		}
		delete(v.Receipts, tx.Versions[0]) // the query did not cover it
		if got := r.evaluate(w, asking(w), v).claimedIDs(); len(got) != 0 {
			t.Errorf("not asked: got %v sent again, want the bid to come in its place", got)
		}
	})
}

// If a broadcast and a gas bump are both due at a late check, the bump is made in place of the
// broadcast. If a bound blocks the bump, the broadcast is made.
func TestDueBumpReplacesADueBroadcast(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r, tx := bumpRules(), waiting(5)
		tx.NextResubmitAt, tx.NextBumpAt, tx.NextCheckAt = ago(2*time.Second), ago(time.Second), in(10*time.Second)
		if got, want := r.planNextWork(stateOf(1, 6, tx)), (nextWork{kind: KindAdvance, at: *in(10 * time.Second)}); got != want {
			t.Errorf("got %+v, want %+v: no other function may sign", got, want)
		}
		tx.LastError = bumpBlockedPrefix + "the submitter's budget of 24 hours is used up"
		w := stateOf(1, 6, tx)
		if got, want := r.planNextWork(w), (nextWork{kind: KindResubmit, at: *ago(2 * time.Second)}); got != want {
			t.Errorf("held: got %+v, want %+v", got, want)
		}
		j := r.evaluate(w, asking(w), dear(w))
		if got := j.claimedIDs(); len(got) != 1 {
			t.Errorf("held: got %v sent again, want it", got)
		}
		w.Open = j.after
		if jobs, _ := r.signs(w, dear(w), nil); len(jobs) != 1 {
			t.Errorf("held no more: got %d versions, want the bid, which goes in its place", len(jobs))
		}
	})
}

// A handler's transaction is never bumped: its first version offers all that the handler allows,
// with or without gas bumps.
func TestAHandlersFirstVersionOffersAllItMay(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		x := bare(5)
		x.Handler = "wage"
		w := stateOf(1, 6, x)
		for name, r := range map[string]Rules{"on": bumpRules(), "off": rulesOf(3)} {
			tn := invocationBy(&Worker{Service: Service{Rules: r, Timing: testTiming}}, leaseSession{state: w})
			made, err := tn.priceCall(t.Context(), x, handlerResult{call: Call{Gas: 21_000, FeeCapWei: big.NewInt(5000)}}, viewOf(w, block('a', 100)))
			if err != nil || made.params.FeeCapWei.Int64() != 5000 {
				t.Errorf("%s: got %v, %v; want 5000 wei per gas, as the handler said", name, made.params.FeeCapWei, err)
			}
		}
	})
}

package txmanager

import (
	"context"
	"errors"
	"log/slog"
	"math/big"
	"slices"
	"testing"
	"time"
)

// H10, H9, TX-008: a foreign transaction consumes the lowest open nonce. The count equals the
// cursor, so only "above the lowest, and no version known" shows it.
func TestH10ForeignUseOfTheNonceInFlightIsSuspected(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := stateOf(1, 6, pending(5))
		v := viewOf(w, block('a', 101))
		v.Account.LatestCount, v.Account.PendingCount = 6, 6
		v.Known = map[Hash]Answer{versionHash(5, 1): AnswerNotFound}
		if c := evaluateViolation(w, v); c.Suspect == nil {
			t.Errorf("count 6, nonce 5 in flight, no version known: got %+v, want a suspicion", c)
		}
		w.SuspectedViolation = &Violation{Block: 100}
		if c := evaluateViolation(w, v); c.OpenIncident == nil {
			t.Errorf("the same a block later: got %+v, want PROTECT", c)
		}
	})
}

// H6: the iteration that opens PROTECT sends nothing.
func TestH06TheIterationThatOpensProtectSendsNothing(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := stateOf(1, 6, timed(pending(5), ago(time.Second), ago(time.Second)))
		w.SuspectedViolation = &Violation{Block: 100}
		v := viewOf(w, block('a', 101))
		v.Account.LatestCount, v.Account.PendingCount = 7, 7
		if evaluateViolation(w, v).OpenIncident == nil {
			t.Fatal("want a view that opens PROTECT")
		}
		if j := rulesOf(3).evaluate(w, asking(w), v); len(j.rebroadcasts) != 0 {
			t.Errorf("got %v claimed to be sent in PROTECT, want nothing", j.claimedIDs())
		}
	})
}

// H21, H27: a deferred intent is due when the nonce that it waits for is terminal.
func TestH27DeferredIntentIsDueWhenItsNonceIsTerminal(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := queue(stateOf(2, 6, pending(5)), queued(1, "call"))
		r := rulesOf(1)
		p := r.planAllocations(w, reader(nil), viewOf(w, block('a', 100)), estimates1(reverts()))
		w = w.afterCommit(Commit{Transitions: p.transitions}) // deferred until 5
		v := finding(viewOf(w, blocks('a', 100, 101)...), receiptOf(w.Open[0], block('a', 100)))
		w = w.afterCommit(Commit{Transitions: r.evaluate(w, asking(w), v).transitions}) // 5 is final
		if d := r.planNextWork(w); !d.advanceNow {
			t.Errorf("got %+v, want an advance: q-1 can be estimated again", d)
		}
	})
}

// H21: an intent that was deferred once and is in the queue again stays in it.
func TestH27IntentBackFromDeferralStaysInTheQueue(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		back := queued(1, "call")
		back.DeferredUntilNonce = new(uint64(5)) // terminal: the store loads it again
		w := queue(stateOf(2, 6), back)
		if d := rulesOf(3).planNextWork(w.afterCommit(Commit{})); !d.advanceNow {
			t.Errorf("after an empty write: got %+v, want an advance", d)
		}
		p := rulesOf(3).planAllocations(w, reader(nil), viewOf(w, block('a', 100)), nil) // no estimate: it waits
		if d := rulesOf(3).planNextWork(w.afterCommit(Commit{Transitions: p.transitions})); d.kind != KindAdvance || d.at.IsZero() {
			t.Errorf("after it was made to wait: got %+v, want an advance when the wait is over", d)
		}
		back.NextCheckAt = in(time.Minute)
		w = queue(w, back, queued(2, "pay"))
		if d := rulesOf(3).planNextWork(w.afterCommit(Commit{})); d.advanceNow {
			t.Errorf("it waits, another is behind it: got %+v, want no advance now: the holder would go round without a pause", d)
		}
	})
}

// 1.3 QUEUED: "or a lower fee". A cap below the base fee would only block the
// nonce.
func TestFeeCapBelowTheBaseFeeWaitsInTheQueue(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		cheap := map[string]Call{"cheap": {To: &Address{}, Gas: 21_000, FeeCapWei: big.NewInt(9)}}
		w := queue(stateOf(1, 5), queued(1, "cheap"))
		p := rulesOf(3).planAllocations(w, reader(cheap), viewOf(w, block('a', 100)), nil) // base fee 10
		if got := outline(p); got != "q-1 waits" {
			t.Errorf("got %q, want it to wait for a lower fee", got)
		}
	})
}

// H21: a nonce without bytes causes no immediate advance where nothing may be signed.
func TestHeldNonceInProtectIsNotDueNow(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := stateOf(1, 6, bare(5))
		w.Protected = true
		if d := rulesOf(3).planNextWork(w); d.advanceNow {
			t.Errorf("got %+v, want no advance", d)
		}
	})
}

// 1.4 resubmit: stuck.after is a separate limit.
func TestStuckByAgeAlsoWithoutResubmission(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r := rulesOf(3)
		r.Resubmit = false
		tx := timed(pending(5), ago(time.Second), ago(time.Second))
		tx.FirstSubmitAt = ago(24 * time.Hour)
		if after, _ := evaluateOne(r, tx, viewOf(stateOf(1, 6, tx), block('a', 100))); after.State != Stuck {
			t.Errorf("a day without a receipt: got %s, want STUCK", after.State)
		}
	})
}

// 1.4 confirm: a transaction that a reorg removed is sent again, whatever its age, with
// resubmission on or off.
func TestWhatAReorgRemovedIsSentAgainWhateverItsAge(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		for name, change := range map[string]func(*Tx, *Rules){
			"old":                 func(tx *Tx, _ *Rules) { tx.FirstSubmitAt = ago(time.Hour) },
			"attempts used up":    func(tx *Tx, _ *Rules) { tx.SubmitAttempts = 20 },
			"resubmission is off": func(_ *Tx, r *Rules) { r.Resubmit = false },
		} {
			r, tx := rulesOf(20), included(5, blocks('a', 100, 102)...)
			change(&tx, &r)
			after, j := evaluateOne(r, tx, viewOf(stateOf(1, 6, tx), blocks('b', 100, 104)...))
			if after.State != Tracking || after.Sub != Pending || len(j.rebroadcasts) != 1 {
				t.Errorf("%s: got %s/%s, %d sent; want PENDING and sent again", name, after.State, after.Sub, len(j.rebroadcasts))
			}
		}
	})
}

// H11: a lower head changes nothing, whatever its hashes.
func TestH11LowerHeadWithOtherHashesChangesNothing(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		tx := included(5, blocks('a', 100, 105)...)
		shown := append(blocks('a', 100, 100), block('b', 101))
		after, j := evaluateOne(rulesOf(20), tx, finding(viewOf(stateOf(1, 6, tx), shown...), *tx.Receipt))
		if j.newForks != 0 || len(after.Confirmations) != 6 {
			t.Errorf("head 101 against a list up to 105: got %d new forks, %d blocks; want none, 6", j.newForks, len(after.Confirmations))
		}
		after, j = evaluateOne(rulesOf(20), tx, viewOf(stateOf(1, 6, tx), block('b', 100)))
		if j.newForks != 0 || after.Receipt == nil {
			t.Errorf("head 100', receipt in 100: got %d new forks, receipt %v; want it kept until the head is past it", j.newForks, after.Receipt)
		}
	})
}

// H26: a transaction that this observation's balance has not paid yet still counts.
func TestH26ReceiptAboveTheNodesHeadIsNotPaidYet(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		tx := included(5, block('a', 101))
		tx.Gas = params(21_000, 1000, 1_000_000)
		w := queue(stateOf(2, 6, tx), queued(1, "pay"))
		v := viewOf(w, block('a', 100)) // it lags: the count is still 5
		v.Account.BalanceWei = costWithPlaceholder(*tx.Gas)
		if got := outline(rulesOf(3).planAllocations(w, reader(nil), v, nil)); got != "q-1 waits" {
			t.Errorf("got %q, want it to wait: the balance goes to nonce 5", got)
		}
	})
}

// A query asks for no more headers than a node gives, however far apart the receipts are. The
// lowest nonce's come first, since finals are in nonce order.
func TestHeadersAskedForAreBounded(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := stateOf(2, 7, timed(included(5, block('a', 100)), nil, nil), timed(pending(6), nil, nil))
		r := rulesOf(20)
		q, _ := r.nextQuery(w, KindReceipt, nil)
		q = r.withFinalityHeaders(q, finding(viewOf(w, block('a', 20_000)), receiptOf(w.Open[1], Header{Number: 19_000})))
		if q.FromBlock != 100 || q.ToBlock-q.FromBlock >= 10_000 {
			t.Errorf("got headers %d to %d, want from 100 and fewer than 10000", q.FromBlock, q.ToBlock)
		}
	})
}

// Whatever the node answers, every transition is allowed: the store would otherwise refuse the
// whole commit each time.
func TestFinalReceiptInProtectIsALegalTransition(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		tx := held(5, Protect, "")
		v := finding(viewOf(stateOf(1, 6, tx), blocks('a', 100, 103)...), receiptOf(tx, block('a', 100)))
		if _, j := evaluateOne(rulesOf(1), tx, v); !j.transitions[0].From.MayBecome(j.transitions[0].To.State) {
			t.Errorf("got %s to %s, want a legal move", j.transitions[0].From, j.transitions[0].To.State)
		}
	})
}

// noSigner never signs.
type noSigner struct{}

func (noSigner) Sign(context.Context, Submitter, Unsigned) (Signed, error) {
	return Signed{}, errors.New("the key is away")
}
func (noSigner) InProcess(Submitter) bool { return true }

// If a signer fails, the transaction that was to be signed waits, and no row changes twice in one
// commit.
func TestFailedSigningMakesTheRightTransactionWait(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := queue(stateOf(2, 5), queued(1, "junk"), queued(2, "pay"))
		worker := &Worker{Service: Service{Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Timing: testTiming}, Signer: noSigner{}}
		tn := queried(invocationBy(worker, leaseSession{chain: reader(nil), kind: KindAdvance, state: w}))
		p := tn.planUnsigned(t.Context(), viewOf(w, block('a', 100)))
		var moved []string
		for _, m := range p.transitions {
			moved = append(moved, m.To.ID)
		}
		if want := []string{"q-1", "q-2"}; !slices.Equal(moved, want) || len(p.allocations) != 0 {
			t.Errorf("moved: got %v, want %v: q-1 refused, q-2 waiting", moved, want)
		}
	})
}

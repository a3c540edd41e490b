package txmanager

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawHeld is a transaction that holds nonce n, in any state and with any check times.
func drawHeld(t *rapid.T, n uint64) Tx {
	at := rapid.SampledFrom([]*time.Time{nil, ago(time.Minute), ago(time.Minute), in(time.Minute)})
	from := rapid.Uint64Range(95, 105).Draw(t, "block")
	tx := rapid.SampledFrom([]Tx{
		pending(n), submitted(n), pending(n), submitted(n), bare(n), included(n, blocks('a', from, from+2)...), stuck(n), held(n, Protect, ""),
	}).Draw(t, "tx")
	tx.NextCheckAt, tx.NextResubmitAt = at.Draw(t, "check"), at.Draw(t, "resubmit")
	if tx.State != InFlight {
		tx.SubmitAttempts = rapid.SampledFrom([]int{1, 5, 18, 19, 20}).Draw(t, "attempts")
		tx.FirstSubmitAt = ago(rapid.SampledFrom([]time.Duration{time.Minute, 2 * time.Minute, 10 * time.Minute, time.Hour}).Draw(t, "age"))
	}
	return tx
}

// drawSubmitterState is a submitter's state with one to six open nonces, its query, and a node's observation
// for it.
func drawSubmitterState(t *rapid.T, r Rules, k Kind) (w SubmitterState, q ChainQuery, v ChainObservation) {
	var txs []Tx
	for n := range uint64(rapid.IntRange(1, 6).Draw(t, "held")) {
		txs = append(txs, drawHeld(t, 5+n))
	}
	window := rapid.Uint64Range(2, 8).Draw(t, "window")
	w = queue(stateOf(window, 5+uint64(len(txs)), txs...), queued(1, "pay"), queued(2, "pay"))
	q, _ = r.nextQuery(w, k, reader(nil))
	return w, q, drawAnswers(t, w)
}

// drawAnswers is what a node on one of two chains says of every open version, in nonce order, so
// that a seed draws the same again.
func drawAnswers(t *rapid.T, w SubmitterState) ChainObservation {
	from := rapid.Uint64Range(94, 104).Draw(t, "from")
	chain := rapid.SampledFrom([]byte{'a', 'b'})
	v := viewOf(w, blocks(chain.Draw(t, "chain"), from, from+rapid.Uint64Range(0, 8).Draw(t, "headers"))...)
	for _, tx := range w.Open {
		for _, h := range tx.Versions {
			switch rapid.IntRange(0, 5).Draw(t, "answer") {
			case 4:
				v.Receipts[h] = ReceiptAnswer{}
			case 5:
				b := block(chain.Draw(t, "in"), rapid.Uint64Range(93, 112).Draw(t, "at"))
				v = finding(v, Receipt{TxHash: h, BlockNumber: b.Number, BlockHash: b.Hash, Succeeded: rapid.Bool().Draw(t, "succeeded")})
			}
		}
	}
	if rapid.Bool().Draw(t, "without headers") {
		v.Headers = nil
	}
	return v
}

// acknowledgedOrSent reports whether an open nonce is with a node, was mined, or is sent in the
// same broadcast, which is in nonce order.
func acknowledgedOrSent(j evaluation, i int) bool {
	return j.after[i].isAcknowledged() || j.after[i].State.Terminal() || slices.Contains(j.rebroadcasts, i)
}

// H26: no nonce may be broadcast above a lower one that is not with a node and is not sent now.
func TestH26NothingIsSentAheadOfWhatCannotBe(t *testing.T) {
	t.Parallel()
	sent, stopped := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		r := rulesOf(3)
		r.Resubmit = rapid.Bool().Draw(t, "resubmit")
		w, q, v := drawSubmitterState(t, r, KindResubmit)
		j := r.evaluate(w, q, v)
		for _, i := range j.rebroadcasts {
			sent++
			for lower := range i {
				if !acknowledgedOrSent(j, lower) {
					t.Fatalf("nonce %d is sent ahead of nonce %d, which is %s", *j.after[i].Nonce, *j.after[lower].Nonce, j.after[lower].State)
				}
			}
		}
		for i, before := range w.Open {
			if r.isRebroadcastDue(before, w.now()) && !acknowledgedOrSent(j, i) {
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
		w, q, v := drawSubmitterState(t, r, KindResubmit)
		low := w.Open[0]
		if d := r.planNextWork(w); low.State != InFlight && low.NextCheckAt != nil && !d.advanceNow && (d.at.IsZero() || d.at.After(*low.NextCheckAt)) {
			t.Fatalf("due: got %+v, want a look at nonce 5 at %v at the latest", d, low.NextCheckAt)
		}
		if low.isDueBy(w.now()) && len(low.Versions) > 0 {
			if !slices.Equal(q.Receipts[:len(low.Versions)], low.Versions) {
				t.Fatalf("question: got %v first, want the versions of nonce 5", q.Receipts)
			}
			if low.Receipt == nil && !slices.Equal(q.Known, low.Versions) {
				t.Fatalf("question: got %v to be known, want the versions of nonce 5", q.Known)
			}
		}
		if low.Receipt != nil && low.isDueBy(w.now()) && (q.FromBlock > low.Receipt.BlockNumber || q.ToBlock < low.Receipt.BlockNumber+r.headerDepth()) {
			t.Fatalf("question: got headers %d to %d, want those that end nonce 5 in %d", q.FromBlock, q.ToBlock, low.Receipt.BlockNumber)
		}
		if _, answer := findReceipt(low, v); answer == AnswerFound || !r.isRebroadcastDue(low, w.now()) || r.isPastStuckAfter(low, w.now()) || low.SubmitAttempts >= r.MaxResubmits {
			return
		}
		first++
		if j := r.evaluate(w, q, v); len(j.rebroadcasts) == 0 || j.rebroadcasts[0] != 0 {
			t.Fatalf("sent: got %v, want nonce 5 first: its time has come", j.claimedIDs())
		}
	})
	if first == 0 {
		t.Error("the lowest was never due to be sent, want it in some books")
	}
}

// signsElsewhere gives its bytes only once a nonce is bound.
type signsElsewhere struct{ noSigner }

func (signsElsewhere) InProcess(Submitter) bool { return false }

// H26: no nonce may be allocated above one that is STUCK, or that no node has
// acknowledged.
func TestH26NothingIsAllocatedAboveWhatIsStuck(t *testing.T) {
	t.Parallel()
	allocated, refused := 0, 0
	worker := &Worker{Service: Service{Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Timing: testTiming}, Signer: signsElsewhere{}}
	rapid.Check(t, func(t *rapid.T) {
		w, q, v := drawSubmitterState(t, worker.Rules, KindAdvance)
		v.Account.PendingCount = rapid.Uint64Range(4, w.NextNonce).Draw(t, "pending")
		j := worker.Rules.evaluate(w, q, v)
		w.Open = j.open()
		v.Account.LatestCount = w.lowestOpenNonce()
		blocked := slices.ContainsFunc(w.Open, func(x Tx) bool { return x.State != Tracking })
		tn := queried(invocationBy(worker, leaseSession{chain: reader(nil), kind: KindAdvance, state: w}))
		got := len(tn.planUnsigned(context.Background(), v).allocations)
		want := min(w.roomInWindow(), len(w.Queue))
		if blocked {
			want = 0
			refused++
		}
		allocated += got
		if got != want {
			t.Fatalf("allocated with room for %d: got %d, want %d; held: %v", w.roomInWindow(), got, want, states(w.Open))
		}
		bareNow := slices.ContainsFunc(w.Open, func(x Tx) bool { return x.State == InFlight && x.isDueBy(w.now()) })
		if d := worker.Rules.planNextWork(w); blocked && d.advanceNow && !bareNow {
			t.Fatalf("due: got an advance now, want none: the queue waits behind %v", states(w.Open))
		}
	})
	if allocated == 0 || refused == 0 {
		t.Errorf("got %d allocated and %d books that refuse, want some of each", allocated, refused)
	}
}

// states lists the states of open transactions, by nonce.
func states(held []Tx) (list []State) {
	for _, t := range held {
		list = append(list, t.State)
	}
	return list
}

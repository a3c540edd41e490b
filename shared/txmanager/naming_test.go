package txmanager

import (
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// After a resync no named request is signed or sent, whatever is open or queued and whatever an
// operator names.
func TestNoNamedRequestIsSignedAfterAResync(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		first, next := uint64(3), uint64(3)
		w := stateOf(8, 0)
		known := map[string]NamedRequest{}
		for range rapid.IntRange(0, 5).Draw(rt, "unsettled") {
			x := rapid.SampledFrom([]func(uint64) Tx{pending, submitted, stuck, bare, func(n uint64) Tx { return held(n, Protect, "") }}).Draw(rt, "kind")(next)
			x.RequestID = fmt.Sprintf("r-%d", next)
			known[x.RequestID] = NamedRequest{TxID: x.ID, State: x.State}
			w.Open, next = append(w.Open, x), next+1
		}
		w.NextNonce = next
		known["queued"] = NamedRequest{TxID: "q-1", State: Queued}
		count := rapid.Uint64Range(first, next+3).Draw(rt, "count")
		w.Incident, w.Protected = 1, true
		l := ReleaseRequest{Mode: Resync, Count: count, Requests: map[uint64]string{}}
		names := []string{NoRequest, "queued", "lost", "r-3", "r-4", "r-5", "r-6", "r-7"}
		for n := first; n < count; n++ {
			l.Requests[n] = rapid.SampledFrom(names).Draw(rt, "name")
		}
		v := viewOf(w, block('a', 100))
		v.FinalCount = &count
		book := &evidenceStore{known: known}
		to := Address{1}
		for n := first; n < count; n++ {
			taker := ConsumingTx{Hash: Hash{0xf0, byte(n)}, BlockNumber: 95, BlockHash: block('a', 95).Hash, To: &to, ValueWei: "1"}
			book.stored = append(book.stored, ForeignTransaction{Nonce: n, Incident: 1, Tx: taker, CallDigest: taker.CallDigest(), Succeeded: n%2 == 0})
		}
		v = watching(v, block('a', 95))
		p := &panel{ChainConnector: reader(nil), views: []ChainObservation{v}, quorum: 1}
		tn := &incident{leaseSession: &leaseSession{Service: &Service{Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Store: book, Timing: testTiming}, chain: p, state: w, began: time.Now()}}
		moves, out, err := tn.planResync(t.Context(), &l, LostNonces{})
		if err != nil {
			return
		}
		after := w.afterCommit(Commit{Transitions: moves})
		after.Protected = false
		for i := range after.Open {
			after.Open[i].NextCheckAt = nil
		}
		v.SelfTransfer = Estimate{Outcome: Done, Gas: 21_000}
		v.Account.BaseFeeWei, v.Account.TipWei = big.NewInt(1), big.NewInt(1)
		jobs, _ := tn.Rules.planSignatures(after, p, v, nil)
		for _, one := range out.Named {
			ends := slices.ContainsFunc(l.EndedRequests, func(e Naming) bool { return e.RequestID == one.RequestID })
			i := slices.IndexFunc(after.Open, func(x Tx) bool { return x.RequestID == one.RequestID })
			if one.Effect == NamedPlaceholder != (i >= 0) || i >= 0 && !after.Open[i].isExecutedElsewhere() {
				rt.Errorf("%+v: got it unsettled %v, ended in the queue %v", one, i >= 0, ends)
			}
			if i >= 0 && one.Effect == NamedPlaceholder {
				if said, _ := CallerText(after.Open[i].LastError); said == "" || strings.ContainsAny(said, "0123456789") {
					rt.Errorf("%+v: got %q for its caller, want a reason without a number", one, said)
				}
			}
			if i >= 0 && tn.Rules.isRebroadcastDue(after.Open[i], w.now().Add(time.Hour)) {
				rt.Errorf("%+v: got its own bytes sent again", one)
			}
			for _, job := range jobs {
				if job.tx.RequestID == one.RequestID && job.kind != VersionPlaceholder {
					rt.Errorf("%+v: got a version of kind %s signed", one, job.kind)
				}
			}
		}
	})
}

// A name that is not stored, and differs from an open request only in case or spaces, is refused:
// the intended request would be carried out again.
func TestAMisspelledNameIsRefused(t *testing.T) {
	t.Parallel()
	x := pending(3)
	x.RequestID = "flying"
	w := stateOf(1, 4, x)
	w.Incident, w.Protected = 1, true
	v := watching(viewOf(w, block('a', 100)), block('a', 95))
	v.FinalCount = new(uint64(4))
	to := Address{1}
	taker := ConsumingTx{Hash: Hash{0xf0}, BlockNumber: 95, BlockHash: block('a', 95).Hash, To: &to, ValueWei: "1"}
	for name, refused := range map[string]bool{"Order-1": true, "order-1 ": true, "Flying": true, "order-2": false, "ORDER-3": false} {
		book := &evidenceStore{open: []OpenRequest{{RequestID: "order-1", Unknown: true}}, known: map[string]NamedRequest{"ORDER-3": {TxID: "t-3", State: Queued}},
			stored: []ForeignTransaction{{Nonce: 3, Incident: 1, Tx: taker, CallDigest: taker.CallDigest(), Succeeded: true}}}
		p := &panel{ChainConnector: reader(nil), views: []ChainObservation{v}, quorum: 1}
		tn := &incident{leaseSession: &leaseSession{Service: &Service{Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Store: book, Timing: testTiming}, chain: p, state: w, began: time.Now()}}
		_, _, err := tn.planResync(t.Context(), &ReleaseRequest{Mode: Resync, Count: 4, Requests: map[uint64]string{3: name}}, LostNonces{})
		if naming, ok := errors.AsType[NamingError](err); ok != refused || !refused && err != nil {
			t.Errorf("%q: got %v %v, want it refused %v", name, naming, err, refused)
		}
	}
}

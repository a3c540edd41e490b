package protect

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// After a resync no named request is signed or sent, whatever is open or queued and whatever an
// operator names.
func TestNoNamedRequestIsSignedAfterAResync(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		first, next := uint64(3), uint64(3)
		w := txtest.StateOf(8, 0)
		known := map[string]txmanager.NamedRequest{}
		for range rapid.IntRange(0, 5).Draw(rt, "unsettled") {
			x := rapid.SampledFrom([]func(uint64) txmanager.Tx{txtest.Pending, txtest.Submitted, txtest.Stuck, txtest.Bare, func(n uint64) txmanager.Tx { return txtest.Held(n, txmanager.Protect, "") }}).Draw(rt, "kind")(next)
			x.RequestID = fmt.Sprintf("r-%d", next)
			known[x.RequestID] = txmanager.NamedRequest{TxID: x.ID, State: x.State}
			w.Open, next = append(w.Open, x), next+1
		}
		w.NextNonce = next
		known["queued"] = txmanager.NamedRequest{TxID: "q-1", State: txmanager.Queued}
		count := rapid.Uint64Range(first, next+3).Draw(rt, "count")
		w.Incident, w.Protected = 1, true
		l := txmanager.ReleaseRequest{Mode: txmanager.Resync, Count: count, Requests: map[uint64]string{}}
		names := []string{txmanager.NoRequest, "queued", "lost", "r-3", "r-4", "r-5", "r-6", "r-7"}
		for n := first; n < count; n++ {
			l.Requests[n] = rapid.SampledFrom(names).Draw(rt, "name")
		}
		v := txtest.ViewOf(w, txtest.Block('a', 100))
		v.FinalCount = &count
		book := &evidenceStore{known: known}
		for n := first; n < count; n++ {
			foreign := foreignAt(n, txmanager.Hash{0xf0, byte(n)}, eip155.Address([20]byte{1}), "1")
			foreign.Succeeded = n%2 == 0
			book.stored = append(book.stored, foreign)
		}
		v = txtest.Watching(v, txtest.Block('a', 95))
		p := &txtest.Panel{ChainConnector: txtest.Reader(nil), Views: []txmanager.ChainObservation{v}, Needed: 1}
		tn := incidentOf(p, w, book)
		moves, out, err := tn.planResync(t.Context(), &l, txmanager.LostNonces{})
		if err != nil {
			return
		}
		after := rules.AfterCommit(w, txmanager.Commit{Transitions: moves})
		after.Protected = false
		for i := range after.Open {
			after.Open[i].NextCheckAt = nil
		}
		v.SelfTransfer = txmanager.Estimate{Outcome: txmanager.Done, Gas: 21_000}
		v.Account.BaseFeeWei, v.Account.TipWei = big.NewInt(1), big.NewInt(1)
		jobs, _ := tn.Rules.PlanSignatures(after, p, v, rules.HandlerResult{})
		for _, one := range out.Named {
			ends := slices.ContainsFunc(l.EndedRequests, func(e txmanager.Naming) bool { return e.RequestID == one.RequestID })
			i := slices.IndexFunc(after.Open, func(x txmanager.Tx) bool { return x.RequestID == one.RequestID })
			if one.Effect == txmanager.NamedPlaceholder != (i >= 0) || i >= 0 && !after.Open[i].IsExecutedElsewhere() {
				rt.Errorf("%+v: got it unsettled %v, ended in the queue %v", one, i >= 0, ends)
			}
			if i >= 0 && one.Effect == txmanager.NamedPlaceholder {
				if said, _ := txmanager.CallerText(after.Open[i].LastError); said == "" || strings.ContainsAny(said, "0123456789") {
					rt.Errorf("%+v: got %q for its caller, want a reason without a number", one, said)
				}
			}
			if i >= 0 && tn.Rules.IsRebroadcastDue(after.Open[i], w.DatabaseTime().Add(time.Hour)) {
				rt.Errorf("%+v: got its own bytes sent again", one)
			}
			for _, job := range jobs {
				if job.Tx.RequestID == one.RequestID && job.Kind != txmanager.VersionPlaceholder {
					rt.Errorf("%+v: got a version of kind %s signed", one, job.Kind)
				}
			}
		}
	})
}

// A name that is not stored, and differs from an open request only in case or spaces, is refused:
// the intended request would be carried out again.
func TestAMisspelledNameIsRefused(t *testing.T) {
	t.Parallel()
	x := txtest.Pending(3)
	x.RequestID = "flying"
	w := inProtect(txtest.StateOf(1, 4, x))
	v := txtest.Watching(txtest.ViewOf(w, txtest.Block('a', 100)), txtest.Block('a', 95))
	v.FinalCount = new(uint64(4))
	for name, refused := range map[string]bool{"Order-1": true, "order-1 ": true, "Flying": true, "order-2": false, "ORDER-3": false} {
		book := &evidenceStore{open: []txmanager.OpenRequest{{RequestID: "order-1", Unknown: true}}, known: map[string]txmanager.NamedRequest{"ORDER-3": {TxID: "t-3", State: txmanager.Queued}},
			stored: []txmanager.ForeignTransaction{foreignAt(3, txmanager.Hash{0xf0}, eip155.Address([20]byte{1}), "1")}}
		p := &txtest.Panel{ChainConnector: txtest.Reader(nil), Views: []txmanager.ChainObservation{v}, Needed: 1}
		tn := incidentOf(p, w, book)
		_, _, err := tn.planResync(t.Context(), &txmanager.ReleaseRequest{Mode: txmanager.Resync, Count: 4, Requests: map[uint64]string{3: name}}, txmanager.LostNonces{})
		if naming, ok := errors.AsType[txmanager.NamingError](err); ok != refused || !refused && err != nil {
			t.Errorf("%q: got %v %v, want it refused %v", name, naming, err, refused)
		}
	}
}

// An owner's bytes are not replaced by code or by a higher fee. A lost nonce of an owner needs a
// request's name: the owner may have sent the consuming transaction.
func TestOwnersBytesAreNotReplaced(t *testing.T) {
	t.Parallel()
	x := txtest.UsedBy(txtest.Stuck(5))
	check.Equal(t, "replace by code: allowed", rulesOf(3).RefuseAction(x, txmanager.ActionReplace) == "", false)
	x.RequestedAction = txmanager.ActionReplace
	w := txtest.StateOf(1, 6, x)
	if jobs, _ := rulesOf(3).PlanSignatures(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), rules.HandlerResult{}); len(jobs) != 0 {
		t.Errorf("replace by order: got %+v signed", jobs)
	}
	held := txtest.StateOf(1, 6, txtest.Lent(5, txmanager.Reserved, time.Minute))
	tn := incidentOf(txtest.Reader(nil), held, nil)
	tn.State.Lease = lease.New(string(txtest.Alice), "a/1", 1, time.Now(), time.Hour)
	e := evidence{lost: []uint64{5}, foreign: map[uint64]txmanager.ForeignTransaction{5: {Nonce: 5}}}
	_, err := tn.pairRequests(&txmanager.ReleaseRequest{Count: 6}, e, nil)
	var foreign txmanager.UnnamedNonceError
	if !errors.As(err, &foreign) || foreign.Nonce != 5 {
		t.Errorf("a lost nonce that nobody named: got %v, want it refused", err)
	}
}

// A name is refused where the transaction differs from the request's call, such as with two names
// swapped. It is also refused where the transaction proves another payout. An unknown call refuses
// no name.
func TestANameIsRefusedThatTheTransactionContradicts(t *testing.T) {
	t.Parallel()
	to := eip155.Address([20]byte{19: 0xb0})
	for name, c := range map[string]struct {
		open    []txmanager.OpenRequest
		value   string
		proves  string
		says    string // "": it is taken
		pairing bool   // by others: matching, and not by name
	}{
		"the same call":              {[]txmanager.OpenRequest{{RequestID: "waits", TxID: "t-1", Payload: []byte("pay")}}, "1", "", "", false},
		"another value":              {[]txmanager.OpenRequest{{RequestID: "waits", TxID: "t-1", Payload: []byte("pay")}}, "2", "", "something else", false},
		"a payout of another value":  {[]txmanager.OpenRequest{{RequestID: "waits", Payload: []byte("pay")}}, "2", "", "", false},
		"a call not known":           {[]txmanager.OpenRequest{{RequestID: "waits", TxID: "t-1", Unknown: true}}, "2", "", "", false},
		"lost with the database":     {nil, "2", "", "", false},
		"proof of another payout":    {[]txmanager.OpenRequest{{RequestID: "waits", TxID: "t-1", Payload: []byte("pay")}}, "1", "paid", `"paid"`, false},
		"matching, and of no other":  {[]txmanager.OpenRequest{{RequestID: "waits", TxID: "t-1", Payload: []byte("pay")}}, "1", "", "", true},
		"matching, and proof itself": {[]txmanager.OpenRequest{{RequestID: "waits", TxID: "t-1", Payload: []byte("pay")}}, "1", "paid", "none", true},
	} {
		h := txmanager.Hash{0xaa}
		v := consumed(1, receiptOf(h, true))
		_, tn, book := unproved(v, v, v)
		book.stored = []txmanager.ForeignTransaction{foreignAt(0, h, to, c.value)}
		book.stored[0].Proves = c.proves
		if book.open = c.open; c.open == nil || c.open[0].TxID == "" {
			book.known = nil
		}
		l := txmanager.ReleaseRequest{Mode: txmanager.Resync, Count: 1, Requests: map[uint64]string{0: "waits"}}
		if c.pairing {
			l.Requests, l.Matching = nil, true
		}
		_, out, err := tn.planResync(t.Context(), &l, txmanager.LostNonces{Payer: strings.HasPrefix(name, "a payout")})
		naming, refused := errors.AsType[txmanager.NamingError](err)
		switch {
		case c.says == "none": // it is taken, and pairs nothing
			if err != nil || len(out.Named) != 0 {
				t.Errorf("%s: got %+v, %v; want no pair", name, out.Named, err)
			}
		case c.says == "":
			if err != nil || len(out.Named) != 1 {
				t.Errorf("%s: got %+v, %v; want it taken", name, out.Named, err)
			}
		case !refused || naming.Nonce != 0 || naming.RequestID != "waits" || !strings.Contains(naming.Why, c.says) || !strings.Contains(naming.Why, h.String()):
			t.Errorf("%s: got %+v, %v; want it refused with %q", name, out.Named, err, c.says)
		}
	}
}

// The call of an open request is compared too, whatever nonce it is named for.
func TestANameOfARequestInFlightIsHeldToItsCall(t *testing.T) {
	t.Parallel()
	to := eip155.Address([20]byte{19: 0xb0})
	for value, taken := range map[string]bool{"1": true, "2": false} {
		x := txtest.Pending(3)
		x.RequestID, x.Payload = "flying", []byte("pay")
		w := inProtect(txtest.StateOf(8, 4, x))
		_, tn, book := unproved()
		v := txtest.Watching(txtest.ViewOf(w, txtest.Block('a', 100)), txtest.Block('a', 95))
		v.FinalCount = new(uint64(4))
		book.stored = []txmanager.ForeignTransaction{foreignAt(3, txmanager.Hash{0xf0}, to, value)}
		book.known, book.open = map[string]txmanager.NamedRequest{"flying": {TxID: x.ID, State: x.State}}, nil
		tn.Chain, tn.State = &txtest.Panel{ChainConnector: txtest.Reader(nil), Views: []txmanager.ChainObservation{v}, Needed: 1}, w
		_, out, err := tn.planResync(t.Context(), &txmanager.ReleaseRequest{Mode: txmanager.Resync, Count: 4, Requests: map[uint64]string{3: "flying"}}, txmanager.LostNonces{})
		if _, refused := errors.AsType[txmanager.NamingError](err); refused == taken || taken && err != nil {
			t.Errorf("a transaction of %s wei: got %+v, %v; want it taken %v", value, out.Named, err, taken)
		}
	}
}

package protect

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

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
		w := txtest.StateOf(8, 4, x)
		w.Incident, w.Protected = 1, true
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

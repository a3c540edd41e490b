package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
	"github.com/fencepost/fencepost/shared/txmanager/session/sessiontest"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// A forged intent ends without a nonce. One whose key is missing here waits alone. If the key's
// service gives no answer, all later intents wait too.
func TestWhatIsNotProvedGetsNoNonce(t *testing.T) {
	t.Parallel()
	forged, noKey, unknown, unchecked := txtest.Queued(1, "pay"), txtest.Queued(2, "pay"), txtest.Queued(4, "pay"), txtest.Queued(4, "pay")
	forged.Authenticity = txmanager.Authenticity{Forged: forgedMAC}
	noKey.Authenticity = txmanager.Authenticity{Unknown: unknownKey, NoKey: true}
	unknown.Authenticity = txmanager.Authenticity{Unknown: rules.Unverified}
	unchecked.Authenticity = txmanager.Authenticity{Unknown: rules.Unverified, Unchecked: true}
	for name, c := range map[string]struct {
		queue []txmanager.Tx
		want  string
	}{
		"forged and without a key": {[]txmanager.Tx{forged, noKey, txtest.Queued(3, "pay")}, "q-3=5, q-1 rejected, q-2 waits"},
		"unknown":                  {[]txmanager.Tx{txtest.Queued(3, "pay"), unknown, txtest.Queued(5, "pay")}, "q-3=5, q-4 waits"},
		"not checked yet":          {[]txmanager.Tx{txtest.Queued(3, "pay"), unchecked, txtest.Queued(5, "pay")}, "q-3=5"},
	} {
		w := txtest.Queue(txtest.StateOf(3, 5), c.queue...)
		p := rulesOf(3).PlanAllocations(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), nil)
		check.Equal(t, name, outline(p), c.want)
	}
	w := txtest.Queue(txtest.StateOf(3, 5), noKey, txtest.Queued(3, "pay"))
	if after := rules.AfterCommit(w, txmanager.Commit{}); len(after.Queue) != 1 || after.Queue[0].ID != "q-3" {
		t.Errorf("queue after a write: got %v, want what has no key passed over", after.Queue)
	}
}

// A placeholder consumes the nonce of a forged transaction. No payload is signed unless it is
// proved authentic.
func TestNothingIsSignedForWhatIsNotProved(t *testing.T) {
	t.Parallel()
	chain := txtest.Reader(nil)
	forged := txtest.Bare(4)
	forged.Payload, forged.Authenticity = []byte("pay"), txmanager.Authenticity{Forged: forgedMAC}
	handled := txtest.OfHandler(4)
	handled.Authenticity = forged.Authenticity
	for _, x := range []txmanager.Tx{forged, handled} {
		w := txtest.StateOf(4, 5, x)
		jobs, moves := rulesOf(3).PlanSignatures(w, chain, txtest.ViewOf(w, txtest.Block('a', 100)), rules.HandlerResult{})
		if len(jobs) != 0 || len(moves) != 1 || moves[0].To.RequestedAction != txmanager.ActionPlaceholder || moves[0].Decision == nil || moves[0].Decision.By != rules.DecidedByMAC {
			t.Errorf("forged, with handler %q: got %v, %+v; want a placeholder ordered", x.Handler, jobs, moves)
		}
	}
	for _, a := range []txmanager.Authenticity{{Forged: forgedMAC}, {Unknown: rules.Unverified}, {Unknown: rules.Unverified, Unchecked: true}} {
		x := txtest.Bare(4)
		x.Payload, x.Authenticity = []byte("pay"), a
		if _, why := rules.FirstVersion(x, chain); why.Reason == "" || why.Cause == "" {
			t.Errorf("%+v: it is signed, want a reason why not", a)
		}
	}
	for _, list := range [][]txmanager.Tx{rules.WithoutChecks(txtest.StateOf(4, 5, txtest.Bare(4))).Open, rules.WithoutChecks(txtest.Queue(txtest.StateOf(4, 5), txtest.Queued(1, "pay"))).Queue} {
		check.Equal(t, list[0].ID+", as loaded: may be signed", list[0].UnprovedReason() == "", false)
	}
}

// verifier always gives the same answer.
type verifier struct{ err error }

func (v verifier) Verify(context.Context, txmanager.IntentTerms, txmanager.MAC) error { return v.err }

// The fingerprint is computed again from the stored payload. Only an intent stored by a version
// without MACs may lack one.
func TestCheckOfAnIntent(t *testing.T) {
	t.Parallel()
	right := func() txmanager.Tx {
		x := txtest.Queued(1, "pay")
		print := txmanager.Fingerprint("", x.Payload)
		x.Fingerprint, x.MAC = print[:], txmanager.MAC{Key: "k", Sum: make([]byte, 32)}
		return x
	}
	for name, c := range map[string]struct {
		change  func(*txmanager.Tx)
		verify  txmanager.IntentVerifier
		forged  string
		unknown string
		noKey   bool
	}{
		"right":                    {verify: verifier{}},
		"another payload":          {change: func(x *txmanager.Tx) { x.Payload = []byte("steal") }, verify: verifier{}, forged: forgedFingerprint},
		"a longer validUntil":      {change: func(x *txmanager.Tx) { x.ValidUntil = txtest.In(time.Hour) }, verify: verifier{}, forged: forgedFingerprint},
		"for a handler":            {change: func(x *txmanager.Tx) { x.Handler = "wage" }, verify: verifier{}, forged: forgedFingerprint},
		"a wrong MAC":              {verify: verifier{txmanager.ErrForged}, forged: forgedMAC},
		"no MAC":                   {change: func(x *txmanager.Tx) { x.MAC = txmanager.MAC{} }, verify: verifier{}, forged: forgedMAC},
		"an old release's":         {change: func(x *txmanager.Tx) { x.MAC, x.NeedsNoMAC = txmanager.MAC{}, true }, verify: verifier{}},
		"an old one's, changed":    {change: func(x *txmanager.Tx) { x.MAC, x.NeedsNoMAC, x.Payload = txmanager.MAC{}, true, []byte("steal") }, verify: verifier{}, forged: forgedFingerprint},
		"a key that is not here":   {verify: verifier{txmanager.ErrMACKey}, unknown: unknownKey, noKey: true},
		"no key at all":            {unknown: unknownKey, noKey: true},
		"a service that is silent": {verify: verifier{errors.New("unavailable")}, unknown: rules.Unverified},
	} {
		x := right()
		if c.change != nil {
			c.change(&x)
		}
		w := &Worker{Service: sessiontest.Service(rulesOf(3), nil), Intents: c.verify}
		within := invocationBy(w, session.Session{State: txtest.StateOf(3, 5)})
		got := within.checkAuthenticity(t.Context(), x)
		check.Equal(t, name, got, txmanager.Authenticity{Forged: c.forged, Unknown: c.unknown, NoKey: c.noKey})
	}
}

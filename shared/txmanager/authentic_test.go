package txmanager

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"
)

// A forged intent ends without a nonce. One whose key is missing here waits alone. If the key's
// service gives no answer, all later intents wait too.
func TestWhatIsNotProvedGetsNoNonce(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		forged, noKey, unknown, unchecked := queued(1, "pay"), queued(2, "pay"), queued(4, "pay"), queued(4, "pay")
		forged.Authenticity = Authenticity{Forged: forgedMAC}
		noKey.Authenticity = Authenticity{Unknown: unknownKey, NoKey: true}
		unknown.Authenticity = Authenticity{Unknown: unverified}
		unchecked.Authenticity = Authenticity{Unknown: unverified, Unchecked: true}
		for name, c := range map[string]struct {
			queue []Tx
			want  string
		}{
			"forged and without a key": {[]Tx{forged, noKey, queued(3, "pay")}, "q-3=5, q-1 rejected, q-2 waits"},
			"unknown":                  {[]Tx{queued(3, "pay"), unknown, queued(5, "pay")}, "q-3=5, q-4 waits"},
			"not checked yet":          {[]Tx{queued(3, "pay"), unchecked, queued(5, "pay")}, "q-3=5"},
		} {
			w := queue(stateOf(3, 5), c.queue...)
			p := rulesOf(3).planAllocations(w, reader(nil), viewOf(w, block('a', 100)), nil)
			if got := outline(p); got != c.want {
				t.Errorf("%s: got %q, want %q", name, got, c.want)
			}
		}
		w := queue(stateOf(3, 5), noKey, queued(3, "pay"))
		if after := w.afterCommit(Commit{}); len(after.Queue) != 1 || after.Queue[0].ID != "q-3" {
			t.Errorf("queue after a write: got %v, want what has no key passed over", after.Queue)
		}
	})
}

// A placeholder consumes the nonce of a forged transaction. No payload is signed unless it is
// proved authentic.
func TestNothingIsSignedForWhatIsNotProved(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		chain := reader(nil)
		forged := bare(4)
		forged.Payload, forged.Authenticity = []byte("pay"), Authenticity{Forged: forgedMAC}
		handled := ofHandler(4)
		handled.Authenticity = forged.Authenticity
		for _, x := range []Tx{forged, handled} {
			w := stateOf(4, 5, x)
			jobs, moves := rulesOf(3).planSignatures(w, chain, viewOf(w, block('a', 100)), nil)
			if len(jobs) != 0 || len(moves) != 1 || moves[0].To.RequestedAction != ActionPlaceholder || moves[0].Decision == nil || moves[0].Decision.By != decidedByMAC {
				t.Errorf("forged, with handler %q: got %v, %+v; want a placeholder ordered", x.Handler, jobs, moves)
			}
		}
		for _, a := range []Authenticity{{Forged: forgedMAC}, {Unknown: unverified}, {Unknown: unverified, Unchecked: true}} {
			x := bare(4)
			x.Payload, x.Authenticity = []byte("pay"), a
			if _, reason := firstVersion(x, chain); reason == "" {
				t.Errorf("%+v: it is signed, want a reason why not", a)
			}
		}
		for _, list := range [][]Tx{stateOf(4, 5, bare(4)).withoutChecks().Open, queue(stateOf(4, 5), queued(1, "pay")).withoutChecks().Queue} {
			if list[0].unprovedReason() == "" {
				t.Errorf("as loaded: %s may be signed, want that nothing is before it is checked", list[0].ID)
			}
		}
	})
}

// verifier always gives the same answer.
type verifier struct{ err error }

func (v verifier) Verify(context.Context, IntentTerms, MAC) error { return v.err }

// The fingerprint is computed again from the stored payload. Only an intent stored by a version
// without MACs may lack one.
func TestCheckOfAnIntent(t *testing.T) {
	t.Parallel()
	right := func() Tx {
		x := queued(1, "pay")
		print := Fingerprint("", x.Payload)
		x.Fingerprint, x.MAC = print[:], MAC{Key: "k", Sum: make([]byte, 32)}
		return x
	}
	for name, c := range map[string]struct {
		change  func(*Tx)
		verify  IntentVerifier
		forged  string
		unknown string
		noKey   bool
	}{
		"right":                    {verify: verifier{}},
		"another payload":          {change: func(x *Tx) { x.Payload = []byte("steal") }, verify: verifier{}, forged: forgedFingerprint},
		"a longer validUntil":      {change: func(x *Tx) { x.ValidUntil = in(time.Hour) }, verify: verifier{}, forged: forgedFingerprint},
		"for a handler":            {change: func(x *Tx) { x.Handler = "wage" }, verify: verifier{}, forged: forgedFingerprint},
		"a wrong MAC":              {verify: verifier{ErrForged}, forged: forgedMAC},
		"no MAC":                   {change: func(x *Tx) { x.MAC = MAC{} }, verify: verifier{}, forged: forgedMAC},
		"an old release's":         {change: func(x *Tx) { x.MAC, x.NeedsNoMAC = MAC{}, true }, verify: verifier{}},
		"an old one's, changed":    {change: func(x *Tx) { x.MAC, x.NeedsNoMAC, x.Payload = MAC{}, true, []byte("steal") }, verify: verifier{}, forged: forgedFingerprint},
		"a key that is not here":   {verify: verifier{ErrMACKey}, unknown: unknownKey, noKey: true},
		"no key at all":            {unknown: unknownKey, noKey: true},
		"a service that is silent": {verify: verifier{errors.New("unavailable")}, unknown: unverified},
	} {
		x := right()
		if c.change != nil {
			c.change(&x)
		}
		w := &Worker{Service: Service{Log: slog.New(slog.DiscardHandler), Rules: rulesOf(3), Timing: testTiming}, Intents: c.verify}
		within := invocationBy(w, leaseSession{state: stateOf(3, 5)})
		got := within.checkAuthenticity(t.Context(), x)
		if want := (Authenticity{Forged: c.forged, Unknown: c.unknown, NoKey: c.noKey}); got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

package txmanager

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/fencepost/fencepost/shared/lease"
)

// signsHere signs in this process.
type signsHere struct{}

func (signsHere) Sign(_ context.Context, _ Submitter, tx Unsigned) (Signed, error) {
	return Signed{Hash: versionHash(tx.Nonce, 1), Raw: []byte{1}}, nil
}
func (signsHere) InProcess(Submitter) bool { return true }

// H26: no version must be signed and sent above a nonce whose handler has not answered yet.
func TestH26NothingIsSentAheadOfAHandler(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		made := queued(1, "pay")
		made.Handler = "pay-out"
		w := queue(stateOf(2, 5), made, queued(2, "pay"))
		worker := &Worker{Service: Service{Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Timing: testTiming}, Signer: signsHere{}, Handlers: map[string]Handler{"pay-out": nil}}
		tn := queried(invocationBy(worker, leaseSession{chain: reader(nil), kind: KindAdvance, state: w}))
		p := tn.planUnsigned(t.Context(), viewOf(w, block('a', 100)))
		if ids := (Commit{Allocations: p.allocations}).signedIDs(); len(ids) != 0 || len(p.allocations) != 1 {
			t.Errorf("allocated %s: got %v signed and sent in the same round, want nonce 5 alone, without bytes", outline(p), ids)
		}
	})
}

// H26: no version must be signed and sent above a nonce that cannot be signed or that no node
// holds.
func TestH26NothingIsSignedAheadOfWhatCannotBeSent(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		unreadable, waits := bare(5), bare(5)
		unreadable.Payload = []byte("junk")
		waits.Handler = "of another version"
		refused := submitted(5) // the node had no room; its next attempt is to come
		for name, low := range map[string]Tx{"a payload that cannot be read": unreadable, "a handler that waits": waits, "refused by the node": refused, "STUCK": stuck(5)} {
			w := stateOf(2, 7, low, bare(6))
			jobs, _ := rulesOf(3).planSignatures(w, reader(nil), viewOf(w, block('a', 100)), map[string]handlerResult{"tx-5": {wait: "no handler in this process"}})
			for _, job := range jobs {
				t.Errorf("%s: got nonce %d signed, to be sent ahead of nonce 5; want it to wait", name, *job.tx.Nonce)
			}
		}
	})
}

// refusingSigner signs nothing: its error has the nonce that it was asked for, and ends the session.
type refusingSigner struct{ noSigner }

func (refusingSigner) Sign(_ context.Context, _ Submitter, tx Unsigned) (Signed, error) {
	return Signed{}, fmt.Errorf("asked to sign for nonce %d: %w", tx.Nonce, lease.ErrFenced)
}

// H26: the next iteration carries out the decisions of a StuckResolution. Until then nothing above
// that transaction is signed.
func TestH26NothingIsSignedAheadOfWhatCodeDecided(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		regretted := pending(6)
		regretted.RequestedAction = ActionCancel
		for name, above := range map[string]Tx{"a cancel": regretted, "what was never signed": bare(6)} {
			for _, order := range []Action{ActionWait, ActionRebroadcast, ActionReplace, ActionPlaceholder} {
				tn := invocationBy(&Worker{Service: Service{Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Timing: testTiming}, Signer: refusingSigner{}, Resolution: decider{order, "lost"}}, leaseSession{chain: reader(nil), kind: KindAdvance, state: stateOf(2, 7, stuck(5), above)})
				v := viewOf(tn.state, block('a', 100))
				v.SelfTransfer = Estimate{Outcome: Done, Gas: 21_000}
				j := evaluation{after: tn.state.Open}
				tn.resolveStuck(t.Context(), &j)
				tn.state.Open = j.after
				if _, err := tn.signDueVersions(t.Context(), v); err != nil {
					t.Errorf("%s above nonce 5, STUCK, about which code says %s: got %v, want nobody asked", name, order, err)
				}
			}
		}
		free := stateOf(2, 7, pending(5), bare(6))
		tn := invocationBy(&Worker{Service: Service{Rules: rulesOf(3), Timing: testTiming}, Signer: refusingSigner{}}, leaseSession{chain: reader(nil), kind: KindAdvance, state: free})
		if _, err := tn.signDueVersions(t.Context(), viewOf(free, block('a', 100))); err == nil {
			t.Error("above what a node holds: got nobody asked, want nonce 6 signed")
		}
	})
}

package worker

import (
	"context"
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session/sessiontest"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// H26: no version must be signed and sent above a nonce whose handler has not answered yet.
func TestH26NothingIsSentAheadOfAHandler(t *testing.T) {
	txtest.Frozen(t, func(t *testing.T) {
		made := txtest.Queued(1, "pay")
		made.Handler = "pay-out"
		w := txtest.Queue(txtest.StateOf(2, 5), made, txtest.Queued(2, "pay"))
		tn := advancing(&Worker{Service: sessiontest.Service(rulesOf(3), nil), Signer: numberSigner{inProcess: true}, Handlers: map[string]txmanager.Handler{"pay-out": nil}}, w)
		p := tn.planUnsigned(t.Context(), txtest.ViewOf(w, txtest.Block('a', 100)), true)
		if ids := (txmanager.Commit{Allocations: p.Allocations}).SignedIDs(); len(ids) != 0 || len(p.Allocations) != 1 {
			t.Errorf("allocated %s: got %v signed and sent in the same round, want nonce 5 alone, without bytes", outline(p), ids)
		}
	})
}

// refusingSigner signs nothing: its error has the nonce that it was asked for, and ends the session.
type refusingSigner struct{ noSigner }

func (refusingSigner) Sign(_ context.Context, _ txmanager.Submitter, tx txmanager.Unsigned) (txmanager.Signed, error) {
	return txmanager.Signed{}, fmt.Errorf("asked to sign for nonce %d: %w", tx.Nonce, lease.ErrFenced)
}

// H26: the next iteration carries out the decisions of a StuckResolution. Until then nothing above
// that transaction is signed.
func TestH26NothingIsSignedAheadOfWhatCodeDecided(t *testing.T) {
	txtest.Frozen(t, func(t *testing.T) {
		regretted := txtest.Pending(6)
		regretted.RequestedAction = txmanager.ActionCancel
		for name, above := range map[string]txmanager.Tx{"a cancel": regretted, "what was never signed": txtest.Bare(6)} {
			for _, order := range []txmanager.Action{txmanager.ActionWait, txmanager.ActionRebroadcast, txmanager.ActionReplace, txmanager.ActionPlaceholder} {
				tn := advancing(&Worker{Service: sessiontest.Service(rulesOf(3), nil), Signer: refusingSigner{}, Resolution: decider{order, "lost"}}, txtest.StateOf(2, 7, txtest.Stuck(5), above))
				v := txtest.ViewOf(tn.State, txtest.Block('a', 100))
				v.SelfTransfer = txmanager.Estimate{Outcome: txmanager.Done, Gas: 21_000}
				j := rules.Evaluation{After: tn.State.Open}
				decided := tn.resolveStuck(t.Context(), &j)
				tn.State.Open = j.After
				if _, _, err := tn.signDueVersions(t.Context(), v, decided); err != nil {
					t.Errorf("%s above nonce 5, STUCK, about which code says %s: got %v, want nobody asked", name, order, err)
				}
			}
		}
		free := txtest.StateOf(2, 7, txtest.Pending(5), txtest.Bare(6))
		tn := advancing(&Worker{Service: sessiontest.Service(rulesOf(3), nil), Signer: refusingSigner{}}, free)
		if _, _, err := tn.signDueVersions(t.Context(), txtest.ViewOf(free, txtest.Block('a', 100)), nil); err == nil {
			t.Error("above what a node holds: got nobody asked, want nonce 6 signed")
		}
	})
}

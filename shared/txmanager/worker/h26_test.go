package worker

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session/sessiontest"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// H26: no version must be signed and sent above a nonce whose handler has not answered yet.
func TestH26NothingIsSentAheadOfAHandler(t *testing.T) {
	t.Parallel()
	made := txtest.Queued(1, "pay")
	made.Handler = "pay-out"
	w := txtest.Queue(txtest.StateOf(2, 5), made, txtest.Queued(2, "pay"))
	tn := advancing(&Worker{Service: sessiontest.Service(rulesOf(3), nil), SignerNamed: testSigner{true, signsNonce}.named, Handlers: map[string]txmanager.Handler{"pay-out": nil}}, w)
	p := tn.planUnsigned(t.Context(), txtest.ViewOf(w, txtest.Block('a', 100)), true)
	if ids := (txmanager.Commit{Allocations: p.Allocations}).SignedIDs(); len(ids) != 0 || len(p.Allocations) != 1 {
		t.Errorf("allocated %s: got %v signed and sent in the same round, want nonce 5 alone, without bytes", outline(p), ids)
	}
}

// refusing signs nothing: its error has the nonce that it was asked for, and ends the session.
var refusing = testSigner{true, func(nonce uint64) (txmanager.Signed, error) {
	return txmanager.Signed{}, fmt.Errorf("asked to sign for nonce %d: %w", nonce, lease.ErrFenced)
}}

// H26: the next iteration carries out the decisions of a StuckResolution. Until then nothing above
// that transaction is signed.
func TestH26NothingIsSignedAheadOfWhatCodeDecided(t *testing.T) {
	t.Parallel()
	regretted := txtest.Pending(6)
	regretted.RequestedAction = txmanager.ActionCancel
	for name, above := range map[string]txmanager.Tx{"a cancel": regretted, "what was never signed": txtest.Bare(6)} {
		for _, order := range []txmanager.Action{txmanager.ActionWait, txmanager.ActionRebroadcast, txmanager.ActionReplace, txmanager.ActionPlaceholder} {
			tn := advancing(&Worker{Service: sessiontest.Service(rulesOf(3), nil), SignerNamed: refusing.named, Resolution: decider{order, "lost"}}, txtest.StateOf(2, 7, txtest.Stuck(5), above))
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
	tn := advancing(&Worker{Service: sessiontest.Service(rulesOf(3), nil), SignerNamed: refusing.named}, free)
	if _, _, err := tn.signDueVersions(t.Context(), txtest.ViewOf(free, txtest.Block('a', 100)), nil); err == nil {
		t.Error("above what a node holds: got nobody asked, want nonce 6 signed")
	}
}

// H26: no nonce may be allocated above one that is STUCK, or that no node has
// acknowledged.
func TestH26NothingIsAllocatedAboveWhatIsStuck(t *testing.T) {
	t.Parallel()
	allocated, refused := 0, 0
	worker := &Worker{Service: sessiontest.Service(rulesOf(3), nil), SignerNamed: testSigner{}.named} // it has no bytes before a nonce is bound
	rapid.Check(t, func(t *rapid.T) {
		w := txtest.DrawState(t, 5)
		q, _ := worker.Rules.NextQuery(w, txmanager.KindAdvance, txtest.Reader(nil))
		v := txtest.DrawAnswers(t, w)
		v.Account.PendingCount = rapid.Uint64Range(4, w.NextNonce).Draw(t, "pending")
		j := worker.Rules.Evaluate(w, q, v)
		w.Open = j.Open()
		v.Account.LatestCount = w.LowestOpenNonce()
		blocked := slices.ContainsFunc(w.Open, func(x txmanager.Tx) bool { return x.State != txmanager.Tracking })
		tn := advancing(worker, w)
		got := len(tn.planUnsigned(context.Background(), v, true).Allocations)
		want := min(w.RoomInWindow(), len(w.Queue))
		if blocked {
			want = 0
			refused++
		}
		allocated += got
		if got != want {
			t.Fatalf("allocated with room for %d: got %d, want %d; held: %v", w.RoomInWindow(), got, want, states(w.Open))
		}
		bareNow := slices.ContainsFunc(w.Open, func(x txmanager.Tx) bool { return x.State == txmanager.InFlight && x.IsDueBy(w.DatabaseTime()) })
		if d := worker.Rules.PlanNextWork(w); blocked && d.AdvanceNow && !bareNow {
			t.Fatalf("due: got an advance now, want none: the queue waits behind %v", states(w.Open))
		}
	})
	if allocated == 0 || refused == 0 {
		t.Errorf("got %d allocated and %d books that refuse, want some of each", allocated, refused)
	}
}

// states lists the states of open transactions, by nonce.
func states(held []txmanager.Tx) (list []txmanager.State) {
	for _, t := range held {
		list = append(list, t.State)
	}
	return list
}

package worker

import (
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/session/sessiontest"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// signsElsewhere has no bytes before a nonce is bound.
type signsElsewhere struct{ noSigner }

func (signsElsewhere) InProcess(txmanager.Submitter) bool { return false }

// H26: no nonce may be allocated above one that is STUCK, or that no node has
// acknowledged.
func TestH26NothingIsAllocatedAboveWhatIsStuck(t *testing.T) {
	t.Parallel()
	allocated, refused := 0, 0
	worker := &Worker{Service: sessiontest.Service(rulesOf(3), nil), Signer: signsElsewhere{}}
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

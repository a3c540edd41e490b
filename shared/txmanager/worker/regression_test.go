package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/session"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// noSigner never signs.
type noSigner struct{}

func (noSigner) Sign(context.Context, txmanager.Submitter, txmanager.Unsigned) (txmanager.Signed, error) {
	return txmanager.Signed{}, errors.New("the key is away")
}

func (noSigner) InProcess(txmanager.Submitter) bool { return true }

// If a signer fails, the transaction that was to be signed waits, and no row changes twice in one
// commit.
func TestFailedSigningMakesTheRightTransactionWait(t *testing.T) {
	t.Parallel()
	txtest.Frozen(t, func(t *testing.T) {
		w := txtest.Queue(txtest.StateOf(2, 5), txtest.Queued(1, "junk"), txtest.Queued(2, "pay"))
		worker := &Worker{Service: session.Service{Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Timing: testTiming}, Signer: noSigner{}}
		tn := invocationBy(worker, session.Session{Chain: txtest.Reader(nil), Kind: txmanager.KindAdvance, State: w})
		p := tn.planUnsigned(t.Context(), txtest.ViewOf(w, txtest.Block('a', 100)), true)
		var moved []string
		for _, m := range p.Transitions {
			moved = append(moved, m.To.ID)
		}
		if want := []string{"q-1", "q-2"}; !slices.Equal(moved, want) || len(p.Allocations) != 0 {
			t.Errorf("moved: got %v, want %v: q-1 refused, q-2 waiting", moved, want)
		}
	})
}

package protect

import (
	"context"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// shows gives the same answer to every query.
type shows struct {
	txtest.Payloads
	view txmanager.ChainObservation
}

func (s shows) Query(context.Context, txmanager.ChainQuery) (txmanager.ChainObservation, error) {
	return s.view, nil
}

// Two blocks of one height may be remembered after a reorg between two queries of a release. That
// must not stop later releases.
func TestTwoFinalBlocksOfOneHeightAreOneHeightToCompare(t *testing.T) {
	t.Parallel()
	txtest.Frozen(t, func(t *testing.T) {
		w := txtest.StateOf(1, 6)
		w.Protected, w.FinalBlocks = true, []txmanager.Header{txtest.Block('a', 90), txtest.Block('a', 95), txtest.Block('b', 95)}
		if got, want := rules.WatchedHeights(w), []uint64{90, 95}; !slices.Equal(got, want) {
			t.Errorf("heights to compare: got %v, want %v", got, want)
		}
		for name, c := range map[string]struct {
			shown []txmanager.Header
			ok    bool
		}{"both heights": {[]txmanager.Header{txtest.Block('a', 90), txtest.Block('b', 95)}, true}, "one of them": {[]txmanager.Header{txtest.Block('b', 95)}, false}} {
			view := txtest.Watching(txtest.ViewOf(w, txtest.Block('b', 100)), c.shown...)
			r := rulesOf(1)
			r.WatchDepth = 10
			tn := &incident{Session: &session.Session{Service: &session.Service{Rules: r, Store: noFinals{}, Timing: testTiming}, Chain: shows{view: view}, State: w}}
			kept, missing, err := tn.recheckFinalBlocks(t.Context())
			if (err == nil) != c.ok || len(missing) != 0 {
				t.Fatalf("the node shows %s: got %v, %v; want it enough: %v", name, missing, err, c.ok)
			}
			if want := []txmanager.Header{txtest.Block('a', 90), txtest.Block('b', 95)}; c.ok && !slices.Equal(kept, want) {
				t.Errorf("kept: got %v, want %v", kept, want)
			}
		}
	})
}

// noFinals has no transaction in any queried block.
type noFinals struct{ txmanager.Store }

func (noFinals) FinalTransactions(context.Context, txmanager.Submitter, []txmanager.Hash) ([]txmanager.FinalTx, error) {
	return nil, nil
}

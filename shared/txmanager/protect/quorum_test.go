package protect

import (
	"errors"
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// A release depends on a quorum: for the count at the finalized block without a receipt below it,
// and for the final blocks that are gone.
func TestReleasesNeedAQuorum(t *testing.T) {
	t.Parallel()
	x := txtest.Pending(5)
	w := txtest.StateOf(1, 6, x)
	counts := func(n uint64) txmanager.ChainObservation {
		v := txtest.ViewOf(w, txtest.Block('a', 100))
		v.FinalCount = &n
		v.Receipts = map[txmanager.Hash]txmanager.ReceiptAnswer{x.Versions[0]: {Answer: txmanager.AnswerNotFound}}
		return v
	}
	mined := txtest.Finding(counts(6), txtest.ReceiptOf(x, txtest.Block('a', 90)))
	untold := txtest.ViewOf(w, txtest.Block('a', 100))
	for name, c := range map[string]struct {
		quorum int
		views  []txmanager.ChainObservation
		want   bool
	}{
		"three alike":                   {2, txtest.OfNodes(counts(6), counts(6), counts(6)), true},
		"two of three":                  {2, txtest.OfNodes(counts(6), counts(5), counts(6)), true},
		"alone, the rest is behind":     {2, txtest.OfNodes(counts(6), counts(5), counts(5)), false},
		"alone, the rest does not know": {2, txtest.OfNodes(counts(6), untold, untold), false},
		"ours is mined on another":      {1, txtest.OfNodes(counts(6), mined), false},
		"ours is mined on two":          {2, txtest.OfNodes(counts(6), mined, mined), false},
		"others are past it":            {2, txtest.OfNodes(counts(6), counts(7), counts(7)), false},
		"one of one that answers":       {1, txtest.OfNodes(counts(6)), true},
	} {
		p := &txtest.Panel{ChainConnector: txtest.Reader(nil), Views: c.views, Needed: c.quorum}
		tn := incidentOf(p, w, &evidenceStore{})
		_, out, err := tn.planResync(t.Context(), &txmanager.ReleaseRequest{Mode: txmanager.Resync, Count: 6, Requests: map[uint64]string{5: "r"}, Executed: map[uint64]string{5: "seen"}}, txmanager.LostNonces{})
		if got := err == nil; got != c.want || err != nil && !errors.Is(err, txmanager.ErrNoQuorum) {
			t.Errorf("%s: got %v, %v; want a resync %v", name, out, err, c.want)
		}
	}
}

// finalBlocks is a submitter with two final blocks, and the observations of three nodes. One has both blocks, one has
// another in place of the second, and one is below it.
func finalBlocks() (w txmanager.SubmitterState, both, fork, low txmanager.ChainObservation) {
	w = txtest.StateOf(1, 5)
	w.FinalBlocks = []txmanager.Header{txtest.Block('a', 90), txtest.Block('a', 95)}
	both = txtest.Watching(txtest.ViewOf(w, txtest.Block('a', 100)), w.FinalBlocks...)
	fork = txtest.Watching(txtest.ViewOf(w, txtest.Block('b', 100)), txtest.Block('a', 90), txtest.Block('b', 95))
	return w, both, fork, txtest.Watching(txtest.ViewOf(w, txtest.Block('a', 92)), txtest.Block('a', 90))
}

// Excluded nodes are queried again before an operator is refused, since they may have recovered.
// Otherwise they are not queried.
func TestReleaseQueriesExcludedNodesAgain(t *testing.T) {
	t.Parallel()
	w, stand, fell, low := finalBlocks()
	for name, c := range map[string]struct {
		views    []txmanager.ChainObservation
		away     txmanager.ChainObservation
		operator bool
		want     bool
		asked    int
	}{
		"the rest is away, and one is well again":       {txtest.OfNodes(stand), txtest.Called(stand, "away"), true, true, 1},
		"the rest is away, and one contradicts":         {txtest.OfNodes(stand), txtest.Called(fell, "away"), true, false, 1},
		"one is behind, and the one away is well again": {txtest.OfNodes(stand, low), txtest.Called(stand, "away"), true, true, 2},
		"one contradicts, and one is well again":        {txtest.OfNodes(stand, fell), txtest.Called(stand, "away"), true, true, 2},
		"enough without it":                             {txtest.OfNodes(stand, stand), txtest.Called(stand, "away"), true, true, 1},
		"nobody waits":                                  {txtest.OfNodes(stand), txtest.Called(stand, "away"), false, false, 0},
	} {
		p := &txtest.Panel{Views: c.views, Away: []txmanager.ChainObservation{c.away}, Needed: 2}
		tn := incidentOf(p, w, nil)
		tn.ForOperator = c.operator
		_, _, err := tn.recheckFinalBlocks(t.Context())
		if got := err == nil; got != c.want || err != nil && !errors.Is(err, txmanager.ErrNoQuorum) || p.Asked != c.asked {
			t.Errorf("%s: got %v by %d further nodes, want it borne out %v by %d", name, err, p.Asked, c.want, c.asked)
		}
	}
}

// A release compares the final blocks with the chain of a quorum, whether they are canonical or
// reorged out.
func TestFinalBlocksAreComparedByAQuorum(t *testing.T) {
	t.Parallel()
	w, stand, fell, low := finalBlocks()
	for name, c := range map[string]struct {
		quorum int
		views  []txmanager.ChainObservation
		want   bool
	}{
		"all alike":                 {2, txtest.OfNodes(stand, stand, stand), true},
		"two of three":              {2, txtest.OfNodes(stand, fell, stand), true},
		"alone":                     {2, txtest.OfNodes(stand, fell, fell), false},
		"alone, the rest is behind": {2, txtest.OfNodes(stand, low, low), false},
		"alone, the rest is away":   {2, txtest.OfNodes(stand), false},
		"one against one":           {1, txtest.OfNodes(stand, fell), false},
	} {
		tn := incidentOf(&txtest.Panel{Views: c.views, Needed: c.quorum}, w, nil)
		_, _, err := tn.recheckFinalBlocks(t.Context())
		if got := err == nil; got != c.want || err != nil && !errors.Is(err, txmanager.ErrNoQuorum) {
			t.Errorf("%s: got %v, want it borne out %v", name, err, c.want)
		}
	}
}

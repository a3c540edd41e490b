package rules

import (
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// The whole table of EvaluateViolation: counts against the cursor, and an earlier suspicion.
func TestProtectNeedsASecondObservationAtALaterBlock(t *testing.T) {
	t.Parallel()
	before := &txmanager.Violation{Block: 100, LatestCount: 7, PendingCount: 7}
	for _, c := range []struct {
		name            string
		latest, pending uint64 // next nonce is 6, the lowest unsettled 5
		earlier         *txmanager.Violation
		head            uint64
		protected       bool
		want            string
	}{
		{"all as it should be", 5, 6, nil, 101, false, "nothing"},
		{"everything mined", 6, 6, nil, 101, false, "nothing"},
		{"nothing in the pool", 5, 5, nil, 101, false, "nothing"},
		{"a lagging node", 2, 2, nil, 101, false, "nothing"},
		{"a node that knows nothing", 0, 0, nil, 101, false, "nothing"},
		{"latest ahead, first observation", 7, 7, nil, 101, false, "suspect"},
		{"pending ahead, first observation", 5, 7, nil, 101, false, "suspect"},
		{"latest ahead of pending", 7, 5, nil, 101, false, "suspect"},
		{"far ahead, first observation", 1 << 60, 1 << 60, nil, 101, false, "suspect"},
		{"second observation at a later block", 7, 7, before, 101, false, "protect"},
		{"second observation: pending only", 5, 7, before, 101, false, "protect"},
		{"second observation at the same block", 7, 7, before, 100, false, "nothing"},
		{"second observation at an earlier block", 7, 7, before, 99, false, "nothing"},
		{"the counts are right again", 6, 6, before, 101, false, "trust"},
		{"the counts are behind", 3, 3, before, 101, false, "trust"},
		{"in PROTECT, still ahead", 7, 7, before, 101, true, "nothing"},
		{"in PROTECT, right again: no way out without a human", 6, 6, before, 101, true, "nothing"},
	} {
		w := txmanager.SubmitterState{NextNonce: 6, SuspectedViolation: c.earlier, Protected: c.protected, Open: []txmanager.Tx{txtest.Pending(5)}}
		v := txmanager.ChainObservation{Node: "node-1", Head: txtest.Block('a', c.head), Account: txmanager.Account{LatestCount: c.latest, PendingCount: c.pending}}
		v.Known = map[txmanager.Hash]txmanager.Answer{txtest.VersionHash(5, 1): txmanager.AnswerFound}
		got := EvaluateViolation(w, v)
		check.Equal(t, c.name, changed(got), c.want)
		check.Equal(t, c.name+": final head", got.FinalHead, 0)
	}
}

// The evidence has both numbers, and the block and node that showed them.
func TestEvidenceHasBothNumbersAndThePlace(t *testing.T) {
	t.Parallel()
	v := txmanager.ChainObservation{Node: "node-1", Head: txtest.Block('a', 101), Account: txmanager.Account{LatestCount: 8, PendingCount: 9}}
	w := txmanager.SubmitterState{NextNonce: 6}
	want := txmanager.Violation{Kind: txmanager.CountAhead, ExpectedNonce: 6, LatestCount: 8, PendingCount: 9, Block: 101, BlockHash: txtest.Block('a', 101).Hash, Node: "node-1"}
	for _, earlier := range []*txmanager.Violation{nil, {Block: 100}} {
		w.SuspectedViolation = earlier
		c := EvaluateViolation(w, v)
		got := c.Suspect
		if earlier != nil {
			got = c.OpenIncident
		}
		if got == nil || got.Description == "" {
			t.Fatalf("earlier %v: got %+v, want evidence with a sentence", earlier, c)
		}
		want.Description = got.Description
		check.Equal(t, "answer", *got, want)
	}
}

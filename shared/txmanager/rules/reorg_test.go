package rules

import (
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// H12: every query compares the highest final block. Another block at its height counts only on a
// node that is past it; a missing answer does not count.
func TestH12FinalBlockIsComparedInEveryQuery(t *testing.T) {
	t.Parallel()
	final := []txmanager.Header{txtest.Block('a', 90), txtest.Block('a', 95)}
	for _, c := range []struct {
		name    string
		final   []txmanager.Header
		head    txmanager.Header
		watched []txmanager.Header
		want    finalBlockStatus
	}{
		{"nothing was final", nil, txtest.Block('a', 100), nil, finalBlockCanonical},
		{"the same block", final, txtest.Block('a', 100), []txmanager.Header{txtest.Block('a', 95)}, finalBlockCanonical},
		{"another block", final, txtest.Block('b', 100), []txmanager.Header{txtest.Block('b', 95)}, FinalBlockReorged},
		{"another block, the head itself", final, txtest.Block('b', 95), []txmanager.Header{txtest.Block('b', 95)}, FinalBlockUnknown},
		{"no such block yet", final, txtest.Block('a', 94), nil, FinalBlockUnknown},
		{"no answer", final, txtest.Block('a', 100), nil, FinalBlockUnknown},
		{"only a lower one is the same", final, txtest.Block('b', 100), []txmanager.Header{txtest.Block('a', 90), txtest.Block('b', 95)}, FinalBlockReorged},
	} {
		w := txmanager.SubmitterState{FinalBlocks: c.final}
		check.Equal(t, c.name, FinalBlockStatusIn(w, txtest.Watching(txmanager.ChainObservation{Head: c.head}, c.watched...)), c.want)
	}
}

// H12: a reorged final block, seen at two blocks, opens PROTECT, and stops allocation at the
// first.
func TestH12ReorgedFinalBlockIsSuspected(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(1, 6)
	w.FinalBlocks, w.FinalHead = []txmanager.Header{txtest.Block('a', 95)}, 95
	v := txtest.Watching(txtest.ViewOf(w, txtest.Block('b', 100)), txtest.Block('b', 95))
	first := EvaluateViolation(w, v)
	if first.Suspect == nil || first.Suspect.Kind != txmanager.FinalBlockReorged || first.Suspect.Final.Hash != txtest.Block('a', 95).Hash {
		t.Fatalf("the first look: got %+v, want a suspicion that names the block", first)
	}
	w.SuspectedViolation = first.Suspect
	check.Equal(t, "the same block again", changed(EvaluateViolation(w, v)), "nothing")
	check.Equal(t, "a later block", changed(EvaluateViolation(w, txtest.Watching(txtest.ViewOf(w, txtest.Block('b', 101)), txtest.Block('b', 95)))), "protect")
	check.Equal(t, "the block is back", changed(EvaluateViolation(w, txtest.Watching(txtest.ViewOf(w, txtest.Block('a', 101)), txtest.Block('a', 95)))), "trust")
	check.Equal(t, "a node behind the suspicion", changed(EvaluateViolation(w, txtest.ViewOf(w, txtest.Block('a', 99)))), "nothing")
}

// H12: nothing ends by an observation that does not show the last final block as canonical. Each
// remembered block was therefore compared when the next was added.
func TestH12NothingEndsUnlessTheLastFinalBlockStands(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(1, 6, txtest.Pending(5))
	w.FinalBlocks = []txmanager.Header{txtest.Block('a', 95)}
	found := txtest.Finding(txtest.ViewOf(w, txtest.Blocks('a', 100, 103)...), txtest.ReceiptOf(w.Open[0], txtest.Block('a', 100)))
	for name, c := range map[string]struct {
		watched []txmanager.Header
		want    txmanager.State
	}{
		"it stands": {[]txmanager.Header{txtest.Block('a', 95)}, txmanager.Confirmed}, "no answer": {nil, txmanager.Tracking}, "it fell": {[]txmanager.Header{txtest.Block('b', 95)}, txmanager.Tracking},
	} {
		j := rulesOf(3).Evaluate(w, txtest.Asking(w), txtest.Watching(found, c.watched...))
		check.Equal(t, name, j.After[0].State, c.want)
		check.Equal(t, name+": one final block", len(j.Finals) == 1, c.want == txmanager.Confirmed)
	}
}

// Remembered blocks are ascending, each once, no deeper than the setting.
func TestRememberedFinalBlocks(t *testing.T) {
	t.Parallel()
	r := rulesOf(1)
	r.WatchDepth = 10
	got := r.RememberFinalBlocks(txtest.Blocks('a', 80, 95), []txmanager.Header{txtest.Block('a', 97), txtest.Block('a', 97), txtest.Block('a', 95)})
	want := append(txtest.Blocks('a', 87, 95), txtest.Block('a', 97))
	txtest.Same(t, "remembered", got, want)
	r.WatchDepth = 1000
	if got := r.RememberFinalBlocks(nil, txtest.Blocks('a', 1, 300)); len(got) != MaxWatched || got[0].Number != 201 {
		t.Errorf("without a bound by depth: got %d blocks from %d, want the last %d", len(got), got[0].Number, MaxWatched)
	}
}

// A submitter without work is polled while a violation is suspected, and during PROTECT for a
// reorg: its reorged transactions must be sent again.
func TestSuspectedViolationIsPolled(t *testing.T) {
	t.Parallel()
	r := rulesOf(1)
	for name, change := range map[string]func(*txmanager.SubmitterState){
		"suspected": func(w *txmanager.SubmitterState) {
			w.SuspectedViolation = &txmanager.Violation{Kind: txmanager.CountAhead}
		},
		"reorged": func(w *txmanager.SubmitterState) {
			w.Protected, w.Evidence = true, &txmanager.Violation{Kind: txmanager.FinalBlockReorged}
		},
	} {
		w := txtest.StateOf(1, 5)
		change(&w)
		check.Equal(t, name+": due", r.PlanNextWork(w), NextWork{Kind: txmanager.KindConfirm, At: w.DatabaseTime().Add(r.BlockTime)})
		if _, ok := r.NextQuery(w, txmanager.KindConfirm, txtest.Reader(nil)); !ok {
			t.Errorf("%s: nothing to ask, want a look", name)
		}
	}
	w := txtest.StateOf(1, 5)
	w.Protected, w.Evidence = true, &txmanager.Violation{Kind: txmanager.CountAhead}
	check.Equal(t, "PROTECT for another reason, nothing in flight", r.PlanNextWork(w), NextWork{})
}

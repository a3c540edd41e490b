package quorum

import (
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// While a violation is suspected, an observation from below its block, or without the final block,
// neither clears it nor allocates. It cannot contain what caused the suspicion.
func TestNothingIsAllocatedFromBelowASuspicion(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(1, 5)
	w.FinalHead, w.FinalBlocks = 90, []txmanager.Header{txtest.Block('a', 90)}
	w.SuspectedViolation = &txmanager.Violation{Kind: txmanager.FinalBlockReorged, Block: 100, ExpectedNonce: 5}
	for name, c := range map[string]struct {
		view       txmanager.ChainObservation
		may, trust bool
	}{
		"from a block below":          {txtest.Watching(txtest.ViewOf(w, txtest.Block('a', 99)), txtest.Block('a', 90)), false, false},
		"without the final block":     {txtest.ViewOf(w, txtest.Block('a', 101)), false, false},
		"at its block":                {txtest.Watching(txtest.ViewOf(w, txtest.Block('a', 100)), txtest.Block('a', 90)), true, true},
		"past it, with a final block": {txtest.Watching(txtest.ViewOf(w, txtest.Block('a', 101)), txtest.Block('a', 90)), true, true},
	} {
		check.Equal(t, name+": allocation", rules.AllocationBlocked(w, c.view).Reason == "", c.may)
		check.Equal(t, name+": trust", rules.EvaluateViolation(w, c.view).ClearSuspected, c.trust)
		p := &txtest.Panel{Views: txtest.OfNodes(c.view, c.view, c.view), Needed: 2}
		if v := looks(t, p, w, txtest.Asking(w)); (rules.AllocationBlocked(w, v).Reason == "") != c.may || rules.EvaluateViolation(w, v).ClearSuspected != c.trust {
			t.Errorf("%s, three nodes: got %q and trust %v, want allocation %v and trust %v", name, rules.AllocationBlocked(w, v).Reason, rules.EvaluateViolation(w, v).ClearSuspected, c.may, c.trust)
		}
	}
}

// Nodes that lag by some blocks only delay the transactions in the blocks that they lack. Under
// load there are always such young blocks.
func TestLaggingNodesDelayOnlyTheYoungestBlocks(t *testing.T) {
	t.Parallel()
	chain := txtest.Blocks('a', 100, 107)
	var all []txmanager.Tx
	var receipts []txmanager.Receipt
	for i := range uint64(5) { // in blocks 100 to 104, all final by three blocks on top
		x := txtest.Included(i, chain[i])
		all, receipts = append(all, x), append(receipts, txtest.ReceiptOf(x, chain[i]))
	}
	w := txtest.StateOf(9, 5, all...)
	final := txtest.Finding(txtest.ViewOf(w, chain...), receipts...)
	upTo := func(name byte, n int) txmanager.ChainObservation {
		return txtest.Finding(txtest.Watching(txtest.ViewOf(w, txtest.Block(name, 99+uint64(n))), chain[:n]...), receipts[:n]...)
	}
	forked := txtest.Finding(txtest.Watching(txtest.ViewOf(w, txtest.Block('b', 107)), append(txtest.Blocks('a', 100, 101), txtest.Blocks('b', 102, 107)...)...), receipts[:2]...)
	for name, c := range map[string]struct {
		quorum int
		views  []txmanager.ChainObservation
		want   int
	}{
		"both have three":            {2, txtest.OfNodes(final, upTo('a', 3), upTo('a', 3)), 3},
		"one has three":              {2, txtest.OfNodes(final, upTo('a', 3), upTo('a', 1)), 3},
		"none has any":               {2, txtest.OfNodes(final, upTo('a', 0), upTo('a', 0)), 0},
		"all have all":               {2, txtest.OfNodes(final, upTo('a', 5), upTo('a', 5)), 5},
		"all must, one forks at 102": {3, txtest.OfNodes(final, forked, upTo('a', 5)), 2},
	} {
		p := &txtest.Panel{Views: c.views, Needed: c.quorum}
		v, j := evaluates(t, rulesOf(3), p, w)
		if got := len(j.Finals); got != c.want || v.Node != "n0" {
			t.Errorf("%s: got %d ended by %s, want %d by n0; doubts %+v", name, got, v.Node, c.want, v.Disputes)
		}
	}
}

// Of two nodes at the same height with different heads one is on a fork. A quorum of one node is
// then not enough, even if the other node is not past the block.
func TestEqualHeightsOnTwoForks(t *testing.T) {
	t.Parallel()
	x := txtest.Included(5, txtest.Block('a', 100))
	w := txtest.StateOf(1, 6, x)
	mine, other := txtest.Finding(txtest.ViewOf(w, txtest.Block('a', 100)), txtest.ReceiptOf(x, txtest.Block('a', 100))), txtest.Watching(txtest.ViewOf(w, txtest.Block('b', 100)), txtest.Block('b', 100))
	for name, c := range map[string]struct {
		views []txmanager.ChainObservation
		ends  bool
	}{
		"another head": {txtest.OfNodes(mine, other), false},
		"the same":     {txtest.OfNodes(mine, txtest.Watching(mine, txtest.Block('a', 100))), true},
	} {
		p := &txtest.Panel{Views: c.views, Needed: 1}
		_, j := evaluates(t, rulesOf(0), p, w)
		check.Equal(t, name+": something ended", len(j.Finals) > 0, c.ends)
	}
}

// A node that calls its head finalized ends nothing alone: the other nodes' tags count too.
func TestTagsNeedAQuorum(t *testing.T) {
	t.Parallel()
	chain := txtest.Blocks('a', 100, 103)
	x := txtest.Included(5, chain[0])
	w := txtest.StateOf(1, 6, x)
	r := rulesOf(0)
	r.By = txmanager.ByFinalized
	tagged := func(at *txmanager.Header) txmanager.ChainObservation {
		v := txtest.Watching(txtest.Finding(txtest.ViewOf(w, chain...), txtest.ReceiptOf(x, chain[0])), chain...)
		v.Tagged = at
		return v
	}
	head, before := tagged(&chain[3]), tagged(new(txtest.Block('a', 90)))
	for name, c := range map[string]struct {
		quorum int
		views  []txmanager.ChainObservation
		ends   bool
	}{
		"alone with the tag":      {2, txtest.OfNodes(head, before, before), false},
		"others have no such":     {2, txtest.OfNodes(head, tagged(nil), tagged(nil)), false},
		"another has it so far":   {2, txtest.OfNodes(head, before, tagged(&chain[0])), true},
		"the other is not so far": {1, txtest.OfNodes(head, before), true}, // one node's claim is enough
	} {
		p := &txtest.Panel{Views: c.views, Needed: c.quorum}
		_, j := evaluates(t, r, p, w)
		check.Equal(t, name+": something ended", len(j.Finals) > 0, c.ends)
		for _, asked := range p.Saw {
			check.Equal(t, name+": tag asked for", asked.Finality, "finalized")
		}
	}
}

// The success of a call is not one node's claim either, since a payout may be returned for it. A
// node without the receipt abstains.
func TestSuccessIsNotOneNodesWord(t *testing.T) {
	t.Parallel()
	x := txtest.Included(5, txtest.Block('a', 90))
	w := txtest.StateOf(1, 6, x)
	says := func(succeeded bool) txmanager.ChainObservation {
		rec := txtest.ReceiptOf(x, txtest.Block('a', 90))
		rec.Succeeded = succeeded
		return txtest.Finding(txtest.Watching(txtest.ViewOf(w, txtest.Blocks('a', 90, 100)...), txtest.Block('a', 90)), rec)
	}
	untold := txtest.Watching(txtest.ViewOf(w, txtest.Blocks('a', 90, 100)...), txtest.Block('a', 90))
	untold.Receipts = nil
	for name, c := range map[string]struct {
		views []txmanager.ChainObservation
		want  txmanager.State
	}{
		"all alike":                      {txtest.OfNodes(says(true), says(true), says(true)), txmanager.Confirmed},
		"the first says otherwise":       {txtest.OfNodes(says(false), says(true), says(true)), txmanager.Confirmed},
		"all say that it failed":         {txtest.OfNodes(says(false), says(false), says(false)), txmanager.Failed},
		"one says otherwise, one is mum": {txtest.OfNodes(says(false), says(true), untold), txmanager.Tracking},
		"the others are mum":             {txtest.OfNodes(says(true), untold, untold), txmanager.Tracking},
	} {
		p := &txtest.Panel{Views: c.views, Needed: 2}
		_, j := evaluates(t, rulesOf(3), p, w)
		check.Equal(t, name, j.After[0].State, c.want)
		if asked := p.Saw[0].Receipts; len(asked) != 1 || asked[0] != x.Hash() {
			t.Errorf("%s: asked for the receipts %v, want that of %v", name, asked, x.Hash())
		}
	}
}

// A node with one contradicting receipt disagrees, whatever else it lacks.
func TestAMissingReceiptHidesNoContradiction(t *testing.T) {
	t.Parallel()
	h := txtest.Block('a', 90)
	mine := []txmanager.Receipt{txtest.ReceiptOf(txtest.Included(5, h), h), txtest.ReceiptOf(txtest.Included(6, h), h)}
	other := mine[1]
	other.Succeeded = !other.Succeeded
	for _, in := range [][]txmanager.Receipt{{mine[0], mine[1]}, {mine[1], mine[0]}} {
		o := txmanager.ChainObservation{Head: txtest.Block('a', 100), HashesAt: map[uint64]txmanager.Hash{90: h.Hash}, Receipts: map[txmanager.Hash]txmanager.ReceiptAnswer{other.TxHash: {Answer: txmanager.AnswerFound, Receipt: other}}}
		check.Equal(t, "vote", agreesOnFinality(rulesOf(3), h, in)(o), Disagrees)
	}
}

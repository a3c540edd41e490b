package rules

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

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

// H30: only two observations of a violation, the second at a later block, must open PROTECT, and
// they must always open it. A violation is a count above every allocated nonce, a proven loss of
// the lowest open nonce, or another block in place of a final one.
func TestH30ProtectIsAFormula(t *testing.T) {
	t.Parallel()
	var raised, suspected, trusted, quiet int
	rapid.Check(t, func(t *rapid.T) {
		w := drawAccount(t)
		violationAt, known := uint64(0), false // the block of the first observation that showed a violation
		reorg := false                         // whether that was a reorged final block
		for range rapid.IntRange(1, 6).Draw(t, "looks") {
			v := drawCounts(t, w)
			broken := brokenPremise(w, v)
			tells := !reorg || v.HashesAt[100] == txtest.Block('a', 100).Hash
			got := EvaluateViolation(w, v)
			switch want := wantChange(broken, v.Head, violationAt, known, reorg, tells); {
			case changed(got) != want:
				t.Fatalf("observation at block %d, final %d, first violation at %d (%v); counts %d and %d, next %d, lowest %d: got %s, want %s",
					v.Head.Number, w.FinalHead, violationAt, known, v.Account.LatestCount, v.Account.PendingCount, w.NextNonce, w.LowestOpenNonce(), changed(got), want)
			case want == "protect":
				raised++
				wantEvidence(t, w, v, *got.OpenIncident)
				return
			case want == "suspect":
				wantEvidence(t, w, v, *got.Suspect)
				violationAt, known, reorg = v.Head.Number, true, broken == txmanager.FinalBlockReorged
				suspected++
			case want == "trust":
				known = false
				trusted++
			default:
				quiet++
			}
			w = AfterCommit(w, txmanager.Commit{Cursor: got})
		}
	})
	if raised == 0 || suspected == 0 || trusted == 0 || quiet == 0 {
		t.Errorf("got %d raised, %d suspected, %d trusted, %d quiet looks; want some of each", raised, suspected, trusted, quiet)
	}
}

// drawAccount is a submitter with up to three open nonces from 5 on, whose last final block is
// 100.
func drawAccount(t *rapid.T) txmanager.SubmitterState {
	var txs []txmanager.Tx
	for n := range uint64(rapid.IntRange(0, 3).Draw(t, "held")) {
		tx := rapid.SampledFrom([]txmanager.Tx{txtest.Pending(5 + n), txtest.Submitted(5 + n), txtest.Stuck(5 + n), txtest.Included(5+n, txtest.Block('a', 101)), txtest.Bare(5 + n)}).Draw(t, "tx")
		if len(tx.Versions) > 0 && rapid.Bool().Draw(t, "bumped") {
			tx.Versions = append(tx.Versions, txtest.VersionHash(5+n, 2))
		}
		txs = append(txs, tx)
	}
	w := txtest.StateOf(4, 5+uint64(len(txs)), txs...)
	if rapid.Bool().Draw(t, "has finals") {
		w.FinalHead, w.FinalBlocks = 100, []txmanager.Header{txtest.Block('a', 100)}
	}
	return w
}

// drawCounts is an observation of a node that may lag, be on another chain, know some versions or
// none, and have seen foreign transactions.
func drawCounts(t *rapid.T, w txmanager.SubmitterState) txmanager.ChainObservation {
	v := txtest.ViewOf(w, txtest.Block('a', rapid.Uint64Range(98, 104).Draw(t, "head")))
	v.Account.LatestCount = rapid.Uint64Range(3, w.NextNonce+2).Draw(t, "latest")
	v.Account.PendingCount = rapid.Uint64Range(3, w.NextNonce+2).Draw(t, "pending")
	v.Known, v.HashesAt = map[txmanager.Hash]txmanager.Answer{}, map[uint64]txmanager.Hash{}
	answer := rapid.SampledFrom([]txmanager.Answer{txmanager.AnswerNotFound, txmanager.AnswerNotFound, txmanager.AnswerUnknown, txmanager.AnswerFound})
	for _, tx := range w.Open {
		for _, h := range tx.Versions {
			v.Known[h] = answer.Draw(t, "known")
			v.Receipts[h] = txmanager.ReceiptAnswer{Answer: answer.Draw(t, "receipt")}
		}
	}
	if name := rapid.SampledFrom([]byte{'a', 'a', 'b', 0}).Draw(t, "final block"); name != 0 && v.Head.Number >= 100 {
		v.HashesAt[100] = txtest.Block(name, 100).Hash
	}
	return v
}

// brokenPremise is the formula: the violation that the observation shows.
func brokenPremise(w txmanager.SubmitterState, v txmanager.ChainObservation) txmanager.ViolationKind {
	latest, pending := v.Account.LatestCount, v.Account.PendingCount
	if v.Head.Number < w.FinalHead {
		return "" // it lags: its counts are old
	}
	if hash, seen := v.HashesAt[100]; len(w.FinalBlocks) > 0 && seen && hash != w.FinalBlocks[0].Hash && v.Head.Number > 100 {
		return txmanager.FinalBlockReorged
	}
	if latest > w.NextNonce || pending > w.NextNonce {
		return txmanager.CountAhead
	}
	if len(w.Open) == 0 || latest <= *w.Open[0].Nonce || w.Open[0].Receipt != nil {
		return ""
	}
	for _, h := range w.Open[0].Versions {
		if v.Known[h] != txmanager.AnswerNotFound || v.Receipts[h].Answer == txmanager.AnswerFound {
			return ""
		}
	}
	return txmanager.NonceConsumed
}

// wantChange is the change that the observation must cause, after a first violation at violationAt.
// Foreign use and a reorged final block count as different violations. A final block is back only
// if the observation shows it.
func wantChange(broken txmanager.ViolationKind, head txmanager.Header, violationAt uint64, known, reorg, tells bool) string {
	switch {
	case broken != "" && !known:
		return "suspect"
	case broken != "" && head.Number > violationAt && reorg != (broken == txmanager.FinalBlockReorged):
		return "suspect"
	case broken != "" && head.Number > violationAt:
		return "protect"
	case broken == "" && known && head.Number >= violationAt && tells:
		return "trust"
	}
	return "nothing"
}

// wantEvidence compares the evidence with the observation.
func wantEvidence(t *rapid.T, w txmanager.SubmitterState, v txmanager.ChainObservation, got txmanager.Violation) {
	why := brokenPremise(w, v)
	expected := w.NextNonce
	if why == txmanager.NonceConsumed {
		expected = w.LowestOpenNonce()
	}
	if got.Kind != why || got.ExpectedNonce != expected || got.Block != v.Head.Number || got.BlockHash != v.Head.Hash ||
		got.LatestCount != v.Account.LatestCount || got.PendingCount != v.Account.PendingCount || got.Node != v.Node || got.Description == "" {
		t.Fatalf("evidence: got %+v, want %s, nonce %d, and the look as it was: %+v", got, why, expected, v)
	}
}

// H30: a count below the lowest open nonce, or an observation below the last final block, must
// never count as foreign use, whatever was seen before.
func TestH30LagIsNoForeignUse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawAccount(t)
		w.FinalHead, w.FinalBlocks = 100, []txmanager.Header{txtest.Block('a', 100)}
		v := drawCounts(t, w)
		if rapid.Bool().Draw(t, "old head") {
			v.Head = txtest.Block(rapid.SampledFrom([]byte{'a', 'b'}).Draw(t, "chain"), rapid.Uint64Range(0, 99).Draw(t, "head"))
			delete(v.HashesAt, 100)
		} else {
			v.Account.LatestCount = rapid.Uint64Range(0, w.LowestOpenNonce()).Draw(t, "latest")
			v.Account.PendingCount = rapid.Uint64Range(v.Account.LatestCount, w.NextNonce).Draw(t, "pending")
			v.HashesAt[100] = txtest.Block('a', 100).Hash
		}
		if rapid.Bool().Draw(t, "suspected before") {
			w.SuspectedViolation = &txmanager.Violation{Kind: txmanager.CountAhead, Block: rapid.Uint64Range(0, 104).Draw(t, "at")}
		}
		if c := EvaluateViolation(w, v); c.OpenIncident != nil || c.Suspect != nil {
			t.Fatalf("head %d, counts %d and %d: got %+v, want no suspicion and no PROTECT", v.Head.Number, v.Account.LatestCount, v.Account.PendingCount, c)
		}
		for _, x := range rulesOf(3).Evaluate(w, txtest.Asking(w), v).After {
			if x.State == txmanager.Protect {
				t.Fatalf("nonce %d: got PROTECT, want it watched on", *x.Nonce)
			}
		}
	})
}

// H30: if PROTECT opens because the lowest nonce was consumed, only that transaction must become
// PROTECT.
func TestH30OnlyWhatLostItsNonceIsInProtect(t *testing.T) {
	t.Parallel()
	lost := 0
	rapid.Check(t, func(t *rapid.T) {
		w := drawAccount(t)
		w.SuspectedViolation = &txmanager.Violation{Block: 97}
		v := drawCounts(t, w)
		if rapid.Bool().Draw(t, "all consumed") {
			v = txtest.ViewOf(w, txtest.Block('a', 104))
			v.Account.LatestCount, v.Known = w.NextNonce, map[txmanager.Hash]txmanager.Answer{}
			for h := range v.Receipts {
				v.Known[h] = txmanager.AnswerNotFound
			}
		}
		opened := EvaluateViolation(w, v).OpenIncident
		for i, x := range rulesOf(3).Evaluate(w, txtest.Asking(w), v).After {
			want := i == 0 && opened != nil && opened.Kind == txmanager.NonceConsumed && len(x.Versions) > 0
			if got := x.State == txmanager.Protect; got != want {
				t.Fatalf("nonce %d with %+v: got %s, want PROTECT %v", *x.Nonce, opened, x.State, want)
			}
			if want {
				lost++
			}
		}
	})
	if lost == 0 {
		t.Error("no nonce was ever lost, want some")
	}
}

// changed names a change, which must be the only one.
func changed(c txmanager.CursorChange) string {
	var all []string
	for name, is := range map[string]bool{"suspect": c.Suspect != nil, "protect": c.OpenIncident != nil, "trust": c.ClearSuspected, "nothing": c.Empty()} {
		if is {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " and ")
}

package txmanager

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

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
			tells := !reorg || v.HashesAt[100] == block('a', 100).Hash
			got := evaluateViolation(w, v)
			switch want := wantChange(broken, v.Head, violationAt, known, reorg, tells); {
			case changed(got) != want:
				t.Fatalf("observation at block %d, final %d, first violation at %d (%v); counts %d and %d, next %d, lowest %d: got %s, want %s",
					v.Head.Number, w.FinalHead, violationAt, known, v.Account.LatestCount, v.Account.PendingCount, w.NextNonce, w.lowestOpenNonce(), changed(got), want)
			case want == "protect":
				raised++
				wantEvidence(t, w, v, *got.OpenIncident)
				return
			case want == "suspect":
				violationAt, known, reorg = v.Head.Number, true, broken == FinalBlockReorged
				suspected++
			case want == "trust":
				known = false
				trusted++
			default:
				quiet++
			}
			w = w.afterCommit(Commit{Cursor: got})
		}
	})
	if raised == 0 || suspected == 0 || trusted == 0 || quiet == 0 {
		t.Errorf("got %d raised, %d suspected, %d trusted, %d quiet looks; want some of each", raised, suspected, trusted, quiet)
	}
}

// drawAccount is a submitter with up to three open nonces from 5 on, whose last final block is
// 100.
func drawAccount(t *rapid.T) SubmitterState {
	var txs []Tx
	for n := range uint64(rapid.IntRange(0, 3).Draw(t, "held")) {
		tx := rapid.SampledFrom([]Tx{pending(5 + n), submitted(5 + n), stuck(5 + n), included(5+n, block('a', 101)), bare(5 + n)}).Draw(t, "tx")
		if len(tx.Versions) > 0 && rapid.Bool().Draw(t, "bumped") {
			tx.Versions = append(tx.Versions, versionHash(5+n, 2))
		}
		txs = append(txs, tx)
	}
	w := stateOf(4, 5+uint64(len(txs)), txs...)
	if rapid.Bool().Draw(t, "has finals") {
		w.FinalHead, w.FinalBlocks = 100, []Header{block('a', 100)}
	}
	return w
}

// drawCounts is an observation of a node that may lag, be on another chain, know some versions or
// none, and have seen foreign transactions.
func drawCounts(t *rapid.T, w SubmitterState) ChainObservation {
	v := viewOf(w, block('a', rapid.Uint64Range(98, 104).Draw(t, "head")))
	v.Account.LatestCount = rapid.Uint64Range(3, w.NextNonce+2).Draw(t, "latest")
	v.Account.PendingCount = rapid.Uint64Range(3, w.NextNonce+2).Draw(t, "pending")
	v.Known, v.HashesAt = map[Hash]Answer{}, map[uint64]Hash{}
	answer := rapid.SampledFrom([]Answer{AnswerNotFound, AnswerNotFound, AnswerUnknown, AnswerFound})
	for _, tx := range w.Open {
		for _, h := range tx.Versions {
			v.Known[h] = answer.Draw(t, "known")
			v.Receipts[h] = ReceiptAnswer{Answer: answer.Draw(t, "receipt")}
		}
	}
	if name := rapid.SampledFrom([]byte{'a', 'a', 'b', 0}).Draw(t, "final block"); name != 0 && v.Head.Number >= 100 {
		v.HashesAt[100] = block(name, 100).Hash
	}
	return v
}

// brokenPremise is the formula: the violation that the observation shows.
func brokenPremise(w SubmitterState, v ChainObservation) ViolationKind {
	latest, pending := v.Account.LatestCount, v.Account.PendingCount
	if v.Head.Number < w.FinalHead {
		return "" // it lags: its counts are old
	}
	if hash, seen := v.HashesAt[100]; len(w.FinalBlocks) > 0 && seen && hash != w.FinalBlocks[0].Hash && v.Head.Number > 100 {
		return FinalBlockReorged
	}
	if latest > w.NextNonce || pending > w.NextNonce {
		return CountAhead
	}
	if len(w.Open) == 0 || latest <= *w.Open[0].Nonce || w.Open[0].Receipt != nil {
		return ""
	}
	for _, h := range w.Open[0].Versions {
		if v.Known[h] != AnswerNotFound || v.Receipts[h].Answer == AnswerFound {
			return ""
		}
	}
	return NonceConsumed
}

// wantChange is the change that the observation must cause, after a first violation at violationAt.
// Foreign use and a reorged final block count as different violations. A final block is back only
// if the observation shows it.
func wantChange(broken ViolationKind, head Header, violationAt uint64, known, reorg, tells bool) string {
	switch {
	case broken != "" && !known:
		return "suspect"
	case broken != "" && head.Number > violationAt && reorg != (broken == FinalBlockReorged):
		return "suspect"
	case broken != "" && head.Number > violationAt:
		return "protect"
	case broken == "" && known && head.Number >= violationAt && tells:
		return "trust"
	}
	return "nothing"
}

// wantEvidence compares the evidence with the observation.
func wantEvidence(t *rapid.T, w SubmitterState, v ChainObservation, got Violation) {
	why := brokenPremise(w, v)
	expected := w.NextNonce
	if why == NonceConsumed {
		expected = w.lowestOpenNonce()
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
		w.FinalHead, w.FinalBlocks = 100, []Header{block('a', 100)}
		v := drawCounts(t, w)
		if rapid.Bool().Draw(t, "old head") {
			v.Head = block(rapid.SampledFrom([]byte{'a', 'b'}).Draw(t, "chain"), rapid.Uint64Range(0, 99).Draw(t, "head"))
			delete(v.HashesAt, 100)
		} else {
			v.Account.LatestCount = rapid.Uint64Range(0, w.lowestOpenNonce()).Draw(t, "latest")
			v.Account.PendingCount = rapid.Uint64Range(v.Account.LatestCount, w.NextNonce).Draw(t, "pending")
			v.HashesAt[100] = block('a', 100).Hash
		}
		if rapid.Bool().Draw(t, "suspected before") {
			w.SuspectedViolation = &Violation{Kind: CountAhead, Block: rapid.Uint64Range(0, 104).Draw(t, "at")}
		}
		if c := evaluateViolation(w, v); c.OpenIncident != nil || c.Suspect != nil {
			t.Fatalf("head %d, counts %d and %d: got %+v, want no suspicion and no PROTECT", v.Head.Number, v.Account.LatestCount, v.Account.PendingCount, c)
		}
		for _, x := range rulesOf(3).evaluate(w, asking(w), v).after {
			if x.State == Protect {
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
		w.SuspectedViolation = &Violation{Block: 97}
		v := drawCounts(t, w)
		if rapid.Bool().Draw(t, "all consumed") {
			v = viewOf(w, block('a', 104))
			v.Account.LatestCount, v.Known = w.NextNonce, map[Hash]Answer{}
			for h := range v.Receipts {
				v.Known[h] = AnswerNotFound
			}
		}
		opened := evaluateViolation(w, v).OpenIncident
		for i, x := range rulesOf(3).evaluate(w, asking(w), v).after {
			want := i == 0 && opened != nil && opened.Kind == NonceConsumed && len(x.Versions) > 0
			if got := x.State == Protect; got != want {
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
func changed(c CursorChange) string {
	var all []string
	for name, is := range map[string]bool{"suspect": c.Suspect != nil, "protect": c.OpenIncident != nil, "trust": c.ClearSuspected, "nothing": c.Empty()} {
		if is {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " and ")
}

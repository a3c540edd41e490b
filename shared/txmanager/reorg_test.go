package txmanager

import (
	"context"
	"slices"
	"testing"
)

// watching is v with the hashes of these blocks at their heights.
func watching(v ChainObservation, blocks ...Header) ChainObservation {
	v.HashesAt = make(map[uint64]Hash)
	for _, b := range blocks {
		v.HashesAt[b.Number] = b.Hash
	}
	return v
}

// H12: every query compares the highest final block. Another block at its height counts only on a
// node that is past it; a missing answer does not count.
func TestH12FinalBlockIsComparedInEveryQuery(t *testing.T) {
	t.Parallel()
	final := []Header{block('a', 90), block('a', 95)}
	for _, c := range []struct {
		name    string
		final   []Header
		head    Header
		watched []Header
		want    finalBlockStatus
	}{
		{"nothing was final", nil, block('a', 100), nil, finalBlockCanonical},
		{"the same block", final, block('a', 100), []Header{block('a', 95)}, finalBlockCanonical},
		{"another block", final, block('b', 100), []Header{block('b', 95)}, finalBlockReorged},
		{"another block, the head itself", final, block('b', 95), []Header{block('b', 95)}, finalBlockUnknown},
		{"no such block yet", final, block('a', 94), nil, finalBlockUnknown},
		{"no answer", final, block('a', 100), nil, finalBlockUnknown},
		{"only a lower one is the same", final, block('b', 100), []Header{block('a', 90), block('b', 95)}, finalBlockReorged},
	} {
		w := SubmitterState{FinalBlocks: c.final}
		if got := finalBlockStatusIn(w, watching(ChainObservation{Head: c.head}, c.watched...)); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}

// H12: a reorged final block, seen at two blocks, opens PROTECT, and stops allocation at the
// first.
func TestH12ReorgedFinalBlockIsSuspected(t *testing.T) {
	t.Parallel()
	w := stateOf(1, 6)
	w.FinalBlocks, w.FinalHead = []Header{block('a', 95)}, 95
	v := watching(viewOf(w, block('b', 100)), block('b', 95))
	first := evaluateViolation(w, v)
	if first.Suspect == nil || first.Suspect.Kind != FinalBlockReorged || first.Suspect.Final.Hash != block('a', 95).Hash {
		t.Fatalf("the first look: got %+v, want a suspicion that names the block", first)
	}
	w.SuspectedViolation = first.Suspect
	if again := evaluateViolation(w, v); !again.Empty() {
		t.Errorf("the same block again: got %+v, want nothing", again)
	}
	if next := evaluateViolation(w, watching(viewOf(w, block('b', 101)), block('b', 95))); next.OpenIncident == nil {
		t.Errorf("a later block: got %+v, want PROTECT", next)
	}
	if back := evaluateViolation(w, watching(viewOf(w, block('a', 101)), block('a', 95))); !back.ClearSuspected {
		t.Errorf("the block is back: got %+v, want trust", back)
	}
	if lag := evaluateViolation(w, viewOf(w, block('a', 99))); !lag.Empty() {
		t.Errorf("a node behind the suspicion: got %+v, want no news", lag)
	}
}

// H12: nothing ends by an observation that does not show the last final block as canonical. Each
// remembered block was therefore compared when the next was added.
func TestH12NothingEndsUnlessTheLastFinalBlockStands(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := stateOf(1, 6, pending(5))
		w.FinalBlocks = []Header{block('a', 95)}
		found := finding(viewOf(w, blocks('a', 100, 103)...), receiptOf(w.Open[0], block('a', 100)))
		for name, c := range map[string]struct {
			watched []Header
			want    State
		}{
			"it stands": {[]Header{block('a', 95)}, Confirmed}, "no answer": {nil, Tracking}, "it fell": {[]Header{block('b', 95)}, Tracking},
		} {
			j := rulesOf(3).evaluate(w, asking(w), watching(found, c.watched...))
			if got := j.after[0].State; got != c.want {
				t.Errorf("%s: got %s, want %s", name, got, c.want)
			}
			if (len(j.finals) == 1) != (c.want == Confirmed) {
				t.Errorf("%s: final blocks: got %v", name, j.finals)
			}
		}
	})
}

// Remembered blocks are ascending, each once, no deeper than the setting.
func TestRememberedFinalBlocks(t *testing.T) {
	t.Parallel()
	r := rulesOf(1)
	r.WatchDepth = 10
	got := r.rememberFinalBlocks(blocks('a', 80, 95), []Header{block('a', 97), block('a', 97), block('a', 95)})
	want := append(blocks('a', 87, 95), block('a', 97))
	if d := diff(want, got); d != "" {
		t.Errorf("remembered (-want +got):\n%s", d)
	}
	r.WatchDepth = 1000
	if got := r.rememberFinalBlocks(nil, blocks('a', 1, 300)); len(got) != maxWatched || got[0].Number != 201 {
		t.Errorf("without a bound by depth: got %d blocks from %d, want the last %d", len(got), got[0].Number, maxWatched)
	}
}

// shows gives the same answer to every query.
type shows struct {
	payloads
	view ChainObservation
}

func (s shows) Query(context.Context, ChainQuery) (ChainObservation, error) { return s.view, nil }

// Two blocks of one height may be remembered after a reorg between two queries of a release. That
// must not stop later releases.
func TestTwoFinalBlocksOfOneHeightAreOneHeightToCompare(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := stateOf(1, 6)
		w.Protected, w.FinalBlocks = true, []Header{block('a', 90), block('a', 95), block('b', 95)}
		if got, want := w.watchedHeights(), []uint64{90, 95}; !slices.Equal(got, want) {
			t.Errorf("heights to compare: got %v, want %v", got, want)
		}
		for name, c := range map[string]struct {
			shown []Header
			ok    bool
		}{"both heights": {[]Header{block('a', 90), block('b', 95)}, true}, "one of them": {[]Header{block('b', 95)}, false}} {
			view := watching(viewOf(w, block('b', 100)), c.shown...)
			r := rulesOf(1)
			r.WatchDepth = 10
			tn := &incident{leaseSession: &leaseSession{Service: &Service{Rules: r, Store: noFinals{}, Timing: testTiming}, chain: shows{view: view}, state: w}}
			kept, missing, err := tn.recheckFinalBlocks(t.Context())
			if (err == nil) != c.ok || len(missing) != 0 {
				t.Fatalf("the node shows %s: got %v, %v; want it enough: %v", name, missing, err, c.ok)
			}
			if want := []Header{block('a', 90), block('b', 95)}; c.ok && !slices.Equal(kept, want) {
				t.Errorf("kept: got %v, want %v", kept, want)
			}
		}
	})
}

// noFinals has no transaction in any queried block.
type noFinals struct{ Store }

func (noFinals) FinalTransactions(context.Context, Submitter, []Hash) ([]FinalTx, error) {
	return nil, nil
}

// A submitter without work is polled while a violation is suspected, and during PROTECT for a
// reorg: its reorged transactions must be sent again.
func TestSuspectedViolationIsPolled(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		r := rulesOf(1)
		for name, change := range map[string]func(*SubmitterState){
			"suspected": func(w *SubmitterState) { w.SuspectedViolation = &Violation{Kind: CountAhead} },
			"reorged":   func(w *SubmitterState) { w.Protected, w.Evidence = true, &Violation{Kind: FinalBlockReorged} },
		} {
			w := stateOf(1, 5)
			change(&w)
			d := r.planNextWork(w)
			if want := w.now().Add(r.BlockTime); d.kind != KindConfirm || !d.at.Equal(want) || d.advanceNow {
				t.Errorf("%s: due: got %+v, want a confirm at %v", name, d, want)
			}
			if _, ok := r.nextQuery(w, KindConfirm, reader(nil)); !ok {
				t.Errorf("%s: nothing to ask, want a look", name)
			}
		}
		w := stateOf(1, 5)
		w.Protected, w.Evidence = true, &Violation{Kind: CountAhead}
		if d := r.planNextWork(w); d.advanceNow || !d.at.IsZero() {
			t.Errorf("PROTECT for another reason, nothing in flight: got %+v, want nothing due", d)
		}
	})
}

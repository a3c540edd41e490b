package nonce

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
)

// panel is a chain of nodes that each say something, by name: the first that is not
// left out is looked at.
type panel struct {
	ChainConnector
	views  []View
	quorum int
	out    []string
	asked  int    // round trips of witnesses
	saw    []Look // what they were asked
}

func (p *panel) Look(context.Context, Look) (View, error) {
	for _, v := range p.views {
		if !slices.Contains(p.out, v.Node) {
			v.Witnesses = p
			return v, nil
		}
	}
	return View{}, errors.New("all are left out")
}

func (p *panel) Quorum() int { return p.quorum }

func (p *panel) Ask(_ context.Context, q Look, n int, but ...string) (views []View) {
	p.saw = append(p.saw, q)
	for _, v := range p.views {
		if len(views) < n && !slices.Contains(but, v.Node) && !slices.Contains(p.out, v.Node) {
			p.asked++
			views = append(views, v)
		}
	}
	return views
}

func (p *panel) Contradicted(_ context.Context, node, _ string) { p.out = append(p.out, node) }

// looks has the tenure of w look at the panel once.
func (p *panel) looks(t *testing.T, w Work, q Look) View {
	t.Helper()
	tn := &tenure{Worker: &Worker{Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler)}, chain: p, work: w}
	v, err := tn.lookAgreed(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func called(v View, name string) View {
	v.Node = name
	return v
}

// ofNodes are views of nodes n0, n1, …
func ofNodes(views ...View) (list []View) {
	for i, v := range views {
		list = append(list, called(v, "n"+string(rune('0'+i))))
	}
	return list
}

// What one node says about foreign use opens nothing unless a quorum says it, and
// more than say otherwise; a node that is contradicted is left out, and another's
// view taken.
func TestOneNodeOpensNothingAlone(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := workOf(1, 5)
		w.FinalHead = 90
		fine := viewOf(w, block('a', 100))
		ahead := viewOf(w, block('a', 100))
		ahead.Account.LatestCount = 7
		ahead.Account.PendingCount = 7
		low := viewOf(w, block('a', 80)) // below the last final block: it says nothing
		for name, c := range map[string]struct {
			quorum int
			views  []View
			from   string // whose view is judged in the end
			opens  bool
			doubt  bool
		}{
			"alone of three":           {2, ofNodes(ahead, fine, fine), "n1", false, false},
			"alone of two":             {1, ofNodes(ahead, fine), "n1", false, false},
			"two of three":             {2, ofNodes(ahead, fine, ahead), "n0", true, false},
			"all":                      {2, ofNodes(ahead, ahead, ahead), "n0", true, false},
			"two against two":          {2, ofNodes(ahead, fine, ahead, fine), "n1", false, false},
			"two, and all must":        {3, ofNodes(ahead, ahead, fine), "n1", false, true},
			"alone, others lag":        {2, ofNodes(ahead, low, low), "n0", false, true},
			"one is enough, one lags":  {1, ofNodes(ahead, low), "n0", true, false},
			"all fine":                 {2, ofNodes(fine, ahead, ahead), "n0", false, false},
			"contradicted by only one": {2, ofNodes(ahead, fine, low), "n1", false, false},
		} {
			p := &panel{views: c.views, quorum: c.quorum}
			v := p.looks(t, w, asking(w))
			got := suspect(w, v)
			if v.Node != c.from || (got.Suspect != nil) != c.opens || v.Doubts.Signs != c.doubt {
				t.Errorf("%s: got node %s, suspicion %v, doubts %+v; want node %s, suspected %v, in doubt %v", name, v.Node, got.Suspect, v.Doubts, c.from, c.opens, c.doubt)
			}
			if c.opens && c.quorum > 1 && got.Suspect != nil && got.Suspect.BorneOutBy == "" {
				t.Errorf("%s: evidence names nobody who bears it out", name)
			}
			if c.doubt && mayAllocate(w, nil, v) == "" {
				t.Errorf("%s: got a nonce allocated, want none while nodes do not agree", name)
			}
		}
	})
}

// Nothing ends unless a quorum has the receipt's block at its height; and asking for
// that is one round trip to as many as are needed.
func TestEndsNeedAQuorumOfEqualBlocks(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		chain := blocks('a', 100, 103)
		x := included(5, chain[:1]...)
		w := workOf(1, 6, x)
		final := finding(viewOf(w, chain...), receiptOf(x, chain[0]))
		same, other, behind := watching(final, chain[0]), watching(final, block('b', 100)), watching(final)
		for name, c := range map[string]struct {
			quorum int
			views  []View
			ends   bool
			asked  int
		}{
			"one node's word":                 {1, ofNodes(final, other), true, 0},
			"the second has it":               {2, ofNodes(final, same, same), true, 1},
			"the second lags, the third not":  {2, ofNodes(final, behind, same), true, 2},
			"the second is on a fork":         {2, ofNodes(final, other, same), true, 2},
			"all others lag":                  {2, ofNodes(final, behind, behind), false, 2},
			"two of three where all must":     {3, ofNodes(final, same, behind), false, 2},
			"alone against two who say other": {2, ofNodes(final, other, other), false, 2},
		} {
			p := &panel{views: c.views, quorum: c.quorum}
			q := asking(w)
			v := p.looks(t, w, q)
			j := rulesOf(3).judge(w, q, v)
			if got := len(j.finals) > 0; got != c.ends {
				t.Errorf("%s: got ended %v, want %v; doubts %+v of %s", name, got, c.ends, v.Doubts, v.Node)
			}
			if c.ends && p.asked != c.asked {
				t.Errorf("%s: got %d nodes asked, want %d", name, p.asked, c.asked)
			}
			for _, asked := range p.saw {
				if asked.Account || len(asked.Receipts) > 0 || !slices.Equal(asked.Watch, []uint64{100}) {
					t.Errorf("%s: got %+v asked, want the one block alone", name, asked)
				}
			}
		}
	})
}

// A receipt is not taken back, nor its list of blocks replaced, by one node alone.
func TestReorgsNeedAQuorum(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		x := included(5, blocks('a', 100, 101)...)
		w := workOf(1, 6, x)
		gone := watching(viewOf(w, blocks('b', 100, 103)...), block('b', 100))
		stands := watching(finding(viewOf(w, blocks('a', 100, 102)...), receiptOf(x, block('a', 100))), block('a', 100))
		behind := watching(viewOf(w, block('a', 99)))
		moved := watching(finding(viewOf(w, blocks('b', 100, 103)...), receiptOf(x, block('b', 100))), block('b', 100))
		for name, c := range map[string]struct {
			views []View
			forks int
		}{
			"gone, alone":          {ofNodes(gone, stands, stands), 0},
			"gone, the rest lag":   {ofNodes(gone, behind, behind), 0},
			"gone, by two":         {ofNodes(gone, stands, gone), 1},
			"moved, alone":         {ofNodes(moved, stands, stands), 0},
			"moved, the rest lag":  {ofNodes(moved, behind, behind), 0},
			"moved, by two":        {ofNodes(moved, gone, stands), 1},
			"a lagging first node": {ofNodes(behind, stands, stands), 0},
		} {
			p := &panel{views: c.views, quorum: 2}
			q := asking(w)
			v := p.looks(t, w, q)
			j := rulesOf(3).judge(w, q, v)
			if j.newForks != c.forks {
				t.Errorf("%s: got %d new forks by %s, want %d", name, j.newForks, v.Node, c.forks)
			}
			if got := j.after[0]; c.forks == 0 && (got.Receipt == nil || got.Receipt.BlockHash != block('a', 100).Hash || len(got.Confirmations) < 2) {
				t.Errorf("%s: got %+v, want receipt and blocks as they were", name, got.Confirmations)
			}
		}
	})
}

// An intent is not refused for ever by one node's estimate.
func TestRefusalsNeedAQuorum(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := queue(workOf(1, 5), queued(1, "call"))
		says := func(o Outcome, gas uint64) View {
			v := viewOf(w, block('a', 100))
			v.Estimates = []Estimate{{Outcome: o, Gas: gas, Reason: "execution reverted"}}
			return v
		}
		reverts, runs, silent := says(Refused, 0), says(Done, 50_000), says(Unknown, 0)
		for name, c := range map[string]struct {
			views []View
			want  Outcome
		}{
			"alone":               {ofNodes(reverts, runs, runs), Done},
			"alone, others quiet": {ofNodes(reverts, silent, silent), Unknown},
			"two":                 {ofNodes(reverts, runs, reverts), Refused},
		} {
			p := &panel{views: c.views, quorum: 2}
			q := asking(w)
			q.Estimates = estimates(w, reader(nil))
			if got := p.looks(t, w, q); got.Estimates[0].Outcome != c.want {
				t.Errorf("%s: got %s by %s, want %s", name, got.Estimates[0].Outcome, got.Node, c.want)
			}
		}
		if c := (&panel{views: ofNodes(reverts, runs, runs), quorum: 2}); c.views[0].Estimates[0].Outcome != Refused {
			t.Errorf("the node's own view was changed")
		}
	})
}

// Where nothing would end and nothing is amiss, no other node is asked.
func TestNoWitnessIsAskedForNothing(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		x := pending(5)
		w := workOf(1, 6, x)
		p := &panel{views: ofNodes(viewOf(w, block('a', 100)), viewOf(w, block('a', 100))), quorum: 2}
		if v := p.looks(t, w, asking(w)); p.asked != 0 || v.Doubts != (Doubts{}) {
			t.Errorf("got %d asked, doubts %+v; want none", p.asked, v.Doubts)
		}
	})
}

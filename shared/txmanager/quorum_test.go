package txmanager

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"
)

// panel is a chain of nodes with fixed observations, by name. The first that is not excluded is
// queried.
type panel struct {
	ChainConnector
	views  []ChainObservation
	quorum int
	out    []string
	away   []ChainObservation // of excluded nodes that answer again
	asked  int                // round trips to other nodes
	saw    []ChainQuery       // what they were asked
}

func (p *panel) Query(_ context.Context, q ChainQuery) (ChainObservation, error) {
	for _, v := range p.views {
		if !slices.Contains(p.out, v.Node) {
			v.OtherNodes = p
			if !q.Account { // whether heads are of its chain
				v.HashesAt = make(map[uint64]Hash)
				for _, h := range q.HashesAt {
					v.HashesAt[h] = block(v.Head.Hash[0], h).Hash
				}
			}
			return v, nil
		}
	}
	return ChainObservation{}, errors.New("all are left out")
}

func (p *panel) Quorum() int { return p.quorum }

func (p *panel) QueryOthers(_ context.Context, q ChainQuery, n int, but ...string) (views []ChainObservation) {
	p.saw = append(p.saw, q)
	for _, v := range p.views {
		if len(views) < n && !slices.Contains(but, v.Node) { // excluded nodes count too
			p.asked++
			views = append(views, v)
		}
	}
	return views
}

func (p *panel) QueryExcluded(_ context.Context, q ChainQuery, but ...string) (views []ChainObservation) {
	p.saw = append(p.saw, q)
	for _, v := range p.away {
		if !slices.Contains(but, v.Node) {
			p.asked++
			views = append(views, v)
		}
	}
	return views
}

func (p *panel) FindConsumingTx(context.Context, Submitter, uint64) (ConsumingTx, error) {
	return ConsumingTx{}, ErrConsumerUnavailable
}

func (p *panel) ReportOutvoted(_ context.Context, node, _ string) { p.out = append(p.out, node) }

// looks queries the panel once in a lease session of w.
func looks(t *testing.T, p *panel, w SubmitterState, q ChainQuery) ChainObservation {
	t.Helper()
	tn := &leaseSession{Service: &Service{Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Timing: testTiming}, chain: p, state: w}
	v, err := tn.queryAgreed(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func called(v ChainObservation, name string) ChainObservation {
	v.Node = name
	return v
}

// ofNodes are observations of nodes n0, n1, …
func ofNodes(views ...ChainObservation) (list []ChainObservation) {
	for i, v := range views {
		list = append(list, called(v, "n"+string(rune('0'+i))))
	}
	return list
}

// One node's violation opens nothing unless a quorum agrees, and more agree than disagree. A
// contradicted node is excluded, and another node's observation is used.
func TestOneNodeOpensNothingAlone(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		held := pending(4)
		w := stateOf(1, 5, held)
		w.FinalHead = 90
		fine := viewOf(w, block('a', 100))
		taken := viewOf(w, block('a', 100))
		taken.Account.LatestCount, taken.Account.PendingCount = 5, 5
		taken.Known = map[Hash]Answer{held.Versions[0]: AnswerNotFound}
		ahead := viewOf(w, block('a', 100))
		ahead.Account.LatestCount = 7
		ahead.Account.PendingCount = 7
		low := viewOf(w, block('a', 80)) // below the last final block: it abstains
		far, forked, lagsAhead := viewOf(w, block('a', 92)), viewOf(w, block('b', 92)), ahead
		far.Lagging, forked.Lagging, lagsAhead.Lagging = true, true, true
		for name, c := range map[string]struct {
			quorum int
			views  []ChainObservation
			from   string // the node whose observation is evaluated in the end
			opens  bool
			doubt  bool
		}{
			"alone of three":           {2, ofNodes(ahead, fine, fine), "n1", false, false},
			"alone of two":             {1, ofNodes(ahead, fine), "n1", false, false},
			"two of three":             {2, ofNodes(ahead, fine, ahead), "n0", true, false},
			"all":                      {2, ofNodes(ahead, ahead, ahead), "n0", true, false},
			"two against two":          {2, ofNodes(ahead, fine, ahead, fine), "n1", false, false},
			"two, and all must":        {3, ofNodes(ahead, ahead, fine), "n0", false, true},
			"taken here, ahead there":  {2, ofNodes(taken, ahead, fine), "n0", true, false},
			"the other lags":           {1, ofNodes(ahead, far), "n0", true, false},
			"the other lags on a fork": {1, ofNodes(ahead, forked), "n1", false, false},
			"a laggard shows it too":   {2, ofNodes(ahead, lagsAhead, fine), "n0", true, false},
			"alone, others lag":        {2, ofNodes(ahead, low, low), "n0", false, true},
			"one is enough, one lags":  {1, ofNodes(ahead, low), "n0", true, false},
			"all fine":                 {2, ofNodes(fine, ahead, ahead), "n0", false, false},
			"contradicted by only one": {2, ofNodes(ahead, fine, low), "n1", false, false},
		} {
			p := &panel{views: c.views, quorum: c.quorum}
			v := looks(t, p, w, asking(w))
			got := evaluateViolation(w, v)
			if v.Node != c.from || (got.Suspect != nil) != c.opens || v.Disputes.Counts != c.doubt {
				t.Errorf("%s: got node %s, suspicion %v, doubts %+v; want node %s, suspected %v, in doubt %v", name, v.Node, got.Suspect, v.Disputes, c.from, c.opens, c.doubt)
			}
			if c.opens && c.quorum > 1 && got.Suspect != nil && got.Suspect.AgreedBy == "" {
				t.Errorf("%s: evidence names nobody who bears it out", name)
			}
			if c.doubt && allocationBlockedReason(w, nil, v) == "" {
				t.Errorf("%s: got a nonce allocated, want none while nodes do not agree", name)
			}
		}
	})
}

// No transaction ends unless a quorum has the receipt, in the same block and height. One round
// trip to as many nodes as needed is enough.
func TestEndsNeedAQuorumOfEqualBlocks(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		chain := blocks('a', 100, 103)
		x := included(5, chain[:1]...)
		w := stateOf(1, 6, x)
		same := watching(finding(viewOf(w, chain...), receiptOf(x, chain[0])), chain[0])
		final, other, behind := same, watching(viewOf(w, blocks('b', 100, 103)...), block('b', 100)), watching(viewOf(w, block('a', 99)))
		elsewhere := watching(viewOf(w, block('b', 99)))
		for name, c := range map[string]struct {
			quorum int
			views  []ChainObservation
			ends   bool
			asked  int
		}{
			"one's word, the second is away":  {1, ofNodes(final), true, 0},
			"one's word, the second lags":     {1, ofNodes(final, behind), true, 1},
			"one's word, ahead on a fork":     {1, ofNodes(final, elsewhere), false, 1},
			"one's word against another's":    {1, ofNodes(final, other), false, 1},
			"two against two":                 {2, ofNodes(final, other, same, other), false, 3},
			"the second has it":               {2, ofNodes(final, same, same), true, 1},
			"the second lags, the third not":  {2, ofNodes(final, behind, same), true, 2},
			"the second is on a fork":         {2, ofNodes(final, other, same), true, 2},
			"all others lag":                  {2, ofNodes(final, behind, behind), false, 2},
			"two of three where all must":     {3, ofNodes(final, same, behind), false, 2},
			"alone against two who say other": {2, ofNodes(final, other, other), false, 2},
		} {
			p := &panel{views: c.views, quorum: c.quorum}
			q := asking(w)
			v := looks(t, p, w, q)
			j := rulesOf(3).evaluate(w, q, v)
			if got := len(j.finals) > 0; got != c.ends {
				t.Errorf("%s: got ended %v, want %v; doubts %+v of %s", name, got, c.ends, v.Disputes, v.Node)
			}
			if c.ends && p.asked != c.asked {
				t.Errorf("%s: got %d nodes asked, want %d", name, p.asked, c.asked)
			}
			for _, asked := range p.saw {
				if c.ends && (asked.Account || !slices.Equal(asked.Receipts, x.Versions) || !slices.Equal(asked.HashesAt, []uint64{100})) {
					t.Errorf("%s: got %+v asked, want the one block and the receipt", name, asked)
				}
			}
		}
	})
}

// However many blocks make transactions final at once, the query to other nodes stays within
// maxWatched; the highest blocks cover those below.
func TestManyEndsAtOnce(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		const n = 150
		chain := blocks('a', 100, 100+n+3)
		var all []Tx
		var receipts []Receipt
		for i := range uint64(n) {
			x := included(i, chain[i])
			all, receipts = append(all, x), append(receipts, receiptOf(x, chain[i]))
		}
		w := stateOf(n, n, all...)
		final := finding(viewOf(w, chain...), receipts...)
		p := &panel{views: ofNodes(final, watching(final, chain...), watching(final, chain...)), quorum: 2}
		q := asking(w)
		v := looks(t, p, w, q)
		if got := len(rulesOf(3).evaluate(w, q, v).finals); got != n || len(p.saw) != 1 || len(p.saw[0].HashesAt) > maxWatched {
			t.Errorf("got %d ended, and %d questions about %d heights; want %d, one and at most %d", got, len(p.saw), len(p.saw[0].HashesAt), n, maxWatched)
		}
	})
}

// One node alone removes no receipt, and replaces no list of blocks.
func TestReorgsNeedAQuorum(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		x := included(5, blocks('a', 100, 101)...)
		w := stateOf(1, 6, x)
		gone := watching(viewOf(w, blocks('b', 100, 103)...), block('b', 100))
		stands := watching(finding(viewOf(w, blocks('a', 100, 102)...), receiptOf(x, block('a', 100))), block('a', 100))
		behind := watching(viewOf(w, block('a', 99)))
		moved := watching(finding(viewOf(w, blocks('b', 100, 103)...), receiptOf(x, block('b', 100))), block('b', 100))
		for name, c := range map[string]struct {
			views []ChainObservation
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
			v := looks(t, p, w, q)
			j := rulesOf(3).evaluate(w, q, v)
			if j.newForks != c.forks {
				t.Errorf("%s: got %d new forks by %s, want %d", name, j.newForks, v.Node, c.forks)
			}
			if got := j.after[0]; c.forks == 0 && (got.Receipt == nil || got.Receipt.BlockHash != block('a', 100).Hash || len(got.Confirmations) < 2) {
				t.Errorf("%s: got %+v, want receipt and blocks as they were", name, got.Confirmations)
			}
		}
	})
}

// A node without receipts is excluded if others have them. If none has, nothing changes, and no
// node is reported.
func TestNodeWithoutReceiptsIsExcluded(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		x := pending(5)
		w := stateOf(1, 6, x)
		none := viewOf(w, blocks('a', 100, 101)...)
		none.Account.LatestCount, none.Account.PendingCount = 6, 6
		none.Known = map[Hash]Answer{x.Versions[0]: AnswerFound}
		has := finding(viewOf(w, blocks('a', 100, 101)...), receiptOf(x, block('a', 100)))
		for name, c := range map[string]struct {
			views []ChainObservation
			from  string
			out   int
		}{
			"another has it":   {ofNodes(none, has, has), "n1", 1},
			"nobody has it":    {ofNodes(none, none, none), "n0", 0},
			"one of three has": {ofNodes(none, none, has), "n0", 0},
			"nobody answers":   {ofNodes(none), "n0", 0},
		} {
			p := &panel{views: c.views, quorum: 2}
			v := looks(t, p, w, asking(w))
			if v.Node != c.from || len(p.out) != c.out || v.Disputes != (Disputes{}) {
				t.Errorf("%s: got the view of %s, left out %v, doubts %+v; want %s's, %d left out, no doubts", name, v.Node, p.out, v.Disputes, c.from, c.out)
			}
		}
	})
}

// One node's estimate never refuses an intent.
func TestRefusalsNeedAQuorum(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := queue(stateOf(1, 5), queued(1, "call"))
		says := func(o Outcome, gas uint64) ChainObservation {
			v := viewOf(w, block('a', 100))
			v.Estimates = []Estimate{{Outcome: o, Gas: gas, Reason: "execution reverted"}}
			return v
		}
		reverts, runs, silent := says(Refused, 0), says(Done, 50_000), says(Unknown, 0)
		for name, c := range map[string]struct {
			views []ChainObservation
			want  Outcome
		}{
			"alone":               {ofNodes(reverts, runs, runs), Done},
			"alone, others quiet": {ofNodes(reverts, silent, silent), Unknown},
			"two":                 {ofNodes(reverts, runs, reverts), Refused},
		} {
			p := &panel{views: c.views, quorum: 2}
			q := asking(w)
			q.Estimates = callsToEstimate(w, reader(nil))
			if got := looks(t, p, w, q); got.Estimates[0].Outcome != c.want {
				t.Errorf("%s: got %s by %s, want %s", name, got.Estimates[0].Outcome, got.Node, c.want)
			}
		}
		if c := (&panel{views: ofNodes(reverts, runs, runs), quorum: 2}); c.views[0].Estimates[0].Outcome != Refused {
			t.Errorf("the node's own view was changed")
		}
	})
}

// If nothing would end and there is no violation, no other node is queried.
func TestNoOtherNodeIsQueriedWithoutAClaim(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		x := pending(5)
		w := stateOf(1, 6, x)
		p := &panel{views: ofNodes(viewOf(w, block('a', 100)), viewOf(w, block('a', 100))), quorum: 2}
		if v := looks(t, p, w, asking(w)); p.asked != 0 || v.Disputes != (Disputes{}) {
			t.Errorf("got %d asked, doubts %+v; want none", p.asked, v.Disputes)
		}
	})
}

// One node alone, which may be on a fork, does not clear a suspected violation that a quorum
// agreed with. Until others agree, nothing is allocated.
func TestClearingASuspicionNeedsAQuorum(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := stateOf(1, 5)
		w.SuspectedViolation = &Violation{Kind: CountAhead, Block: 100, ExpectedNonce: 5}
		fine, before := viewOf(w, block('a', 101)), viewOf(w, block('a', 99))
		ahead := viewOf(w, block('a', 101))
		ahead.Account.LatestCount, ahead.Account.PendingCount = 6, 6
		for name, c := range map[string]struct {
			quorum int
			views  []ChainObservation
			trust  bool
			opens  bool
			waits  bool
		}{
			"alone, others are away":    {2, ofNodes(fine), false, false, true},
			"alone, others are behind":  {2, ofNodes(fine, before, before), false, false, true},
			"alone, others still see":   {2, ofNodes(fine, ahead, ahead), false, true, true},
			"two of three":              {2, ofNodes(fine, ahead, fine), true, false, false},
			"one of one that answers":   {1, ofNodes(fine), true, false, false},
			"one against the other one": {1, ofNodes(fine, ahead), false, false, true},
		} {
			p := &panel{views: c.views, quorum: c.quorum}
			v := looks(t, p, w, asking(w))
			got := evaluateViolation(w, v)
			if got.ClearSuspected != c.trust || (got.OpenIncident != nil) != c.opens {
				t.Errorf("%s: got trust %v, PROTECT %v by %s; want %v and %v", name, got.ClearSuspected, got.OpenIncident, v.Node, c.trust, c.opens)
			}
			if waits := allocationBlockedReason(w, nil, v) != ""; waits != c.waits {
				t.Errorf("%s: got allocation waiting %v, want %v", name, waits, c.waits)
			}
		}
	})
}

// A release depends on a quorum: for the count at the finalized block without a receipt below it,
// and for the final blocks that are gone.
func TestReleasesNeedAQuorum(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		x := pending(5)
		w := stateOf(1, 6, x)
		counts := func(n uint64) ChainObservation {
			v := viewOf(w, block('a', 100))
			v.FinalCount = &n
			v.Receipts = map[Hash]ReceiptAnswer{x.Versions[0]: {Answer: AnswerNotFound}}
			return v
		}
		mined := finding(counts(6), receiptOf(x, block('a', 90)))
		untold := viewOf(w, block('a', 100))
		for name, c := range map[string]struct {
			quorum int
			views  []ChainObservation
			want   bool
		}{
			"three alike":                   {2, ofNodes(counts(6), counts(6), counts(6)), true},
			"two of three":                  {2, ofNodes(counts(6), counts(5), counts(6)), true},
			"alone, the rest is behind":     {2, ofNodes(counts(6), counts(5), counts(5)), false},
			"alone, the rest does not know": {2, ofNodes(counts(6), untold, untold), false},
			"ours is mined on another":      {1, ofNodes(counts(6), mined), false},
			"ours is mined on two":          {2, ofNodes(counts(6), mined, mined), false},
			"others are past it":            {2, ofNodes(counts(6), counts(7), counts(7)), false},
			"one of one that answers":       {1, ofNodes(counts(6)), true},
		} {
			p := &panel{ChainConnector: reader(nil), views: c.views, quorum: c.quorum}
			tn := &incident{leaseSession: &leaseSession{Service: &Service{Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Store: &evidenceStore{}, Timing: testTiming}, chain: p, state: w, began: time.Now()}}
			_, out, err := tn.planResync(t.Context(), &ReleaseRequest{Mode: Resync, Count: 6, Requests: map[uint64]string{5: "r"}, Executed: map[uint64]string{5: "seen"}}, LostNonces{})
			if got := err == nil; got != c.want || err != nil && !errors.Is(err, ErrNoQuorum) {
				t.Errorf("%s: got %v, %v; want a resync %v", name, out, err, c.want)
			}
		}
	})
}

// Excluded nodes are queried again before an operator is refused, since they may have recovered.
// Otherwise they are not queried.
func TestReleaseQueriesExcludedNodesAgain(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := stateOf(1, 5)
		w.FinalBlocks = []Header{block('a', 90), block('a', 95)}
		stand := watching(viewOf(w, block('a', 100)), w.FinalBlocks...)
		fell := watching(viewOf(w, block('b', 100)), block('a', 90), block('b', 95))
		low := watching(viewOf(w, block('a', 92)), block('a', 90))
		for name, c := range map[string]struct {
			views    []ChainObservation
			away     ChainObservation
			operator bool
			want     bool
			asked    int
		}{
			"the rest is away, and one is well again":       {ofNodes(stand), called(stand, "away"), true, true, 1},
			"the rest is away, and one contradicts":         {ofNodes(stand), called(fell, "away"), true, false, 1},
			"one is behind, and the one away is well again": {ofNodes(stand, low), called(stand, "away"), true, true, 2},
			"one contradicts, and one is well again":        {ofNodes(stand, fell), called(stand, "away"), true, true, 2},
			"enough without it":                             {ofNodes(stand, stand), called(stand, "away"), true, true, 1},
			"nobody waits":                                  {ofNodes(stand), called(stand, "away"), false, false, 0},
		} {
			p := &panel{views: c.views, away: []ChainObservation{c.away}, quorum: 2}
			tn := &incident{leaseSession: &leaseSession{Service: &Service{Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Timing: testTiming}, chain: p, state: w, forOperator: c.operator}}
			_, _, err := tn.recheckFinalBlocks(t.Context())
			if got := err == nil; got != c.want || err != nil && !errors.Is(err, ErrNoQuorum) || p.asked != c.asked {
				t.Errorf("%s: got %v by %d further nodes, want it borne out %v by %d", name, err, p.asked, c.want, c.asked)
			}
		}
	})
}

// A release compares the final blocks with the chain of a quorum, whether they are canonical or
// reorged out.
func TestFinalBlocksAreComparedByAQuorum(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := stateOf(1, 5)
		w.FinalBlocks = []Header{block('a', 90), block('a', 95)}
		stand := watching(viewOf(w, block('a', 100)), w.FinalBlocks...)
		fell := watching(viewOf(w, block('b', 100)), block('a', 90), block('b', 95))
		low := watching(viewOf(w, block('a', 92)), block('a', 90))
		for name, c := range map[string]struct {
			quorum int
			views  []ChainObservation
			want   bool
		}{
			"all alike":                 {2, ofNodes(stand, stand, stand), true},
			"two of three":              {2, ofNodes(stand, fell, stand), true},
			"alone":                     {2, ofNodes(stand, fell, fell), false},
			"alone, the rest is behind": {2, ofNodes(stand, low, low), false},
			"alone, the rest is away":   {2, ofNodes(stand), false},
			"one against one":           {1, ofNodes(stand, fell), false},
		} {
			tn := &incident{leaseSession: &leaseSession{Service: &Service{Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Timing: testTiming}, chain: &panel{views: c.views, quorum: c.quorum}, state: w}}
			_, _, err := tn.recheckFinalBlocks(t.Context())
			if got := err == nil; got != c.want || err != nil && !errors.Is(err, ErrNoQuorum) {
				t.Errorf("%s: got %v, want it borne out %v", name, err, c.want)
			}
		}
	})
}

// A handler's transaction does not fail because one node says that it would revert.
func TestHandlersCallsFailByAQuorum(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		x := bare(5)
		w := stateOf(1, 6, x)
		says := func(o Outcome, gas uint64) ChainObservation {
			v := viewOf(w, block('a', 100))
			v.Estimates = []Estimate{{Outcome: o, Gas: gas, Reason: "execution reverted"}}
			return v
		}
		for name, c := range map[string]struct {
			views []ChainObservation
			fails bool
		}{
			"alone":                  {ofNodes(says(Refused, 0), says(Done, 50_000), says(Done, 50_000)), false},
			"alone, others are away": {ofNodes(says(Refused, 0)), false},
			"two of three":           {ofNodes(says(Refused, 0), says(Done, 50_000), says(Refused, 0)), true},
		} {
			tn := invocationBy(&Worker{Service: Service{Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Timing: testTiming}}, leaseSession{chain: &panel{views: c.views, quorum: 2}, state: w})
			m, err := tn.priceCall(t.Context(), x, handlerResult{call: Call{}}, c.views[0])
			if got := m.failed != ""; err != nil || got != c.fails || !c.fails && m.wait == "" {
				t.Errorf("%s: got failed %q, wait %q, %v; want failed %v, else it waits", name, m.failed, m.wait, err, c.fails)
			}
		}
	})
}

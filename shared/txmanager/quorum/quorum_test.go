package quorum

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
	"github.com/fencepost/fencepost/shared/txmanager/session/sessiontest"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

var rulesOf = sessiontest.Rules

// looks queries the panel once in a lease session of w.
func looks(t *testing.T, p *txtest.Panel, w txmanager.SubmitterState, q txmanager.ChainQuery) txmanager.ChainObservation {
	t.Helper()
	return query(t, rulesOf(3), p, w, q)
}

func query(t *testing.T, r rules.Rules, p *txtest.Panel, w txmanager.SubmitterState, q txmanager.ChainQuery) txmanager.ChainObservation {
	t.Helper()
	return check.Value(Query(t.Context(), &session.Session{Service: new(sessiontest.Service(r, nil)), Chain: p, State: w}, q))(t)
}

// evaluates queries the panel once about every version, and evaluates the observation.
func evaluates(t *testing.T, r rules.Rules, p *txtest.Panel, w txmanager.SubmitterState) (txmanager.ChainObservation, rules.Evaluation) {
	t.Helper()
	q := txtest.Asking(w)
	q.Finality = r.FinalityTag()
	v := query(t, r, p, w, q)
	return v, r.Evaluate(w, q, v)
}

// One node's violation opens nothing unless a quorum agrees, and more agree than disagree. A
// contradicted node is excluded, and another node's observation is used.
func TestOneNodeOpensNothingAlone(t *testing.T) {
	t.Parallel()
	held := txtest.Pending(4)
	w := txtest.StateOf(1, 5, held)
	w.FinalHead = 90
	fine := txtest.ViewOf(w, txtest.Block('a', 100))
	taken := txtest.ViewOf(w, txtest.Block('a', 100))
	taken.Account.LatestCount, taken.Account.PendingCount = 5, 5
	taken.Known = map[txmanager.Hash]txmanager.Answer{held.Versions[0]: txmanager.AnswerNotFound}
	ahead := txtest.ViewOf(w, txtest.Block('a', 100))
	ahead.Account.LatestCount = 7
	ahead.Account.PendingCount = 7
	low := txtest.ViewOf(w, txtest.Block('a', 80)) // below the last final block: it abstains
	far, forked, lagsAhead := txtest.ViewOf(w, txtest.Block('a', 92)), txtest.ViewOf(w, txtest.Block('b', 92)), ahead
	far.Lagging, forked.Lagging, lagsAhead.Lagging = true, true, true
	for name, c := range map[string]struct {
		quorum int
		views  []txmanager.ChainObservation
		from   string // the node whose observation is evaluated in the end
		opens  bool
		doubt  bool
	}{
		"alone of three":           {2, txtest.OfNodes(ahead, fine, fine), "n1", false, false},
		"alone of two":             {1, txtest.OfNodes(ahead, fine), "n1", false, false},
		"two of three":             {2, txtest.OfNodes(ahead, fine, ahead), "n0", true, false},
		"all":                      {2, txtest.OfNodes(ahead, ahead, ahead), "n0", true, false},
		"two against two":          {2, txtest.OfNodes(ahead, fine, ahead, fine), "n1", false, false},
		"two, and all must":        {3, txtest.OfNodes(ahead, ahead, fine), "n0", false, true},
		"taken here, ahead there":  {2, txtest.OfNodes(taken, ahead, fine), "n0", true, false},
		"the other lags":           {1, txtest.OfNodes(ahead, far), "n0", true, false},
		"the other lags on a fork": {1, txtest.OfNodes(ahead, forked), "n1", false, false},
		"a laggard shows it too":   {2, txtest.OfNodes(ahead, lagsAhead, fine), "n0", true, false},
		"alone, others lag":        {2, txtest.OfNodes(ahead, low, low), "n0", false, true},
		"one is enough, one lags":  {1, txtest.OfNodes(ahead, low), "n0", true, false},
		"all fine":                 {2, txtest.OfNodes(fine, ahead, ahead), "n0", false, false},
		"contradicted by only one": {2, txtest.OfNodes(ahead, fine, low), "n1", false, false},
	} {
		p := &txtest.Panel{Views: c.views, Needed: c.quorum}
		v := looks(t, p, w, txtest.Asking(w))
		got := rules.EvaluateViolation(w, v)
		if v.Node != c.from || (got.Suspect != nil) != c.opens || v.Disputes.Counts != c.doubt {
			t.Errorf("%s: got node %s, suspicion %v, doubts %+v; want node %s, suspected %v, in doubt %v", name, v.Node, got.Suspect, v.Disputes, c.from, c.opens, c.doubt)
		}
		if c.opens && c.quorum > 1 && got.Suspect != nil && got.Suspect.AgreedBy == "" {
			t.Errorf("%s: evidence names nobody who bears it out", name)
		}
		if c.doubt && rules.AllocationBlocked(w, v).Reason == "" {
			t.Errorf("%s: got a nonce allocated, want none while nodes do not agree", name)
		}
	}
}

// No transaction ends unless a quorum has the receipt, in the same block and height. One round trip to as
// many nodes as needed is enough. With a quorum of one, a claim waits while another node that answered
// before does not answer. A second node that abstains does not prevent a query to the third, which may
// disagree. With a larger quorum, one missing answer changes nothing.
func TestEndsNeedAQuorumOfEqualBlocks(t *testing.T) {
	t.Parallel()
	chain := txtest.Blocks('a', 100, 103)
	x := txtest.Included(5, chain[:1]...)
	w := txtest.StateOf(1, 6, x)
	same := txtest.Watching(txtest.Finding(txtest.ViewOf(w, chain...), txtest.ReceiptOf(x, chain[0])), chain[0])
	final, other, behind := same, txtest.Watching(txtest.ViewOf(w, txtest.Blocks('b', 100, 103)...), txtest.Block('b', 100)), txtest.Watching(txtest.ViewOf(w, txtest.Block('a', 99)))
	elsewhere := txtest.Watching(txtest.ViewOf(w, txtest.Block('b', 99)))
	without, silent := txtest.ViewOf(w, chain...), txmanager.ChainObservation{NoAnswer: true}
	for name, c := range map[string]struct {
		quorum   int
		views    []txmanager.ChainObservation
		ends     bool
		asked    int
		outvoted bool // some node
	}{
		"one's word, the second is away":   {1, txtest.OfNodes(final), true, 0, false},
		"one's word, the second lags":      {1, txtest.OfNodes(final, behind), true, 1, false},
		"one's word, the second is silent": {1, txtest.OfNodes(final, silent), false, 1, false},
		"one's word, ahead on a fork":      {1, txtest.OfNodes(final, elsewhere), false, 1, true},
		"one's word against another's":     {1, txtest.OfNodes(final, other), false, 1, true},
		"one's word against the third's":   {1, txtest.OfNodes(final, without, other), false, 2, true},
		"two against two":                  {2, txtest.OfNodes(final, other, same, other), false, 3, true},
		"the second has it":                {2, txtest.OfNodes(final, same, same), true, 1, false},
		"the second has it, one is silent": {2, txtest.OfNodes(final, same, silent), true, 1, false},
		"the second lags, the third not":   {2, txtest.OfNodes(final, behind, same), true, 2, false},
		"the second is on a fork":          {2, txtest.OfNodes(final, other, same), true, 2, false},
		"all others lag":                   {2, txtest.OfNodes(final, behind, behind), false, 2, false},
		"all others are silent":            {2, txtest.OfNodes(final, silent, silent), false, 2, false},
		"two of three where all must":      {3, txtest.OfNodes(final, same, behind), false, 2, false},
		"alone against two who say other":  {2, txtest.OfNodes(final, other, other), false, 2, true},
	} {
		p := &txtest.Panel{Views: c.views, Needed: c.quorum}
		_, j := evaluates(t, rulesOf(3), p, w)
		check.Equal(t, name+": something ended", len(j.Finals) > 0, c.ends)
		check.Equal(t, name+": some node is outvoted", len(p.Out) > 0, c.outvoted)
		if c.ends {
			check.Equal(t, name+": nodes asked", p.Asked, c.asked)
		}
		for _, asked := range p.Saw {
			if c.ends && (asked.Account || !slices.Equal(asked.Receipts, x.Versions) || !slices.Equal(asked.HashesAt, []uint64{100})) {
				t.Errorf("%s: got %+v asked, want the one block and the receipt", name, asked)
			}
		}
	}
}

// However many blocks make transactions final at once, the query to other nodes stays within
// MaxWatched; the highest blocks cover those below.
func TestManyEndsAtOnce(t *testing.T) {
	t.Parallel()
	const n = 150
	chain := txtest.Blocks('a', 100, 100+n+3)
	var all []txmanager.Tx
	var receipts []txmanager.Receipt
	for i := range uint64(n) {
		x := txtest.Included(i, chain[i])
		all, receipts = append(all, x), append(receipts, txtest.ReceiptOf(x, chain[i]))
	}
	w := txtest.StateOf(n, n, all...)
	final := txtest.Finding(txtest.ViewOf(w, chain...), receipts...)
	p := &txtest.Panel{Views: txtest.OfNodes(final, txtest.Watching(final, chain...), txtest.Watching(final, chain...)), Needed: 2}
	_, j := evaluates(t, rulesOf(3), p, w)
	if got := len(j.Finals); got != n || len(p.Saw) != 1 || len(p.Saw[0].HashesAt) > rules.MaxWatched {
		t.Errorf("got %d ended, and %d questions about %d heights; want %d, one and at most %d", got, len(p.Saw), len(p.Saw[0].HashesAt), n, rules.MaxWatched)
	}
}

// One node alone removes no receipt, and replaces no list of blocks.
func TestReorgsNeedAQuorum(t *testing.T) {
	t.Parallel()
	x := txtest.Included(5, txtest.Blocks('a', 100, 101)...)
	w := txtest.StateOf(1, 6, x)
	gone := txtest.Watching(txtest.ViewOf(w, txtest.Blocks('b', 100, 103)...), txtest.Block('b', 100))
	stands := txtest.Watching(txtest.Finding(txtest.ViewOf(w, txtest.Blocks('a', 100, 102)...), txtest.ReceiptOf(x, txtest.Block('a', 100))), txtest.Block('a', 100))
	behind := txtest.Watching(txtest.ViewOf(w, txtest.Block('a', 99)))
	moved := txtest.Watching(txtest.Finding(txtest.ViewOf(w, txtest.Blocks('b', 100, 103)...), txtest.ReceiptOf(x, txtest.Block('b', 100))), txtest.Block('b', 100))
	for name, c := range map[string]struct {
		views []txmanager.ChainObservation
		forks int
	}{
		"gone, alone":          {txtest.OfNodes(gone, stands, stands), 0},
		"gone, the rest lag":   {txtest.OfNodes(gone, behind, behind), 0},
		"gone, by two":         {txtest.OfNodes(gone, stands, gone), 1},
		"moved, alone":         {txtest.OfNodes(moved, stands, stands), 0},
		"moved, the rest lag":  {txtest.OfNodes(moved, behind, behind), 0},
		"moved, by two":        {txtest.OfNodes(moved, gone, stands), 1},
		"moved, two alike":     {txtest.OfNodes(moved, moved, stands), 1},
		"a lagging first node": {txtest.OfNodes(behind, stands, stands), 0},
	} {
		p := &txtest.Panel{Views: c.views, Needed: 2}
		v, j := evaluates(t, rulesOf(3), p, w)
		check.Equal(t, fmt.Sprintf("%s: new forks by %s", name, v.Node), len(j.Reorged), c.forks)
		bare := x
		bare.Confirmations = nil // a receipt that was stored without the blocks above it
		_, same := evaluates(t, rulesOf(3), &txtest.Panel{Views: c.views, Needed: 2}, txtest.StateOf(1, 6, bare))
		check.Equal(t, name+": new forks of a receipt alone", len(same.Reorged), c.forks)
		if got := j.After[0]; c.forks == 0 && (got.Receipt == nil || got.Receipt.BlockHash != txtest.Block('a', 100).Hash || len(got.Confirmations) < 2) {
			t.Errorf("%s: got %+v, want receipt and blocks as they were", name, got.Confirmations)
		}
	}
}

// A node without receipts is excluded if others have them. If none has, nothing changes, and no
// node is reported.
func TestNodeWithoutReceiptsIsExcluded(t *testing.T) {
	t.Parallel()
	x := txtest.Pending(5)
	w := txtest.StateOf(1, 6, x)
	none := txtest.ViewOf(w, txtest.Blocks('a', 100, 101)...)
	none.Account.LatestCount, none.Account.PendingCount = 6, 6
	none.Known = map[txmanager.Hash]txmanager.Answer{x.Versions[0]: txmanager.AnswerFound}
	has := txtest.Finding(txtest.ViewOf(w, txtest.Blocks('a', 100, 101)...), txtest.ReceiptOf(x, txtest.Block('a', 100)))
	for name, c := range map[string]struct {
		views []txmanager.ChainObservation
		from  string
		out   int
	}{
		"another has it":   {txtest.OfNodes(none, has, has), "n1", 1},
		"nobody has it":    {txtest.OfNodes(none, none, none), "n0", 0},
		"one of three has": {txtest.OfNodes(none, none, has), "n0", 0},
		"nobody answers":   {txtest.OfNodes(none), "n0", 0},
	} {
		p := &txtest.Panel{Views: c.views, Needed: 2}
		v := looks(t, p, w, txtest.Asking(w))
		if v.Node != c.from || len(p.Out) != c.out || v.Disputes != (txmanager.Disputes{}) {
			t.Errorf("%s: got the view of %s, left out %v, doubts %+v; want %s's, %d left out, no doubts", name, v.Node, p.Out, v.Disputes, c.from, c.out)
		}
	}
}

// One node's estimate never refuses an intent.
func TestRefusalsNeedAQuorum(t *testing.T) {
	t.Parallel()
	w := txtest.Queue(txtest.StateOf(1, 5), txtest.Queued(1, "call"))
	says := func(o txmanager.Outcome, gas uint64) txmanager.ChainObservation {
		v := txtest.ViewOf(w, txtest.Block('a', 100))
		v.Estimates = []txmanager.Estimate{{Outcome: o, Gas: gas, Reason: "execution reverted"}}
		return v
	}
	reverts, runs, silent := says(txmanager.Refused, 0), says(txmanager.Done, 50_000), says(txmanager.Unknown, 0)
	for name, c := range map[string]struct {
		views []txmanager.ChainObservation
		want  txmanager.Outcome
	}{
		"alone":               {txtest.OfNodes(reverts, runs, runs), txmanager.Done},
		"alone, others quiet": {txtest.OfNodes(reverts, silent, silent), txmanager.Unknown},
		"two":                 {txtest.OfNodes(reverts, runs, reverts), txmanager.Refused},
	} {
		p := &txtest.Panel{Views: c.views, Needed: 2}
		q := txtest.Asking(w)
		q.Estimates = rules.CallsToEstimate(w, txtest.Reader(nil))
		got := looks(t, p, w, q)
		check.Equal(t, name+": estimate by "+got.Node, got.Estimates[0].Outcome, c.want)
	}
	check.Equal(t, "the node's own view, afterwards", reverts.Estimates[0].Outcome, txmanager.Refused)
}

// If nothing would end and there is no violation, no other node is queried.
func TestNoOtherNodeIsQueriedWithoutAClaim(t *testing.T) {
	t.Parallel()
	x := txtest.Pending(5)
	w := txtest.StateOf(1, 6, x)
	p := &txtest.Panel{Views: txtest.OfNodes(txtest.ViewOf(w, txtest.Block('a', 100)), txtest.ViewOf(w, txtest.Block('a', 100))), Needed: 2}
	if v := looks(t, p, w, txtest.Asking(w)); p.Asked != 0 || v.Disputes != (txmanager.Disputes{}) {
		t.Errorf("got %d asked, doubts %+v; want none", p.Asked, v.Disputes)
	}
}

// One node alone, which may be on a fork, does not clear a suspected violation that a quorum
// agreed with. Until others agree, nothing is allocated.
func TestClearingASuspicionNeedsAQuorum(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(1, 5)
	w.SuspectedViolation = &txmanager.Violation{Kind: txmanager.CountAhead, Block: 100, ExpectedNonce: 5}
	fine, before := txtest.ViewOf(w, txtest.Block('a', 101)), txtest.ViewOf(w, txtest.Block('a', 99))
	ahead := txtest.ViewOf(w, txtest.Block('a', 101))
	ahead.Account.LatestCount, ahead.Account.PendingCount = 6, 6
	for name, c := range map[string]struct {
		quorum int
		views  []txmanager.ChainObservation
		trust  bool
		opens  bool
		waits  bool
	}{
		"alone, others are away":    {2, txtest.OfNodes(fine), false, false, true},
		"alone, others are behind":  {2, txtest.OfNodes(fine, before, before), false, false, true},
		"alone, others still see":   {2, txtest.OfNodes(fine, ahead, ahead), false, true, true},
		"two of three":              {2, txtest.OfNodes(fine, ahead, fine), true, false, false},
		"one of one that answers":   {1, txtest.OfNodes(fine), true, false, false},
		"one against the other one": {1, txtest.OfNodes(fine, ahead), false, false, true},
	} {
		p := &txtest.Panel{Views: c.views, Needed: c.quorum}
		v := looks(t, p, w, txtest.Asking(w))
		got := rules.EvaluateViolation(w, v)
		if got.ClearSuspected != c.trust || (got.OpenIncident != nil) != c.opens {
			t.Errorf("%s: got trust %v, PROTECT %v by %s; want %v and %v", name, got.ClearSuspected, got.OpenIncident, v.Node, c.trust, c.opens)
		}
		check.Equal(t, name+": allocation waiting", rules.AllocationBlocked(w, v).Reason != "", c.waits)
	}
}

// An account's counts are those that a quorum of the chain's nodes shows, whichever node is
// queried first. Without a quorum there is no answer.
func TestAccountIsWhatAQuorumShows(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(1, 0)
	shows := func(latest, pending uint64, code bool) txmanager.ChainObservation {
		v := txtest.ViewOf(w, txtest.Block('a', 100))
		v.Account.LatestCount, v.Account.PendingCount, v.Account.HasCode = latest, pending, code
		return v
	}
	fresh, used, pends, code := shows(0, 0, false), shows(7, 7, false), shows(0, 1, false), shows(0, 0, true)
	lags := fresh
	lags.Lagging = true
	silent := txmanager.ChainObservation{NoAnswer: true}
	for name, c := range map[string]struct {
		quorum int
		views  []txmanager.ChainObservation
		want   *txmanager.Account // nil: the nodes do not agree
	}{
		"one node":                          {1, txtest.OfNodes(used), &used.Account},
		"all alike":                         {2, txtest.OfNodes(used, used, used), &used.Account},
		"the first lags unnoticed":          {2, txtest.OfNodes(fresh, used, used), &used.Account},
		"another lies":                      {2, txtest.OfNodes(used, fresh, used), &used.Account},
		"one of two":                        {1, txtest.OfNodes(fresh, used), nil},
		"one of two, the other lags":        {1, txtest.OfNodes(used, lags), &used.Account},
		"one of two, the other is silent":   {1, txtest.OfNodes(fresh, silent), nil},
		"one of three, the others silent":   {2, txtest.OfNodes(fresh, silent, silent), nil},
		"each says something else":          {2, txtest.OfNodes(fresh, used, pends), nil},
		"a pool that the first has not":     {2, txtest.OfNodes(fresh, pends, pends), &pends.Account},
		"code that the first does not show": {2, txtest.OfNodes(fresh, code, code), &code.Account},
		"two against two":                   {2, txtest.OfNodes(fresh, fresh, used, used), nil},
	} {
		got, err := AgreedAccount(t.Context(), &txtest.Panel{Views: c.views, Needed: c.quorum}, txtest.Alice)
		switch {
		case c.want == nil && !errors.Is(err, txmanager.ErrNoQuorum):
			t.Errorf("%s: got %+v, %v; want that the nodes do not agree", name, got, err)
		case c.want != nil && (err != nil || !sameUse(got, *c.want)):
			t.Errorf("%s: got %+v, %v; want %+v", name, got, err, *c.want)
		}
	}
}

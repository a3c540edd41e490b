package txmanager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/shared/lease"
)

// OtherNodes are the nodes of a chain that has several. What one node says moves
// a transaction forward; what would end one, or open PROTECT, or take a receipt
// back, is put to the others first.
type OtherNodes interface {
	// Quorum is how many nodes must say the same, the first among them.
	Quorum() int

	// QueryOthers asks at most n nodes the same, but those named. Who is away says nothing:
	// there may be fewer views, or none. [ChainObservation.Lagging] is set in those of nodes that are
	// far behind, [ChainObservation.NoAnswer] in those of nodes that are not heard for the first time.
	QueryOthers(ctx context.Context, q ChainQuery, n int, but ...string) []ChainObservation

	// QueryExcluded asks the nodes that Ask leaves out because they failed a while ago, or were
	// of another chain, but those named: they may be well again.
	QueryExcluded(ctx context.Context, q ChainQuery, but ...string) []ChainObservation

	// ReportOutvoted tells that the others do not bear out what this node said: it is
	// not asked for a while.
	ReportOutvoted(ctx context.Context, node, what string)
}

// Disputes are what of a view was put to other nodes and not borne out by enough of
// them: it counts as unknown.
type Disputes struct {
	Finality     bool   // that blocks are the chain's: nothing above FinalityUpTo ends by it
	FinalityUpTo uint64 // the highest block below those that is borne out; 0: none is
	Counts       bool   // counts, and blocks that are gone: nothing is taken back, suspected or allocated by it, and nothing ends
}

// keepsOpen says that what is in the block does not end.
func (d Disputes) keepsOpen(block uint64) bool {
	return d.Counts || d.Finality && block > d.FinalityUpTo
}

// maxClaimedBlocks is how many blocks of each kind other nodes are asked for: both kinds and
// one more are within what a look may watch.
const maxClaimedBlocks = (maxWatched - 1) / 2

// allNodes is more nodes than any chain has here.
const allNodes = 100

// vote is what another node's view makes of an assertion.
type vote int

const (
	abstains vote = iota
	agrees
	disagrees
	noAnswer // nobody knows what it would say
)

// claim is something in a view that one node does not decide alone.
type claim struct {
	what      string
	finality  bool // it would end a transaction; else it is a sign, or an estimate
	violation bool // it is the sign of a broken premise
	absence   bool // it is that something is missing, which is no news by itself: only who says so may be wrong
	estimate  int  // which of the look's estimates it is, counted from 1; 0: none
	heights   []uint64
	receipts  []Receipt // by which it would end
	vote      func(ChainObservation) vote
}

// queryAgreed looks, and has the chain's other nodes bear out what matters. Where
// they contradict a node, another one is looked at, once.
func (t *leaseSession) queryAgreed(ctx context.Context, q ChainQuery) (ChainObservation, error) {
	v, err := t.query(ctx, q)
	if err != nil || v.OtherNodes == nil {
		return v, err
	}
	v, against, err := t.applyQuorum(ctx, q, v)
	if err != nil || against == "" {
		return v, err
	}
	v.OtherNodes.ReportOutvoted(ctx, v.Node, against)
	again, err := t.query(ctx, q)
	if err != nil || again.Node == v.Node {
		return v, nil // what the first look found stands, with its doubts
	}
	again, _, err = t.applyQuorum(ctx, q, again)
	return again, err
}

// applyQuorum asks other nodes about what v asserts, and returns v with doubts where too
// few bear them out; and, if as many contradict v's node as agree with it, about what.
func (t *leaseSession) applyQuorum(ctx context.Context, q ChainQuery, v ChainObservation) (_ ChainObservation, against string, err error) {
	asserted := t.Rules.claims(t.state, q, v)
	everything := slices.ContainsFunc(asserted, func(c claim) bool { return !c.finality })
	views, err := t.collectVotes(ctx, v, t.state.voteQuery(q, asserted, everything), asserted, everything)
	if err != nil {
		return v, "", err
	}
	v.Estimates = slices.Clone(v.Estimates)
	for _, c := range asserted {
		if c.hasQuorum(views, v.OtherNodes.Quorum()) {
			switch {
			case c.violation:
				v.AgreedBy = c.agreeingNodes(views)
			case c.finality && !v.Disputes.Finality: // ascending: headers name their parents
				v.Disputes.FinalityUpTo = c.heights[0]
			}
			continue
		}
		if yes, no := c.countVotes(views); no >= yes {
			against = c.what
		}
		switch {
		case c.finality && v.Disputes.Finality: // what is above the lowest in doubt waits with it
			continue
		case c.estimate > 0:
			v.Estimates[c.estimate-1] = Estimate{Outcome: Unknown, Reason: "the chain's nodes do not agree that it would revert"}
		case c.absence:
		case c.finality:
			v.Disputes.Finality = true
		default:
			v.Disputes.Counts = true
		}
		t.Log.WarnContext(ctx, "not borne out by the chain's other nodes: it waits", append(t.logAttrs(), "node", v.Node, "assertion", c.what, "asked", nodeNames(views))...)
	}
	if !v.Disputes.Finality {
		v.Disputes.FinalityUpTo = 0
	}
	return v, against, nil
}

// collectVotes asks other nodes about what is asserted of v: as many as a quorum needs,
// and at least one, who may know better; where those do not bear it out, or everybody
// is to be asked, all.
func (t *leaseSession) collectVotes(ctx context.Context, v ChainObservation, ask ChainQuery, asserted []claim, everybody bool) ([]ChainObservation, error) {
	if len(asserted) == 0 {
		return nil, nil
	}
	most := max(v.OtherNodes.Quorum()-1, 1)
	if everybody {
		most = allNodes
	}
	views, err := t.queryOthers(ctx, v, ask, most)
	open := slices.ContainsFunc(asserted, func(c claim) bool { return !c.hasQuorum(views, v.OtherNodes.Quorum()) || c.isUnanswered(views) })
	if err == nil && !everybody && open {
		var more []ChainObservation
		more, err = t.queryOthers(ctx, v, ask, allNodes, nodeNames(views)...)
		views = append(views, more...)
	}
	if err != nil || v.OtherNodes.Quorum() > 1 {
		return views, err
	}
	return views, t.findForks(ctx, v, asserted, views)
}

// findForks marks the views of nodes that are not ahead, and so have nothing to say about
// v, and whose heads are no blocks of v's chain. That matters where one node's word is
// enough: it may be ahead because it is on a fork. Where v's node does not tell, nobody
// knows, and they count as forked.
func (t *leaseSession) findForks(ctx context.Context, v ChainObservation, asserted []claim, views []ChainObservation) error {
	var heads []uint64
	behind := func(o ChainObservation) bool {
		return !o.NoAnswer && o.Head.Number <= v.Head.Number && o.Head.Hash != v.Head.Hash && slices.ContainsFunc(asserted, func(c claim) bool { return c.vote(o) == abstains })
	}
	for _, o := range views {
		if behind(o) {
			heads = append(heads, o.Head.Number)
		}
	}
	if len(heads) == 0 {
		return nil
	}
	slices.Sort(heads)
	chain, err := t.query(ctx, ChainQuery{Submitter: t.state.submitterOf(), HashesAt: slices.Compact(heads)})
	if errors.Is(err, lease.ErrFenced) {
		return err
	}
	for i, o := range views {
		if behind(o) {
			views[i].Forked = err != nil || chain.Node != v.Node || chain.HashesAt[o.Head.Number] != o.Head.Hash
		}
	}
	return nil
}

// ErrNoQuorum reports that too few of the chain's nodes say what a decision would stand
// on. Nothing was changed.
var ErrNoQuorum = errors.New("the chain's nodes do not agree")

// requireQuorum puts to all other nodes, by the same question, what v was found to say. The
// error wraps [ErrNoQuorum] if it is not borne out. An operator is not refused before the
// nodes that are away were asked again.
func (t *leaseSession) requireQuorum(ctx context.Context, q ChainQuery, v ChainObservation, what string, say func(ChainObservation) vote) error {
	if v.OtherNodes == nil {
		return nil
	}
	c := claim{what: what, vote: say}
	views, err := t.collectVotes(ctx, v, q, []claim{c}, true)
	if err == nil && t.forOperator && !c.hasQuorum(views, v.OtherNodes.Quorum()) {
		views, err = t.queryExcluded(ctx, v, q, views)
	}
	if err != nil {
		return err
	}
	if !c.hasQuorum(views, v.OtherNodes.Quorum()) {
		yes, no := c.countVotes(views)
		return fmt.Errorf("%w that %s: of those that answer %d say so and %d say otherwise, and %d must", ErrNoQuorum, what, yes, no, v.OtherNodes.Quorum())
	}
	return nil
}

func (t *leaseSession) queryOthers(ctx context.Context, v ChainObservation, q ChainQuery, most int, but ...string) (views []ChainObservation, err error) {
	err = t.callOutside(ctx, func(ctx context.Context) error {
		views = v.OtherNodes.QueryOthers(ctx, q, most, append(but, v.Node)...)
		return nil
	})
	return views, err
}

// queryExcluded adds to the views those of nodes that were away.
func (t *leaseSession) queryExcluded(ctx context.Context, v ChainObservation, q ChainQuery, views []ChainObservation) ([]ChainObservation, error) {
	err := t.callOutside(ctx, func(ctx context.Context) error {
		views = append(views, v.OtherNodes.QueryExcluded(ctx, q, append(nodeNames(views), v.Node)...)...)
		return nil
	})
	return views, err
}

func nodeNames(views []ChainObservation) (list []string) {
	for _, v := range views {
		list = append(list, v.Node)
	}
	return list
}

// voteOf is what a view makes of the assertion. A node on another fork contradicts what it
// cannot bear out.
func (c claim) voteOf(o ChainObservation) vote {
	if o.NoAnswer {
		return noAnswer
	}
	if v := c.vote(o); v != abstains || !o.Forked {
		return v
	}
	return disagrees
}

// countVotes is how many nodes bear the assertion out, with the one that made it, and how
// many contradict it; the others say nothing.
func (c claim) countVotes(views []ChainObservation) (yes, no int) {
	yes = 1
	for _, v := range views {
		switch c.voteOf(v) {
		case agrees:
			yes++
		case disagrees:
			no++
		}
	}
	return yes, no
}

// isUnanswered says that none of those asked had anything to say about the assertion.
func (c claim) isUnanswered(views []ChainObservation) bool {
	yes, no := c.countVotes(views)
	return yes+no == 1
}

// agreeingNodes are the names of those that bear it out.
func (c claim) agreeingNodes(views []ChainObservation) string {
	return strings.Join(nodeNames(slices.DeleteFunc(slices.Clone(views), func(v ChainObservation) bool { return c.voteOf(v) != agrees })), ", ")
}

// hasQuorum says that a quorum bears the assertion out, and more than contradict it or may
// do so when they are heard again.
func (c claim) hasQuorum(views []ChainObservation, quorum int) bool {
	yes, no := c.countVotes(views)
	for _, v := range views {
		if c.voteOf(v) == noAnswer {
			no++
		}
	}
	return yes >= quorum && yes > no
}

// voteQuery is what other nodes are asked about assertions.
func (w SubmitterState) voteQuery(q ChainQuery, asserted []claim, everything bool) ChainQuery {
	ask := ChainQuery{Submitter: q.Submitter}
	for _, c := range asserted {
		ask.HashesAt = append(ask.HashesAt, c.heights...)
		for _, rec := range c.receipts {
			ask.Receipts = append(ask.Receipts, rec.TxHash)
		}
		if c.finality {
			ask.Finality = q.Finality
		}
	}
	if everything {
		ask.Account, ask.Estimates = true, q.Estimates
		if last, ok := w.lastFinal(); ok {
			ask.HashesAt = append(ask.HashesAt, last.Number)
		}
		if len(w.Open) > 0 {
			ask.Receipts, ask.Known = append(ask.Receipts, w.Open[0].Versions...), w.Open[0].Versions
		}
	}
	slices.Sort(ask.HashesAt)
	ask.HashesAt = slices.Compact(ask.HashesAt)
	return ask
}

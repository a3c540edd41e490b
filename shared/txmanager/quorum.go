package txmanager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/shared/lease"
)

// OtherNodes are the other nodes of a chain with several. One node's answer is enough to advance a
// transaction. A claim that would end one, open PROTECT or remove a receipt is put to the others
// first.
type OtherNodes interface {
	// Quorum is how many nodes must agree, the first one included.
	Quorum() int

	// QueryOthers sends the query to at most n other nodes, except those named. Unavailable nodes
	// give no observation, so the list may be shorter or empty. An observation of a node that is
	// far behind has [ChainObservation.Lagging] set. One of a node that fails to answer for the
	// first time has [ChainObservation.NoAnswer] set.
	QueryOthers(ctx context.Context, q ChainQuery, n int, but ...string) []ChainObservation

	// QueryExcluded sends the query to the nodes that QueryOthers skips because they failed or
	// were on another chain, except those named. They may have recovered.
	QueryExcluded(ctx context.Context, q ChainQuery, but ...string) []ChainObservation

	// ReportOutvoted reports that the other nodes disagree with this one, which is then excluded
	// for a while.
	ReportOutvoted(ctx context.Context, node, what string)
}

// Disputes are the parts of an observation that too few other nodes agree with. They count as
// unknown.
type Disputes struct {
	Finality     bool   // that blocks are canonical: no transaction above FinalityUpTo becomes final
	FinalityUpTo uint64 // the highest agreed block below the disputed ones; 0: none
	Counts       bool   // counts, and blocks reported gone: no receipt is removed, nothing is suspected or allocated, and no transaction ends
}

// keepsOpen reports whether transactions in the block must not end.
func (d Disputes) keepsOpen(block uint64) bool {
	return d.Counts || d.Finality && block > d.FinalityUpTo
}

// maxClaimedBlocks is how many blocks of each kind other nodes are asked about. Both kinds and one
// more block fit into maxWatched.
const maxClaimedBlocks = (maxWatched - 1) / 2

// allNodes is more nodes than any chain has.
const allNodes = 100

// vote is another node's position on a claim, read from its observation.
type vote int

const (
	abstains vote = iota
	agrees
	disagrees
	noAnswer // the node's position is unknown
)

// claim is a statement in an observation that one node does not decide alone.
type claim struct {
	what      string
	finality  bool // it would end a transaction; otherwise it is a sign of something, or an estimate
	violation bool // it is the sign of a violation
	absence   bool // something is missing, which changes nothing; only the node that says so may be wrong
	estimate  int  // which of the query's estimates it is, counted from 1; 0: none
	heights   []uint64
	receipts  []Receipt // the receipts that would make it final
	vote      func(ChainObservation) vote
}

// queryAgreed queries the chain and puts the decisive claims to the other nodes. If they
// contradict the node, it queries another one, once.
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
		return v, nil // the first observation remains valid, with its disputes
	}
	again, _, err = t.applyQuorum(ctx, q, again)
	return again, err
}

// applyQuorum puts the claims of v to other nodes. It returns v with the disputed parts marked.
// against is a claim that at least as many nodes contradict as agree with, or "".
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
		case c.finality && v.Disputes.Finality: // blocks above the lowest disputed one wait with it
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

// collectVotes queries other nodes about the claims of v. It asks as many as a quorum needs, and
// at least one. If those do not agree, or with everybody, it asks all.
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

// findForks marks the observations of nodes that are on a fork. It checks nodes that abstain and
// are not ahead of v, since a quorum of one node would otherwise accept a node that is ahead only
// on its own fork. If v's node cannot tell, they count as forked.
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

// ErrNoQuorum reports that too few nodes agree with what a decision depends on. Nothing was
// changed.
var ErrNoQuorum = errors.New("the chain's nodes do not agree")

// requireQuorum puts one claim about v to all other nodes with the same query. The error wraps
// [ErrNoQuorum] if they do not agree. Before an operator's request is refused, the excluded nodes
// are queried too.
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

// queryExcluded adds the observations of nodes that were excluded.
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

// voteOf is the vote of observation o. A forked node that abstains counts as disagreeing.
func (c claim) voteOf(o ChainObservation) vote {
	if o.NoAnswer {
		return noAnswer
	}
	if v := c.vote(o); v != abstains || !o.Forked {
		return v
	}
	return disagrees
}

// countVotes counts the nodes that agree, with the one that made the claim, and those that
// disagree.
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

// isUnanswered reports whether every other node abstained or gave no answer.
func (c claim) isUnanswered(views []ChainObservation) bool {
	yes, no := c.countVotes(views)
	return yes+no == 1
}

// agreeingNodes are the names of the nodes that agree.
func (c claim) agreeingNodes(views []ChainObservation) string {
	return strings.Join(nodeNames(slices.DeleteFunc(slices.Clone(views), func(v ChainObservation) bool { return c.voteOf(v) != agrees })), ", ")
}

// hasQuorum reports whether a quorum agrees, and more nodes agree than disagree or gave no answer.
func (c claim) hasQuorum(views []ChainObservation, quorum int) bool {
	yes, no := c.countVotes(views)
	for _, v := range views {
		if c.voteOf(v) == noAnswer {
			no++
		}
	}
	return yes >= quorum && yes > no
}

// voteQuery is the query that lets other nodes vote on the claims.
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

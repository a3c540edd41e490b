// Package quorum puts the claims of one node that would end a transaction, remove a receipt or open
// PROTECT to the chain's other nodes. What too few of them agree with counts as unknown.
package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
)

// maxClaimedBlocks is how many blocks of each kind other nodes are asked about. Both kinds and one
// more block fit into MaxWatched.
const maxClaimedBlocks = (rules.MaxWatched - 1) / 2

// allNodes is more nodes than any chain has.
const allNodes = 100

// Vote is another node's position on a claim, read from its observation.
type Vote int

const (
	Abstains Vote = iota
	Agrees
	Disagrees
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
	receipts  []txmanager.Receipt // the receipts that would make it final
	vote      func(txmanager.ChainObservation) Vote
}

// Query queries the chain and puts the decisive claims to the other nodes. If they
// contradict the node, it queries another one, once.
func Query(ctx context.Context, t *session.Session, q txmanager.ChainQuery) (txmanager.ChainObservation, error) {
	v, err := t.Query(ctx, q)
	if err != nil || v.OtherNodes == nil {
		return v, err
	}
	v, against, err := applyQuorum(ctx, t, q, v)
	if err != nil || against == "" {
		return v, err
	}
	v.OtherNodes.ReportOutvoted(ctx, v.Node, against)
	again, err := t.Query(ctx, q)
	if err != nil || again.Node == v.Node {
		return v, nil // the first observation remains valid, with its disputes
	}
	again, _, err = applyQuorum(ctx, t, q, again)
	return again, err
}

// applyQuorum puts the claims of v to other nodes. It returns v with the disputed parts marked.
// against is a claim that at least as many nodes contradict as agree with, or "".
func applyQuorum(ctx context.Context, t *session.Session, q txmanager.ChainQuery, v txmanager.ChainObservation) (_ txmanager.ChainObservation, against string, err error) {
	asserted := claims(t.Rules, t.State, q, v)
	views, err := poll{t, v, voteQuery(t.State, q, asserted)}.collectVotes(ctx, asserted)
	if err != nil {
		return v, "", err
	}
	v.Estimates = slices.Clone(v.Estimates)
	for _, c := range asserted {
		if c.hasQuorum(views, v.OtherNodes.Quorum()) {
			switch {
			case c.violation:
				agreeing := slices.DeleteFunc(slices.Clone(views), func(o txmanager.ChainObservation) bool { return c.voteOf(o) != Agrees })
				v.AgreedBy = strings.Join(nodeNames(agreeing), ", ")
			case c.finality && !v.Disputes.Finality: // ascending: headers name their parents
				v.Disputes.FinalityUpTo = c.heights[0]
			}
			continue
		}
		if yes, no, _ := c.countVotes(views); no >= yes {
			against = c.what
		}
		switch {
		case c.finality && v.Disputes.Finality: // blocks above the lowest disputed one wait with it
			continue
		case c.estimate > 0:
			v.Estimates[c.estimate-1] = txmanager.Estimate{Outcome: txmanager.Unknown, Reason: "the chain's nodes do not agree that it would revert"}
		case c.absence:
		case c.finality:
			v.Disputes.Finality = true
		default:
			v.Disputes.Counts = true
		}
		t.Log.WarnContext(ctx, "the chain's other nodes do not agree: the transaction waits", append(t.LogAttrs(), "node", v.Node, "assertion", c.what, "asked", nodeNames(views))...)
	}
	if !v.Disputes.Finality {
		v.Disputes.FinalityUpTo = 0
	}
	return v, against, nil
}

// poll is a query that the nodes beside the one of v answer, as their votes.
type poll struct {
	*session.Session
	v txmanager.ChainObservation
	q txmanager.ChainQuery
}

// collectVotes queries other nodes about the claims of v. It asks as many as a quorum needs, and
// at least one. If those do not agree, or for a claim that would not end a transaction, it asks all.
func (p poll) collectVotes(ctx context.Context, asserted []claim) ([]txmanager.ChainObservation, error) {
	if len(asserted) == 0 {
		return nil, nil
	}
	quorum, everybody := p.v.OtherNodes.Quorum(), slices.ContainsFunc(asserted, claim.needsAll)
	limit := max(quorum-1, 1)
	if everybody {
		limit = allNodes
	}
	views, err := p.queryOthers(ctx, limit)
	open := slices.ContainsFunc(asserted, func(c claim) bool { return !c.hasQuorum(views, quorum) || c.isUnanswered(views) })
	if err == nil && !everybody && open {
		var more []txmanager.ChainObservation
		more, err = p.queryOthers(ctx, allNodes, nodeNames(views)...)
		views = append(views, more...)
	}
	if err != nil || quorum > 1 {
		return views, err
	}
	return views, findForks(ctx, p.Session, p.v, asserted, views)
}

// findForks marks the observations of nodes that are on a fork. It checks nodes that abstain and
// are not ahead of v, since a quorum of one node would otherwise accept a node that is ahead only
// on its own fork. If v's node cannot tell, they count as forked.
func findForks(ctx context.Context, t *session.Session, v txmanager.ChainObservation, asserted []claim, views []txmanager.ChainObservation) error {
	var heads []uint64
	behind := func(o txmanager.ChainObservation) bool {
		return !o.NoAnswer && o.Head.Number <= v.Head.Number && o.Head.Hash != v.Head.Hash && slices.ContainsFunc(asserted, func(c claim) bool { return c.vote(o) == Abstains })
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
	chain, err := t.Query(ctx, txmanager.ChainQuery{Submitter: t.State.Submitter(), HashesAt: slices.Compact(heads)})
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

// Require puts one claim about v, what, to all other nodes with the same query. The function vote reads a node's
// position from its answer. The error wraps [txmanager.ErrNoQuorum] if they do not agree. Before an operator's
// request is refused, the excluded nodes are queried too.
func Require(ctx context.Context, t *session.Session, q txmanager.ChainQuery, v txmanager.ChainObservation, what string, vote func(txmanager.ChainObservation) Vote) error {
	if v.OtherNodes == nil {
		return nil
	}
	p, quorum, c := poll{t, v, q}, v.OtherNodes.Quorum(), claim{what: what, vote: vote}
	views, err := p.collectVotes(ctx, []claim{c})
	if err == nil && t.ForOperator && !c.hasQuorum(views, quorum) {
		views, err = p.queryExcluded(ctx, views)
	}
	if err != nil {
		return err
	}
	if !c.hasQuorum(views, quorum) {
		yes, no, _ := c.countVotes(views)
		return fmt.Errorf("%w that %s: %d nodes agree and %d disagree, and %d must agree", txmanager.ErrNoQuorum, c.what, yes, no, quorum)
	}
	return nil
}

// QueryAll sends q to all nodes beside the one of v.
func QueryAll(ctx context.Context, t *session.Session, v txmanager.ChainObservation, q txmanager.ChainQuery) ([]txmanager.ChainObservation, error) {
	return poll{t, v, q}.queryOthers(ctx, allNodes)
}

func (p poll) queryOthers(ctx context.Context, limit int, but ...string) ([]txmanager.ChainObservation, error) {
	return session.Outside(ctx, p.Session, func(ctx context.Context) ([]txmanager.ChainObservation, error) {
		return p.v.OtherNodes.QueryOthers(ctx, p.q, limit, append(but, p.v.Node)...), nil
	})
}

// queryExcluded adds the observations of nodes that were excluded.
func (p poll) queryExcluded(ctx context.Context, views []txmanager.ChainObservation) ([]txmanager.ChainObservation, error) {
	return session.Outside(ctx, p.Session, func(ctx context.Context) ([]txmanager.ChainObservation, error) {
		return append(views, p.v.OtherNodes.QueryExcluded(ctx, p.q, append(nodeNames(views), p.v.Node)...)...), nil
	})
}

func nodeNames(views []txmanager.ChainObservation) (list []string) {
	for _, v := range views {
		list = append(list, v.Node)
	}
	return list
}

// needsAll reports whether all nodes vote on the claim: it would not end a transaction.
func (c claim) needsAll() bool { return !c.finality }

// voteOf is the vote of observation o. A forked node that abstains counts as disagreeing.
func (c claim) voteOf(o txmanager.ChainObservation) Vote {
	if o.NoAnswer {
		return noAnswer
	}
	if v := c.vote(o); v != Abstains || !o.Forked {
		return v
	}
	return Disagrees
}

// countVotes counts the nodes that agree, with the one that made the claim, those that disagree, and those
// that gave no answer.
func (c claim) countVotes(views []txmanager.ChainObservation) (yes, no, silent int) {
	yes = 1
	for _, v := range views {
		switch c.voteOf(v) {
		case Agrees:
			yes++
		case Disagrees:
			no++
		case noAnswer:
			silent++
		}
	}
	return yes, no, silent
}

// isUnanswered reports whether every other node abstained or gave no answer.
func (c claim) isUnanswered(views []txmanager.ChainObservation) bool {
	yes, no, _ := c.countVotes(views)
	return yes+no == 1
}

// hasQuorum reports whether a quorum agrees, and more nodes agree than disagree or gave no answer.
func (c claim) hasQuorum(views []txmanager.ChainObservation, quorum int) bool {
	yes, no, silent := c.countVotes(views)
	return yes >= quorum && yes > no+silent
}

// voteQuery is the query that lets other nodes vote on the claims.
func voteQuery(w txmanager.SubmitterState, q txmanager.ChainQuery, asserted []claim) txmanager.ChainQuery {
	ask := txmanager.ChainQuery{Submitter: q.Submitter}
	for _, c := range asserted {
		ask.HashesAt = append(ask.HashesAt, c.heights...)
		for _, rec := range c.receipts {
			ask.Receipts = append(ask.Receipts, rec.TxHash)
		}
		if c.finality {
			ask.Finality = q.Finality
		}
	}
	if slices.ContainsFunc(asserted, claim.needsAll) {
		ask.Account, ask.Estimates = true, q.Estimates
		if last, ok := w.LastFinal(); ok {
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

// AgreedAccount queries the chain for the account of s: its counts, and whether it has code. For a
// chain with several nodes it queries all. The answer needs a quorum of nodes, and more nodes that
// agree than disagree. A node that lags is not counted. A node that gave no answer, and was not
// excluded, counts as disagreeing.
//
// The error wraps [txmanager.ErrNoQuorum] if no answer has enough nodes.
func AgreedAccount(ctx context.Context, chain txmanager.ChainConnector, s txmanager.Submitter) (txmanager.Account, error) {
	q := txmanager.ChainQuery{Submitter: s, Account: true}
	v, err := chain.Query(ctx, q)
	if err != nil || v.OtherNodes == nil {
		return v.Account, err
	}
	views := append([]txmanager.ChainObservation{v}, v.OtherNodes.QueryOthers(ctx, q, allNodes, v.Node)...)
	for i, candidate := range views {
		same := claim{vote: func(o txmanager.ChainObservation) Vote {
			switch {
			case o.Lagging:
				return Abstains
			case sameUse(candidate.Account, o.Account):
				return Agrees
			}
			return Disagrees
		}}
		if same.voteOf(candidate) == Agrees && same.hasQuorum(slices.Concat(views[:i], views[i+1:]), v.OtherNodes.Quorum()) {
			return candidate.Account, nil
		}
	}
	return txmanager.Account{}, fmt.Errorf("%w on the account's counts: %d were asked, and %d must say the same", txmanager.ErrNoQuorum, len(views), v.OtherNodes.Quorum())
}

// sameUse reports whether two nodes show the same counts and code of an account.
func sameUse(a, b txmanager.Account) bool {
	return a.LatestCount == b.LatestCount && a.PendingCount == b.PendingCount && a.HasCode == b.HasCode
}

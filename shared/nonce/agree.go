package nonce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/shared/lease"
)

// Witnesses are the nodes of a chain that has several. What one node says moves
// a transaction forward; what would end one, or open PROTECT, or take a receipt
// back, is put to the others first.
type Witnesses interface {
	// Quorum is how many nodes must say the same, the first among them.
	Quorum() int

	// Ask asks at most n nodes the same, but those named. Who is away says nothing:
	// there may be fewer views, or none. [View.Lags] is set in those of nodes that are
	// far behind, [View.Silent] in those of nodes that are not heard for the first time.
	Ask(ctx context.Context, q Look, n int, but ...string) []View

	// AskAway asks the nodes that Ask leaves out because they failed a while ago, or were
	// of another chain, but those named: they may be well again.
	AskAway(ctx context.Context, q Look, but ...string) []View

	// Contradicted tells that the others do not bear out what this node said: it is
	// not asked for a while.
	Contradicted(ctx context.Context, node, what string)
}

// Doubts are what of a view was put to other nodes and not borne out by enough of
// them: it counts as unknown.
type Doubts struct {
	Ends     bool   // that blocks are the chain's: nothing above EndsUpTo ends by it
	EndsUpTo uint64 // the highest block below those that is borne out; 0: none is
	Signs    bool   // counts, and blocks that are gone: nothing is taken back, suspected or allocated by it, and nothing ends
}

// keepOpen says that what is in the block does not end.
func (d Doubts) keepOpen(block uint64) bool { return d.Signs || d.Ends && block > d.EndsUpTo }

// mostBlocks is how many blocks of each kind other nodes are asked for: both kinds and
// one more are within what a look may watch.
const mostBlocks = (maxWatched - 1) / 2

// everyNode is more nodes than any chain has here.
const everyNode = 100

// vote is what another node's view makes of an assertion.
type vote int

const (
	silent vote = iota
	bearsOut
	contradicts
	open // nobody knows what it would say
)

// assertion is something in a view that one node does not decide alone.
type assertion struct {
	what     string
	ends     bool // it would end a transaction; else it is a sign, or an estimate
	premise  bool // it is the sign of a broken premise
	absence  bool // it is that something is missing, which is no news by itself: only who says so may be wrong
	estimate int  // which of the look's estimates it is, counted from 1; 0: none
	heights  []uint64
	receipts []Receipt // by which it would end
	vote     func(View) vote
}

// lookAgreed looks, and has the chain's other nodes bear out what matters. Where
// they contradict a node, another one is looked at, once.
func (t *tenure) lookAgreed(ctx context.Context, q Look) (View, error) {
	v, err := t.look(ctx, q)
	if err != nil || v.Witnesses == nil {
		return v, err
	}
	v, against, err := t.agree(ctx, q, v)
	if err != nil || against == "" {
		return v, err
	}
	v.Witnesses.Contradicted(ctx, v.Node, against)
	again, err := t.look(ctx, q)
	if err != nil || again.Node == v.Node {
		return v, nil // what the first look found stands, with its doubts
	}
	again, _, err = t.agree(ctx, q, again)
	return again, err
}

// agree asks other nodes about what v asserts, and returns v with doubts where too
// few bear them out; and, if as many contradict v's node as agree with it, about what.
func (t *tenure) agree(ctx context.Context, q Look, v View) (_ View, against string, err error) {
	asserted := t.Rules.assertions(t.work, q, v)
	everything := slices.ContainsFunc(asserted, func(c assertion) bool { return !c.ends })
	views, err := t.putToOthers(ctx, v, t.work.testimony(q, asserted, everything), asserted, everything)
	if err != nil {
		return v, "", err
	}
	v.Estimates = slices.Clone(v.Estimates)
	for _, c := range asserted {
		if c.stands(views, v.Witnesses.Quorum()) {
			switch {
			case c.premise:
				v.BorneOutBy = c.bearers(views)
			case c.ends && !v.Doubts.Ends: // ascending: headers name their parents
				v.Doubts.EndsUpTo = c.heights[0]
			}
			continue
		}
		if yes, no := c.count(views); no >= yes {
			against = c.what
		}
		switch {
		case c.ends && v.Doubts.Ends: // what is above the lowest in doubt waits with it
			continue
		case c.estimate > 0:
			v.Estimates[c.estimate-1] = Estimate{Outcome: Unknown, Reason: "the chain's nodes do not agree that it would revert"}
		case c.absence:
		case c.ends:
			v.Doubts.Ends = true
		default:
			v.Doubts.Signs = true
		}
		t.Log.WarnContext(ctx, "not borne out by the chain's other nodes: it waits", append(t.attrs(), "node", v.Node, "assertion", c.what, "asked", names(views))...)
	}
	if !v.Doubts.Ends {
		v.Doubts.EndsUpTo = 0
	}
	return v, against, nil
}

// putToOthers asks other nodes about what is asserted of v: as many as a quorum needs,
// and at least one, who may know better; where those do not bear it out, or everybody
// is to be asked, all.
func (t *tenure) putToOthers(ctx context.Context, v View, ask Look, asserted []assertion, everybody bool) ([]View, error) {
	if len(asserted) == 0 {
		return nil, nil
	}
	most := max(v.Witnesses.Quorum()-1, 1)
	if everybody {
		most = everyNode
	}
	views, err := t.ask(ctx, v, ask, most)
	open := slices.ContainsFunc(asserted, func(c assertion) bool { return !c.stands(views, v.Witnesses.Quorum()) || c.unheard(views) })
	if err == nil && !everybody && open {
		var more []View
		more, err = t.ask(ctx, v, ask, everyNode, names(views)...)
		views = append(views, more...)
	}
	if err != nil || v.Witnesses.Quorum() > 1 {
		return views, err
	}
	return views, t.findForks(ctx, v, asserted, views)
}

// findForks marks the views of nodes that are not ahead, and so have nothing to say about
// v, and whose heads are no blocks of v's chain. That matters where one node's word is
// enough: it may be ahead because it is on a fork. Where v's node does not tell, nobody
// knows, and they count as forked.
func (t *tenure) findForks(ctx context.Context, v View, asserted []assertion, views []View) error {
	var heads []uint64
	behind := func(o View) bool {
		return !o.Silent && o.Head.Number <= v.Head.Number && o.Head.Hash != v.Head.Hash && slices.ContainsFunc(asserted, func(c assertion) bool { return c.vote(o) == silent })
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
	chain, err := t.look(ctx, Look{Submitter: t.work.submitter(), Watch: slices.Compact(heads)})
	if errors.Is(err, lease.ErrFenced) {
		return err
	}
	for i, o := range views {
		if behind(o) {
			views[i].Forked = err != nil || chain.Node != v.Node || chain.Watched[o.Head.Number] != o.Head.Hash
		}
	}
	return nil
}

// ErrNodes reports that too few of the chain's nodes say what a decision would stand
// on. Nothing was changed.
var ErrNodes = errors.New("the chain's nodes do not agree")

// borneOut puts to all other nodes, by the same question, what v was found to say. The
// error wraps [ErrNodes] if it is not borne out. An operator is not refused before the
// nodes that are away were asked again.
func (t *tenure) borneOut(ctx context.Context, q Look, v View, what string, say func(View) vote) error {
	if v.Witnesses == nil {
		return nil
	}
	c := assertion{what: what, vote: say}
	views, err := t.putToOthers(ctx, v, q, []assertion{c}, true)
	if err == nil && t.operator && !c.stands(views, v.Witnesses.Quorum()) {
		views, err = t.askAway(ctx, v, q, views)
	}
	if err != nil {
		return err
	}
	if !c.stands(views, v.Witnesses.Quorum()) {
		yes, no := c.count(views)
		return fmt.Errorf("%w that %s: of those that answer %d say so and %d say otherwise, and %d must", ErrNodes, what, yes, no, v.Witnesses.Quorum())
	}
	return nil
}

func (t *tenure) ask(ctx context.Context, v View, q Look, most int, but ...string) (views []View, err error) {
	err = t.call(ctx, func(ctx context.Context) error {
		views = v.Witnesses.Ask(ctx, q, most, append(but, v.Node)...)
		return nil
	})
	return views, err
}

// askAway adds to the views those of nodes that were away.
func (t *tenure) askAway(ctx context.Context, v View, q Look, views []View) ([]View, error) {
	err := t.call(ctx, func(ctx context.Context) error {
		views = append(views, v.Witnesses.AskAway(ctx, q, append(names(views), v.Node)...)...)
		return nil
	})
	return views, err
}

func names(views []View) (list []string) {
	for _, v := range views {
		list = append(list, v.Node)
	}
	return list
}

// said is what a view makes of the assertion. A node on another fork contradicts what it
// cannot bear out.
func (c assertion) said(o View) vote {
	if o.Silent {
		return open
	}
	if v := c.vote(o); v != silent || !o.Forked {
		return v
	}
	return contradicts
}

// count is how many nodes bear the assertion out, with the one that made it, and how
// many contradict it; the others say nothing.
func (c assertion) count(views []View) (yes, no int) {
	yes = 1
	for _, v := range views {
		switch c.said(v) {
		case bearsOut:
			yes++
		case contradicts:
			no++
		}
	}
	return yes, no
}

// unheard says that none of those asked had anything to say about the assertion.
func (c assertion) unheard(views []View) bool {
	yes, no := c.count(views)
	return yes+no == 1
}

// bearers are the names of those that bear it out.
func (c assertion) bearers(views []View) string {
	return strings.Join(names(slices.DeleteFunc(slices.Clone(views), func(v View) bool { return c.said(v) != bearsOut })), ", ")
}

// stands says that a quorum bears the assertion out, and more than contradict it or may
// do so when they are heard again.
func (c assertion) stands(views []View, quorum int) bool {
	yes, no := c.count(views)
	for _, v := range views {
		if c.said(v) == open {
			no++
		}
	}
	return yes >= quorum && yes > no
}

// testimony is what other nodes are asked about assertions.
func (w Work) testimony(q Look, asserted []assertion, everything bool) Look {
	ask := Look{Submitter: q.Submitter}
	for _, c := range asserted {
		ask.Watch = append(ask.Watch, c.heights...)
		for _, rec := range c.receipts {
			ask.Receipts = append(ask.Receipts, rec.TxHash)
		}
		if c.ends {
			ask.Finality = q.Finality
		}
	}
	if everything {
		ask.Account, ask.Estimates = true, q.Estimates
		if last, ok := w.lastFinal(); ok {
			ask.Watch = append(ask.Watch, last.Number)
		}
		if len(w.Unsettled) > 0 {
			ask.Receipts, ask.Known = append(ask.Receipts, w.Unsettled[0].Versions...), w.Unsettled[0].Versions
		}
	}
	slices.Sort(ask.Watch)
	ask.Watch = slices.Compact(ask.Watch)
	return ask
}

package nonce

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Witnesses are the nodes of a chain that has several. What one node says moves
// a transaction forward; what would end one, or open PROTECT, or take a receipt
// back, is put to the others first.
type Witnesses interface {
	// Quorum is how many nodes must say the same, the first among them.
	Quorum() int

	// Ask asks at most n nodes the same, but those named. Who does not answer, or
	// is far behind, has said nothing: there may be fewer views, or none.
	Ask(ctx context.Context, q Look, n int, but ...string) []View

	// Contradicted tells that the others do not bear out what this node said: it is
	// not asked for a while.
	Contradicted(ctx context.Context, node, what string)
}

// Doubts are what of a view was put to other nodes and not borne out by enough of
// them: it counts as unknown.
type Doubts struct {
	Ends  bool // that blocks are the chain's: nothing ends by it
	Signs bool // counts, and blocks that are gone: nothing is taken back, suspected or allocated by it
}

// everyNode is more nodes than any chain has here.
const everyNode = 100

// vote is what another node's view makes of an assertion.
type vote int

const (
	silent vote = iota
	bearsOut
	contradicts
)

// assertion is something in a view that one node does not decide alone.
type assertion struct {
	what     string
	ends     bool // it would end a transaction; else it is a sign, or an estimate
	premise  bool // it is the sign of a broken premise
	estimate int  // which of the look's estimates it is, counted from 1; 0: none
	heights  []uint64
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
// few bear them out; and, if more contradict v's node than agree with it, about what.
func (t *tenure) agree(ctx context.Context, q Look, v View) (_ View, against string, err error) {
	asserted := t.Rules.assertions(t.work, q, v)
	most, everything := v.Witnesses.Quorum()-1, slices.ContainsFunc(asserted, func(c assertion) bool { return !c.ends })
	if everything {
		most = everyNode
	}
	if len(asserted) == 0 || most == 0 {
		return v, "", nil
	}
	ask := t.work.testimony(q, asserted, everything)
	views, err := t.ask(ctx, v, ask, most)
	if err == nil && !everything && slices.ContainsFunc(asserted, func(c assertion) bool { return !c.stands(views, v.Witnesses.Quorum()) }) {
		var more []View
		more, err = t.ask(ctx, v, ask, everyNode, names(views)...)
		views = append(views, more...)
	}
	if err != nil {
		return v, "", err
	}
	v.Estimates = slices.Clone(v.Estimates)
	for _, c := range asserted {
		if c.stands(views, v.Witnesses.Quorum()) {
			if c.premise {
				v.BorneOutBy = c.bearers(views)
			}
			continue
		}
		if _, no := c.count(views); no > 0 {
			against = c.what
		}
		switch {
		case c.estimate > 0:
			v.Estimates[c.estimate-1] = Estimate{Outcome: Unknown, Reason: "the chain's nodes do not agree that it would revert"}
		case c.ends:
			v.Doubts.Ends = true
		default:
			v.Doubts.Signs = true
		}
		t.Log.WarnContext(ctx, "not borne out by the chain's other nodes: it waits", append(t.attrs(), "node", v.Node, "assertion", c.what, "asked", names(views))...)
	}
	return v, against, nil
}

func (t *tenure) ask(ctx context.Context, v View, q Look, most int, but ...string) (views []View, err error) {
	err = t.call(ctx, func(ctx context.Context) error {
		views = v.Witnesses.Ask(ctx, q, most, append(but, v.Node)...)
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

// count is how many nodes bear the assertion out, with the one that made it, and how
// many contradict it.
func (c assertion) count(views []View) (yes, no int) {
	yes = 1
	for _, v := range views {
		switch c.vote(v) {
		case bearsOut:
			yes++
		case contradicts:
			no++
		}
	}
	return yes, no
}

// bearers are the names of those that bear it out.
func (c assertion) bearers(views []View) string {
	return strings.Join(names(slices.DeleteFunc(slices.Clone(views), func(v View) bool { return c.vote(v) != bearsOut })), ", ")
}

// stands says that a quorum bears the assertion out, and more than contradict it.
func (c assertion) stands(views []View, quorum int) bool {
	yes, no := c.count(views)
	return yes >= quorum && yes > no
}

// testimony is what other nodes are asked about assertions.
func (w Work) testimony(q Look, asserted []assertion, everything bool) Look {
	ask := Look{Submitter: q.Submitter}
	for _, c := range asserted {
		ask.Watch = append(ask.Watch, c.heights...)
	}
	if everything {
		ask.Account, ask.Estimates = true, q.Estimates
		ask.Watch = append(ask.Watch, w.watched()...)
		if len(w.Unsettled) > 0 {
			ask.Receipts, ask.Known = w.Unsettled[0].Versions, w.Unsettled[0].Versions
		}
	}
	slices.Sort(ask.Watch)
	ask.Watch = slices.Compact(ask.Watch)
	ask.Watch = ask.Watch[max(0, len(ask.Watch)-maxWatched):] // headers name their parents: the highest tell of those below
	return ask
}

// assertions are what v would do to w that one node does not decide alone.
func (r Rules) assertions(w Work, q Look, v View) (asserted []assertion) {
	j := r.judge(w, q, v)
	for _, h := range distinct(j.finals) {
		asserted = append(asserted, assertion{what: fmt.Sprintf("block %d is final", h.Number), ends: true, heights: []uint64{h.Number}, vote: has(h)})
	}
	if seen := amiss(w, v); seen != nil && !w.Protected {
		asserted = append(asserted, assertion{what: seen.What, premise: true, vote: func(o View) vote { return alsoAmiss(w, *seen, o) }})
	}
	var gone []Header
	for _, t := range w.Unsettled {
		if h, ok := r.gone(t, v); ok {
			gone = append(gone, h)
		}
	}
	for _, h := range distinct(gone) {
		asserted = append(asserted, assertion{what: fmt.Sprintf("block %d is no longer the chain's", h.Number), heights: []uint64{h.Number}, vote: not(has(h))})
	}
	if len(j.unsettled()) > 0 { // then nothing is refused by an estimate
		return asserted
	}
	for i, e := range v.Estimates {
		if !wouldRevert(q, i, e) {
			continue
		}
		asserted = append(asserted, assertion{what: "a call would revert", estimate: i + 1, vote: func(o View) vote {
			switch {
			case i >= len(o.Estimates) || o.Estimates[i].Outcome == Unknown || o.since() < w.FinalHead:
				return silent
			case wouldRevert(q, i, o.Estimates[i]):
				return bearsOut
			}
			return contradicts
		}})
	}
	return asserted
}

// wouldRevert says that e has the look's i-th call refused.
func wouldRevert(q Look, i int, e Estimate) bool {
	_, verdict, _ := gasFor(q.Estimates[i], e)
	return verdict == Refused
}

// gone is the lowest block of those that confirm t which v says is no longer the
// chain's.
func (r Rules) gone(t Tx, v View) (h Header, ok bool) {
	if t.Receipt == nil || t.State.Final() {
		return h, false
	}
	kept := t.Confirmations
	if len(kept) == 0 {
		kept = []Header{{Number: t.Receipt.BlockNumber, Hash: t.Receipt.BlockHash}}
	}
	switch rec, answer := findReceipt(t, v); answer {
	case AnswerFound:
		list, _, consistent := confirming(rec, v, r.depth())
		if !consistent || isPrefix(kept, list) || isPrefix(list, kept) || v.Head.Number <= firstOther(kept, list) {
			return h, false
		}
		first := firstOther(kept, list)
		i := slices.IndexFunc(kept, func(k Header) bool { return k.Number == first })
		return kept[max(i, 0)], true
	case AnswerNotFound:
		return kept[0], replacedAt(*t.Receipt, v)
	}
	return h, false
}

// has asks a view for a block.
func has(h Header) func(View) vote {
	return func(o View) vote {
		switch hash, seen := o.Watched[h.Number]; {
		case seen && hash == h.Hash:
			return bearsOut
		case seen && o.Head.Number > h.Number:
			return contradicts
		}
		return silent
	}
}

// not turns a vote round.
func not(of func(View) vote) func(View) vote {
	return func(o View) vote {
		switch of(o) {
		case bearsOut:
			return contradicts
		case contradicts:
			return bearsOut
		}
		return silent
	}
}

// alsoAmiss says whether another node shows the same sign. One that is behind the
// last final block proves nothing.
func alsoAmiss(w Work, seen Suspicion, o View) vote {
	other := amiss(w, o)
	switch {
	case o.Head.Number < w.FinalHead, seen.Why == WhyReorg && stands(w, o) == finalsUnknown:
		return silent
	case other != nil && other.Why == seen.Why:
		return bearsOut
	}
	return contradicts
}

// distinct are the blocks of a list, each once.
func distinct(list []Header) (once []Header) {
	for _, h := range list {
		if !slices.ContainsFunc(once, func(k Header) bool { return k.Hash == h.Hash }) {
			once = append(once, h)
		}
	}
	return once
}

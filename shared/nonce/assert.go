package nonce

import (
	"cmp"
	"fmt"
	"slices"
)

// assertions are what v would do to w that one node does not decide alone.
func (r Rules) assertions(w Work, q Look, v View) (asserted []assertion) {
	j := r.judge(w, q, v)
	finals := distinct(j.finals)
	for i, h := range finals[max(0, len(finals)-mostBlocks):] { // headers name their parents: those below are theirs too
		in := slices.DeleteFunc(slices.Clone(j.endedBy), func(rec Receipt) bool { return rec.BlockNumber > h.Number || i > 0 && rec.BlockNumber < h.Number })
		asserted = append(asserted, assertion{what: fmt.Sprintf("block %d is final", h.Number), ends: true, heights: []uint64{h.Number}, receipts: in, vote: r.hasFinal(h, in)})
	}
	switch seen := amiss(w, v); {
	case w.Protected:
	case seen != nil:
		asserted = append(asserted, assertion{what: seen.What, premise: true, vote: func(o View) vote { return alsoAmiss(w, *seen, o) }})
	case w.Suspicion != nil && pastSuspicion(w, v):
		asserted = append(asserted, assertion{what: "nothing is amiss any more", vote: func(o View) vote { return trusts(w, o) }})
	}
	if lowest := w.lowest(); noReceiptThere(w, v) && len(w.Unsettled[0].Versions) > 0 {
		asserted = append(asserted, assertion{what: fmt.Sprintf("nonce %d is consumed, and no version of it has a receipt", lowest), absence: true, vote: func(o View) vote { return alsoWithoutReceipt(w, o) }})
	}
	var gone []Header
	for _, t := range w.Unsettled {
		if h, ok := r.gone(t, v); ok {
			gone = append(gone, h)
		}
	}
	slices.SortFunc(gone, func(a, b Header) int { return cmp.Compare(a.Number, b.Number) })
	gone = distinct(gone)
	for _, h := range gone[:min(len(gone), mostBlocks)] { // and those on top of what is gone are gone
		asserted = append(asserted, assertion{what: fmt.Sprintf("block %d is no longer the chain's", h.Number), heights: []uint64{h.Number}, vote: not(has(h))})
	}
	if len(j.unsettled()) > 0 { // then nothing is refused by an estimate
		return asserted
	}
	for i, e := range v.Estimates {
		if wouldRevert(w, q, i, e) {
			asserted = append(asserted, assertion{what: "a call would revert", estimate: i + 1, vote: alsoReverts(w, q, i)})
		}
	}
	return asserted
}

// alsoReverts asks a view whether the look's i-th call would revert there too.
func alsoReverts(w Work, q Look, i int) func(View) vote {
	return func(o View) vote {
		switch {
		case i >= len(o.Estimates) || o.Estimates[i].Outcome == Unknown || o.Lags || o.since() < w.FinalHead:
			return silent
		case wouldRevert(w, q, i, o.Estimates[i]):
			return bearsOut
		}
		return contradicts
	}
}

// wouldRevert says that e has the look's i-th call refused.
func wouldRevert(w Work, q Look, i int, e Estimate) bool {
	_, verdict, _ := gasFor(q.Estimates[i], e, w.Bounds.Gas)
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

// hasFinal asks a view for a block that is final by the rules, with the receipts of what
// ends in it, of the same success. Who has no receipt does not bear it out. Where finality
// is a tag's it is no one node's: who has the block, and the tag below it, may not be so
// far.
func (r Rules) hasFinal(h Header, in []Receipt) func(View) vote {
	return func(o View) vote {
		said := has(h)(o)
		if said == bearsOut && r.Finality != ByConfirmations && (o.Tagged == nil || o.Tagged.Number < h.Number) {
			return silent
		}
		if said != bearsOut {
			return said
		}
		for _, rec := range in {
			switch a := o.Receipts[rec.TxHash]; {
			case a.Answer != AnswerFound || a.Receipt.BlockHash != rec.BlockHash:
				said = silent
			case a.Receipt.Succeeded != rec.Succeeded:
				return contradicts
			}
		}
		return said
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

// noReceiptThere says that the node's count is past the lowest nonce held, that it knows
// a version of it, and that it has no receipt of any: it may not keep them.
func noReceiptThere(w Work, v View) bool {
	return len(w.Unsettled) > 0 && v.Account.LatestCount > w.lowest() && noReceipt(w.Unsettled[0], v) && !unheardOf(w.Unsettled[0], v)
}

// alsoWithoutReceipt says whether another node has no receipt of the lowest nonce held
// either.
func alsoWithoutReceipt(w Work, o View) vote {
	switch _, answer := findReceipt(w.Unsettled[0], o); {
	case answer == AnswerFound:
		return contradicts
	case answer == AnswerUnknown, o.Lags, o.Account.LatestCount <= w.lowest():
		return silent
	}
	return bearsOut
}

// alsoAmiss says whether another node shows the same sign: of somebody else's use, or
// of a reorg. One that lags, or is behind the last final block, may not have it yet.
func alsoAmiss(w Work, seen Suspicion, o View) vote {
	other := amiss(w, o)
	switch {
	case other != nil && (other.Why == WhyReorg) == (seen.Why == WhyReorg):
		return bearsOut
	case other != nil, o.Lags, o.Head.Number < w.FinalHead, seen.Why == WhyReorg && stands(w, o) == finalsUnknown:
		return silent
	}
	return contradicts
}

// trusts says whether another node, at the suspicion's block or past it, shows nothing
// amiss either.
func trusts(w Work, o View) vote {
	switch {
	case amiss(w, o) != nil:
		return contradicts
	case o.Lags, o.Head.Number < max(w.Suspicion.Block, w.FinalHead), stands(w, o) == finalsUnknown:
		return silent
	}
	return bearsOut
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

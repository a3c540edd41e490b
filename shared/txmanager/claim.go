package txmanager

import (
	"cmp"
	"fmt"
	"slices"
)

// claims are what v would do to w that one node does not decide alone.
func (r Rules) claims(w SubmitterState, q ChainQuery, v ChainObservation) (asserted []claim) {
	j := r.evaluate(w, q, v)
	finals := uniqueBlocks(j.finals)
	for i, h := range finals[max(0, len(finals)-maxClaimedBlocks):] { // headers name their parents: those below are theirs too
		in := slices.DeleteFunc(slices.Clone(j.endedBy), func(rec Receipt) bool { return rec.BlockNumber > h.Number || i > 0 && rec.BlockNumber < h.Number })
		asserted = append(asserted, claim{what: fmt.Sprintf("block %d is final", h.Number), finality: true, heights: []uint64{h.Number}, receipts: in, vote: r.agreesOnFinality(h, in)})
	}
	switch seen := findViolation(w, v); {
	case w.Protected:
	case seen != nil:
		asserted = append(asserted, claim{what: seen.Description, violation: true, vote: func(o ChainObservation) vote { return agreesOnViolation(w, *seen, o) }})
	case w.SuspectedViolation != nil && isPastSuspected(w, v):
		asserted = append(asserted, claim{what: "nothing is amiss any more", vote: func(o ChainObservation) vote { return agreesOnNoViolation(w, o) }})
	}
	if lowest := w.lowestOpenNonce(); isLowestWithoutReceipt(w, v) && len(w.Open[0].Versions) > 0 {
		asserted = append(asserted, claim{what: fmt.Sprintf("nonce %d is consumed, and no version of it has a receipt", lowest), absence: true, vote: func(o ChainObservation) vote { return agreesOnMissingReceipt(w, o) }})
	}
	var gone []Header
	for _, t := range w.Open {
		if h, ok := r.reorgedBlock(t, v); ok {
			gone = append(gone, h)
		}
	}
	slices.SortFunc(gone, func(a, b Header) int { return cmp.Compare(a.Number, b.Number) })
	gone = uniqueBlocks(gone)
	for _, h := range gone[:min(len(gone), maxClaimedBlocks)] { // and those on top of what is gone are gone
		asserted = append(asserted, claim{what: fmt.Sprintf("block %d is no longer the chain's", h.Number), heights: []uint64{h.Number}, vote: negate(agreesOnBlock(h))})
	}
	if len(j.open()) > 0 { // then nothing is refused by an estimate
		return asserted
	}
	for i, e := range v.Estimates {
		if wouldRevert(w, q, i, e) {
			asserted = append(asserted, claim{what: "a call would revert", estimate: i + 1, vote: agreesOnRevert(w, q, i)})
		}
	}
	return asserted
}

// agreesOnRevert asks a view whether the look's i-th call would revert there too.
func agreesOnRevert(w SubmitterState, q ChainQuery, i int) func(ChainObservation) vote {
	return func(o ChainObservation) vote {
		switch {
		case i >= len(o.Estimates) || o.Estimates[i].Outcome == Unknown || o.Lagging || o.oldestBlock() < w.FinalHead:
			return abstains
		case wouldRevert(w, q, i, o.Estimates[i]):
			return agrees
		}
		return disagrees
	}
}

// wouldRevert says that e has the look's i-th call refused.
func wouldRevert(w SubmitterState, q ChainQuery, i int, e Estimate) bool {
	_, verdict, _ := gasLimit(q.Estimates[i], e, w.Bounds.Gas)
	return verdict == Refused
}

// reorgedBlock is the lowest block of those that confirm t which v says is no longer the
// chain's.
func (r Rules) reorgedBlock(t Tx, v ChainObservation) (h Header, ok bool) {
	if t.Receipt == nil || t.State.Terminal() {
		return h, false
	}
	kept := t.Confirmations
	if len(kept) == 0 {
		kept = []Header{{Number: t.Receipt.BlockNumber, Hash: t.Receipt.BlockHash}}
	}
	switch rec, answer := findReceipt(t, v); answer {
	case AnswerFound:
		list, _, consistent := confirmingBlocks(rec, v, r.headerDepth())
		if !consistent || isPrefix(kept, list) || isPrefix(list, kept) || v.Head.Number <= firstDifference(kept, list) {
			return h, false
		}
		first := firstDifference(kept, list)
		i := slices.IndexFunc(kept, func(k Header) bool { return k.Number == first })
		return kept[max(i, 0)], true
	case AnswerNotFound:
		return kept[0], isBlockReplaced(*t.Receipt, v)
	}
	return h, false
}

// agreesOnBlock asks a view for a block.
func agreesOnBlock(h Header) func(ChainObservation) vote {
	return func(o ChainObservation) vote {
		switch hash, seen := o.HashesAt[h.Number]; {
		case seen && hash == h.Hash:
			return agrees
		case seen && o.Head.Number > h.Number:
			return disagrees
		}
		return abstains
	}
}

// agreesOnFinality asks a view for a block that is final by the rules, with the receipts of what
// ends in it, of the same success. Who has no receipt does not bear it out. Where finality
// is a tag's it is no one node's: who has the block, and the tag below it, may not be so
// far.
func (r Rules) agreesOnFinality(h Header, in []Receipt) func(ChainObservation) vote {
	return func(o ChainObservation) vote {
		said := agreesOnBlock(h)(o)
		if said == agrees && r.Finality != ByConfirmations && (o.Tagged == nil || o.Tagged.Number < h.Number) {
			return abstains
		}
		if said != agrees {
			return said
		}
		for _, rec := range in {
			switch a := o.Receipts[rec.TxHash]; {
			case a.Answer != AnswerFound || a.Receipt.BlockHash != rec.BlockHash:
				said = abstains
			case a.Receipt.Succeeded != rec.Succeeded:
				return disagrees
			}
		}
		return said
	}
}

// negate turns a vote round.
func negate(of func(ChainObservation) vote) func(ChainObservation) vote {
	return func(o ChainObservation) vote {
		switch of(o) {
		case agrees:
			return disagrees
		case disagrees:
			return agrees
		}
		return abstains
	}
}

// isLowestWithoutReceipt says that the node's count is past the lowest nonce held, that it knows
// a version of it, and that it has no receipt of any: it may not keep them.
func isLowestWithoutReceipt(w SubmitterState, v ChainObservation) bool {
	return len(w.Open) > 0 && v.Account.LatestCount > w.lowestOpenNonce() && hasNoReceipt(w.Open[0], v) && !isUnknownToNode(w.Open[0], v)
}

// agreesOnMissingReceipt says whether another node has no receipt of the lowest nonce held
// either.
func agreesOnMissingReceipt(w SubmitterState, o ChainObservation) vote {
	switch _, answer := findReceipt(w.Open[0], o); {
	case answer == AnswerFound:
		return disagrees
	case answer == AnswerUnknown, o.Lagging, o.Account.LatestCount <= w.lowestOpenNonce():
		return abstains
	}
	return agrees
}

// agreesOnViolation says whether another node shows the same sign: of somebody else's use, or
// of a reorg. One that lags, or is behind the last final block, may not have it yet.
func agreesOnViolation(w SubmitterState, seen Violation, o ChainObservation) vote {
	other := findViolation(w, o)
	switch {
	case other != nil && (other.Kind == FinalBlockReorged) == (seen.Kind == FinalBlockReorged):
		return agrees
	case other != nil, o.Lagging, o.Head.Number < w.FinalHead, seen.Kind == FinalBlockReorged && finalBlockStatusIn(w, o) == finalBlockUnknown:
		return abstains
	}
	return disagrees
}

// agreesOnNoViolation says whether another node, at the suspicion's block or past it, shows nothing
// amiss either.
func agreesOnNoViolation(w SubmitterState, o ChainObservation) vote {
	switch {
	case findViolation(w, o) != nil:
		return disagrees
	case o.Lagging, o.Head.Number < max(w.SuspectedViolation.Block, w.FinalHead), finalBlockStatusIn(w, o) == finalBlockUnknown:
		return abstains
	}
	return agrees
}

// uniqueBlocks are the blocks of a list, each once.
func uniqueBlocks(list []Header) (once []Header) {
	for _, h := range list {
		if !slices.ContainsFunc(once, func(k Header) bool { return k.Hash == h.Hash }) {
			once = append(once, h)
		}
	}
	return once
}

package txmanager

import (
	"cmp"
	"fmt"
	"slices"
)

// claims are the statements of v that would change w and that one node does not decide alone.
func (r Rules) claims(w SubmitterState, q ChainQuery, v ChainObservation) (asserted []claim) {
	j := r.evaluate(w, q, v)
	finals := uniqueBlocks(j.finals)
	for i, h := range finals[max(0, len(finals)-maxClaimedBlocks):] { // headers name their parents: a claim about a block covers those below
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
	for _, h := range gone[:min(len(gone), maxClaimedBlocks)] { // blocks on top of a block that is gone are gone too
		asserted = append(asserted, claim{what: fmt.Sprintf("block %d is no longer the chain's", h.Number), heights: []uint64{h.Number}, vote: negate(agreesOnBlock(h))})
	}
	if len(j.open()) > 0 { // estimates then reject nothing
		return asserted
	}
	for i, e := range v.Estimates {
		if wouldRevert(w, q, i, e) {
			asserted = append(asserted, claim{what: "a call would revert", estimate: i + 1, vote: agreesOnRevert(w, q, i)})
		}
	}
	return asserted
}

// agreesOnRevert votes on whether the query's i-th call would revert.
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

// wouldRevert reports whether e makes the query's i-th call be refused.
func wouldRevert(w SubmitterState, q ChainQuery, i int, e Estimate) bool {
	_, verdict, _ := gasLimit(q.Estimates[i], e, w.Bounds.Gas)
	return verdict == Refused
}

// reorgedBlock is the lowest confirming block of t that is no longer canonical according to v.
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

// agreesOnBlock votes on whether a block is canonical.
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

// agreesOnFinality votes on whether a block is final, with the receipts of the transactions that
// end in it. A node that lacks a receipt abstains; another outcome of a transaction disagrees.
// Where a tag decides finality, a node whose tag is below the block abstains: it may not be so
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

// negate swaps agrees and disagrees.
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

// isLowestWithoutReceipt reports whether the node's count is above the lowest open nonce, and it
// knows a version of it but has no receipt of any. The node may not keep receipts.
func isLowestWithoutReceipt(w SubmitterState, v ChainObservation) bool {
	return len(w.Open) > 0 && v.Account.LatestCount > w.lowestOpenNonce() && hasNoReceipt(w.Open[0], v) && !isUnknownToNode(w.Open[0], v)
}

// agreesOnMissingReceipt votes on whether no version of the lowest open nonce has a receipt.
func agreesOnMissingReceipt(w SubmitterState, o ChainObservation) vote {
	switch _, answer := findReceipt(w.Open[0], o); {
	case answer == AnswerFound:
		return disagrees
	case answer == AnswerUnknown, o.Lagging, o.Account.LatestCount <= w.lowestOpenNonce():
		return abstains
	}
	return agrees
}

// agreesOnViolation votes on whether the same violation is visible: foreign use, or a reorg. A
// node that lags, or is below the last final block, abstains.
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

// agreesOnNoViolation votes on whether no violation is visible at or above the block of the
// suspected one.
func agreesOnNoViolation(w SubmitterState, o ChainObservation) vote {
	switch {
	case findViolation(w, o) != nil:
		return disagrees
	case o.Lagging, o.Head.Number < max(w.SuspectedViolation.Block, w.FinalHead), finalBlockStatusIn(w, o) == finalBlockUnknown:
		return abstains
	}
	return agrees
}

// uniqueBlocks are the blocks of a list without repetitions.
func uniqueBlocks(list []Header) (once []Header) {
	for _, h := range list {
		if !slices.ContainsFunc(once, func(k Header) bool { return k.Hash == h.Hash }) {
			once = append(once, h)
		}
	}
	return once
}

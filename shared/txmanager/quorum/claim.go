package quorum

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
)

// claims are the statements of v that would change w and that one node does not decide alone.
func claims(r rules.Rules, w txmanager.SubmitterState, q txmanager.ChainQuery, v txmanager.ChainObservation) []claim {
	j := r.Evaluate(w, q, v)
	all := slices.Concat(finalityClaims(r, j), accountClaims(w, v), reorgClaims(j))
	if len(j.Open()) > 0 { // estimates then reject nothing
		return all
	}
	for i, e := range v.Estimates {
		if WouldRevert(w, q, i, e) {
			all = append(all, claim{what: "a call would revert", estimate: i + 1, vote: AgreesOnRevert(w, q, i)})
		}
	}
	return all
}

// finalityClaims are the claims that blocks are final. Headers name their parents: a claim about a
// block covers those below.
func finalityClaims(r rules.Rules, j rules.Evaluation) (all []claim) {
	finals := uniqueBlocks(j.Finals)
	for i, h := range finals[max(0, len(finals)-maxClaimedBlocks):] {
		in := slices.DeleteFunc(slices.Clone(j.EndedBy), func(rec txmanager.Receipt) bool {
			return rec.BlockNumber > h.Number || i > 0 && rec.BlockNumber < h.Number
		})
		all = append(all, claim{what: fmt.Sprintf("block %d is final", h.Number), finality: true, heights: []uint64{h.Number}, receipts: in, vote: agreesOnFinality(r, h, in)})
	}
	return all
}

// accountClaims are the claims about a violation, and about a consumed nonce without a receipt.
func accountClaims(w txmanager.SubmitterState, v txmanager.ChainObservation) (all []claim) {
	switch seen := rules.FindViolation(w, v); {
	case w.Protected:
	case seen != nil:
		all = append(all, claim{what: seen.Description, violation: true, vote: func(o txmanager.ChainObservation) Vote { return agreesOnViolation(w, *seen, o) }})
	case w.SuspectedViolation != nil && rules.IsPastSuspected(w, v):
		all = append(all, claim{what: "nothing is amiss any more", vote: func(o txmanager.ChainObservation) Vote { return agreesOnNoViolation(w, o) }})
	}
	if isLowestWithoutReceipt(w, v) && len(w.Open[0].Versions) > 0 {
		all = append(all, claim{what: fmt.Sprintf("nonce %d is consumed, and no version of it has a receipt", w.LowestOpenNonce()), absence: true, vote: func(o txmanager.ChainObservation) Vote { return agreesOnMissingReceipt(w, o) }})
	}
	return all
}

// reorgClaims are the claims that blocks are no longer canonical. Blocks on top of such a block are
// not canonical either.
func reorgClaims(j rules.Evaluation) (all []claim) {
	gone := slices.Clone(j.Reorged)
	slices.SortFunc(gone, func(a, b txmanager.Header) int { return cmp.Compare(a.Number, b.Number) })
	gone = uniqueBlocks(gone)
	for _, h := range gone[:min(len(gone), maxClaimedBlocks)] {
		all = append(all, claim{what: fmt.Sprintf("block %d is no longer the chain's", h.Number), heights: []uint64{h.Number}, vote: Negate(AgreesOnBlock(h))})
	}
	return all
}

// AgreesOnRevert votes on whether the query's i-th call would revert.
func AgreesOnRevert(w txmanager.SubmitterState, q txmanager.ChainQuery, i int) func(txmanager.ChainObservation) Vote {
	return func(o txmanager.ChainObservation) Vote {
		switch {
		case i >= len(o.Estimates) || o.Estimates[i].Outcome == txmanager.Unknown || o.Lagging || o.OldestBlock() < w.FinalHead:
			return Abstains
		case WouldRevert(w, q, i, o.Estimates[i]):
			return Agrees
		}
		return Disagrees
	}
}

// WouldRevert reports whether e makes the query's i-th call be refused.
func WouldRevert(w txmanager.SubmitterState, q txmanager.ChainQuery, i int, e txmanager.Estimate) bool {
	_, verdict, _ := gas.LimitOf(q.Estimates[i], e, w.Bounds.Gas)
	return verdict == txmanager.Refused
}

// AgreesOnBlock votes on whether a block is canonical.
func AgreesOnBlock(h txmanager.Header) func(txmanager.ChainObservation) Vote {
	return func(o txmanager.ChainObservation) Vote {
		switch hash, seen := o.HashesAt[h.Number]; {
		case seen && hash == h.Hash:
			return Agrees
		case seen && o.Head.Number > h.Number:
			return Disagrees
		}
		return Abstains
	}
}

// agreesOnFinality votes on whether a block is final, with the receipts of the transactions that
// end in it. A node that lacks a receipt abstains; another outcome of a transaction disagrees.
// Where a tag decides finality, a node whose tag is below the block abstains: it may not be so
// far.
func agreesOnFinality(r rules.Rules, h txmanager.Header, in []txmanager.Receipt) func(txmanager.ChainObservation) Vote {
	return func(o txmanager.ChainObservation) Vote {
		said := AgreesOnBlock(h)(o)
		if said == Agrees && r.By != txmanager.ByConfirmations && (o.Tagged == nil || o.Tagged.Number < h.Number) {
			return Abstains
		}
		if said != Agrees {
			return said
		}
		for _, rec := range in {
			switch a := o.Receipts[rec.TxHash]; {
			case a.Answer != txmanager.AnswerFound || a.Receipt.BlockHash != rec.BlockHash:
				said = Abstains
			case a.Receipt.Succeeded != rec.Succeeded:
				return Disagrees
			}
		}
		return said
	}
}

// Negate swaps agrees and disagrees.
func Negate(of func(txmanager.ChainObservation) Vote) func(txmanager.ChainObservation) Vote {
	return func(o txmanager.ChainObservation) Vote {
		switch of(o) {
		case Agrees:
			return Disagrees
		case Disagrees:
			return Agrees
		}
		return Abstains
	}
}

// isLowestWithoutReceipt reports whether the node's count is above the lowest open nonce, and it
// knows a version of it but has no receipt of any. The node may not keep receipts.
func isLowestWithoutReceipt(w txmanager.SubmitterState, v txmanager.ChainObservation) bool {
	return len(w.Open) > 0 && v.Account.LatestCount > w.LowestOpenNonce() && rules.HasNoReceipt(w.Open[0], v) && !rules.IsUnknownToNode(w.Open[0], v)
}

// agreesOnMissingReceipt votes on whether no version of the lowest open nonce has a receipt.
func agreesOnMissingReceipt(w txmanager.SubmitterState, o txmanager.ChainObservation) Vote {
	switch _, answer := rules.FindReceipt(w.Open[0], o); {
	case answer == txmanager.AnswerFound:
		return Disagrees
	case answer == txmanager.AnswerUnknown, o.Lagging, o.Account.LatestCount <= w.LowestOpenNonce():
		return Abstains
	}
	return Agrees
}

// agreesOnViolation votes on whether the same violation is visible: foreign use, or a reorg. A
// node that lags, or is below the last final block, abstains.
func agreesOnViolation(w txmanager.SubmitterState, seen txmanager.Violation, o txmanager.ChainObservation) Vote {
	other := rules.FindViolation(w, o)
	switch {
	case other != nil && (other.Kind == txmanager.FinalBlockReorged) == (seen.Kind == txmanager.FinalBlockReorged):
		return Agrees
	case other != nil, o.Lagging, o.Head.Number < w.FinalHead, seen.Kind == txmanager.FinalBlockReorged && rules.FinalBlockStatusIn(w, o) == rules.FinalBlockUnknown:
		return Abstains
	}
	return Disagrees
}

// agreesOnNoViolation votes on whether no violation is visible at or above the block of the
// suspected one.
func agreesOnNoViolation(w txmanager.SubmitterState, o txmanager.ChainObservation) Vote {
	switch {
	case rules.FindViolation(w, o) != nil:
		return Disagrees
	case o.Lagging, o.Head.Number < max(w.SuspectedViolation.Block, w.FinalHead), rules.FinalBlockStatusIn(w, o) == rules.FinalBlockUnknown:
		return Abstains
	}
	return Agrees
}

// uniqueBlocks are the blocks of a list without repetitions.
func uniqueBlocks(list []txmanager.Header) (once []txmanager.Header) {
	for _, h := range list {
		if !slices.ContainsFunc(once, func(k txmanager.Header) bool { return k.Hash == h.Hash }) {
			once = append(once, h)
		}
	}
	return once
}

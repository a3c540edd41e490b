package rules

import "github.com/fencepost/fencepost/shared/txmanager"

// EvaluateViolation compares the chain's counts with the cursor, and the final blocks with the
// chain's. A violation means that another signer used the account, or that a final block was
// reorged out. The first observation only stores it as suspected. PROTECT opens if a query at a
// later block finds it again, with the numbers as evidence. A count below the cursor is only lag.
func EvaluateViolation(w txmanager.SubmitterState, v txmanager.ChainObservation) txmanager.CursorChange {
	seen := FindViolation(w, v)
	switch {
	case w.Protected, v.Disputes.Counts:
		return txmanager.CursorChange{}
	case seen == nil && w.SuspectedViolation != nil && IsPastSuspected(w, v):
		return txmanager.CursorChange{ClearSuspected: true}
	case seen == nil:
		return txmanager.CursorChange{}
	}
	seen.LatestCount, seen.PendingCount = v.Account.LatestCount, v.Account.PendingCount
	seen.Block, seen.BlockHash, seen.Node, seen.AgreedBy = v.Head.Number, v.Head.Hash, v.Node, v.AgreedBy
	switch {
	case w.SuspectedViolation == nil:
		return txmanager.CursorChange{Suspect: seen}
	case seen.Block > w.SuspectedViolation.Block && (seen.Kind == txmanager.FinalBlockReorged) != (w.SuspectedViolation.Kind == txmanager.FinalBlockReorged): // another kind of violation, seen once
		return txmanager.CursorChange{Suspect: seen}
	case seen.Block > w.SuspectedViolation.Block:
		return txmanager.CursorChange{OpenIncident: seen}
	}
	return txmanager.CursorChange{}
}

// IsPastSuspected reports whether v can show the suspected violation. It must be at its block or
// later. For a reorged final block, it must also say whether the block is canonical.
func IsPastSuspected(w txmanager.SubmitterState, v txmanager.ChainObservation) bool {
	tells := w.SuspectedViolation.Kind != txmanager.FinalBlockReorged || FinalBlockStatusIn(w, v) != FinalBlockUnknown
	return tells && v.Head.Number >= w.SuspectedViolation.Block
}

// FindViolation is the violation that v shows, or nil.
func FindViolation(w txmanager.SubmitterState, v txmanager.ChainObservation) *txmanager.Violation {
	a := v.Account
	switch {
	case v.Head.Number < w.FinalHead: // the node lags: its counts are old
		return nil
	case FinalBlockStatusIn(w, v) == FinalBlockReorged:
		last, _ := w.LastFinal()
		return &txmanager.Violation{Kind: txmanager.FinalBlockReorged, Final: &last, ExpectedNonce: w.NextNonce,
			Description: "the block of a final transaction is no longer the chain's"}
	case a.LatestCount > w.NextNonce || a.PendingCount > w.NextNonce:
		return &txmanager.Violation{Kind: txmanager.CountAhead, ExpectedNonce: w.NextNonce,
			Description: "the chain's count of the account is ahead of every nonce handed out"}
	case a.LatestCount > w.LowestOpenNonce() && IsUnknownToNode(w.Open[0], v):
		return &txmanager.Violation{Kind: txmanager.NonceConsumed, ExpectedNonce: w.LowestOpenNonce(),
			Description: "the lowest nonce in flight is consumed, and the node knows none of its versions"}
	}
	return nil
}

// IsUnknownToNode reports whether the node was queried for every version of t and knows none.
func IsUnknownToNode(t txmanager.Tx, v txmanager.ChainObservation) bool {
	for _, h := range t.Versions {
		if v.Known[h] != txmanager.AnswerNotFound || v.Receipts[h].Answer == txmanager.AnswerFound {
			return false
		}
	}
	return t.Receipt == nil
}

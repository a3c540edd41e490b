package txmanager

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/shared/lease"
)

// evaluateViolation compares the chain's counts with the cursor, and the final blocks with the
// chain's. A violation means that another signer used the account, or that a final block was
// reorged out. The first observation only stores it as suspected. PROTECT opens if a query at a
// later block finds it again, with the numbers as evidence. A count below the cursor is only lag.
func evaluateViolation(w SubmitterState, v ChainObservation) CursorChange {
	seen := findViolation(w, v)
	switch {
	case w.Protected, v.Disputes.Counts:
		return CursorChange{}
	case seen == nil && w.SuspectedViolation != nil && isPastSuspected(w, v):
		return CursorChange{ClearSuspected: true}
	case seen == nil:
		return CursorChange{}
	}
	seen.LatestCount, seen.PendingCount = v.Account.LatestCount, v.Account.PendingCount
	seen.Block, seen.BlockHash, seen.Node, seen.AgreedBy = v.Head.Number, v.Head.Hash, v.Node, v.AgreedBy
	switch {
	case w.SuspectedViolation == nil:
		return CursorChange{Suspect: seen}
	case seen.Block > w.SuspectedViolation.Block && (seen.Kind == FinalBlockReorged) != (w.SuspectedViolation.Kind == FinalBlockReorged): // another kind of violation, seen once
		return CursorChange{Suspect: seen}
	case seen.Block > w.SuspectedViolation.Block:
		return CursorChange{OpenIncident: seen}
	}
	return CursorChange{}
}

// isPastSuspected reports whether v can show the suspected violation. It must be at its block or
// later. For a reorged final block, it must also say whether the block is canonical.
func isPastSuspected(w SubmitterState, v ChainObservation) bool {
	tells := w.SuspectedViolation.Kind != FinalBlockReorged || finalBlockStatusIn(w, v) != finalBlockUnknown
	return tells && v.Head.Number >= w.SuspectedViolation.Block
}

// findViolation is the violation that v shows, or nil.
func findViolation(w SubmitterState, v ChainObservation) *Violation {
	a := v.Account
	switch {
	case v.Head.Number < w.FinalHead: // the node lags: its counts are old
		return nil
	case finalBlockStatusIn(w, v) == finalBlockReorged:
		last, _ := w.lastFinal()
		return &Violation{Kind: FinalBlockReorged, Final: &last, ExpectedNonce: w.NextNonce,
			Description: "the block of a final transaction is no longer the chain's"}
	case a.LatestCount > w.NextNonce || a.PendingCount > w.NextNonce:
		return &Violation{Kind: CountAhead, ExpectedNonce: w.NextNonce,
			Description: "the chain's count of the account is ahead of every nonce handed out"}
	case a.LatestCount > w.lowestOpenNonce() && isUnknownToNode(w.Open[0], v):
		return &Violation{Kind: NonceConsumed, ExpectedNonce: w.lowestOpenNonce(),
			Description: "the lowest nonce in flight is consumed, and the node knows none of its versions"}
	}
	return nil
}

// identifyConsumingTx adds to an opening incident's evidence the transaction that consumed the
// nonce, if the node can give it. Otherwise PROTECT opens without it.
func (t *leaseSession) identifyConsumingTx(ctx context.Context, seen *Violation) error {
	if seen == nil || seen.Kind == FinalBlockReorged {
		return nil
	}
	err := t.callOutside(ctx, func(ctx context.Context) error {
		consuming, err := t.chain.FindConsumingTx(ctx, t.state.submitterOf(), seen.ExpectedNonce)
		if err == nil {
			seen.ConsumedBy = &consuming
		}
		return err
	})
	switch {
	case errors.Is(err, lease.ErrFenced):
		return err
	case err != nil:
		seen.ConsumedByUnknown = err.Error()
		return nil
	}
	for _, x := range t.state.Open {
		if *x.Nonce == seen.ExpectedNonce {
			seen.SameAsIntent = t.matchesIntent(x, *seen.ConsumedBy)
		}
	}
	return nil
}

// matchesIntent reports whether the transaction that consumed x's nonce makes x's call.
func (t *leaseSession) matchesIntent(x Tx, consuming ConsumingTx) bool {
	call, err := t.chain.ParsePayload(x.Payload)
	return err == nil && call.Does(consuming)
}

// isUnknownToNode reports whether the node was queried for every version of t and knows none.
func isUnknownToNode(t Tx, v ChainObservation) bool {
	for _, h := range t.Versions {
		if v.Known[h] != AnswerNotFound || v.Receipts[h].Answer == AnswerFound {
			return false
		}
	}
	return t.Receipt == nil
}

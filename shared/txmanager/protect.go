package txmanager

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/shared/lease"
)

// evaluateViolation compares the chain's counts with the cursor. What it finds amiss means
// that somebody else used the account, if a second look, a block later, finds it
// too: only then PROTECT is opened, with the numbers as evidence. A count below
// the cursor is lag, and proves nothing.
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
	case seen.Block > w.SuspectedViolation.Block && (seen.Kind == FinalBlockReorged) != (w.SuspectedViolation.Kind == FinalBlockReorged): // another sign, seen once
		return CursorChange{Suspect: seen}
	case seen.Block > w.SuspectedViolation.Block:
		return CursorChange{OpenIncident: seen}
	}
	return CursorChange{}
}

// isPastSuspected says that v would show what the suspicion was about, if it were so: it
// is at its block or later, and tells of a block that had fallen whether it stands.
func isPastSuspected(w SubmitterState, v ChainObservation) bool {
	tells := w.SuspectedViolation.Kind != FinalBlockReorged || finalBlockStatusIn(w, v) != finalBlockUnknown
	return tells && v.Head.Number >= w.SuspectedViolation.Block
}

// findViolation says what in the view breaks a premise, with the count that would be
// right at most; or nothing.
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

// identifyConsumingTx adds to the evidence of an episode that opens the transaction that
// took the nonce, as far as the node can say. Not knowing it stops nothing.
func (t *leaseSession) identifyConsumingTx(ctx context.Context, seen *Violation) error {
	if seen == nil || seen.Kind == FinalBlockReorged {
		return nil
	}
	err := t.callOutside(ctx, func(ctx context.Context) error {
		taker, err := t.chain.FindConsumingTx(ctx, t.state.submitterOf(), seen.ExpectedNonce)
		if err == nil {
			seen.ConsumedBy = &taker
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

// matchesIntent says that the transaction that took x's nonce does what x wanted.
func (t *leaseSession) matchesIntent(x Tx, taker ConsumingTx) bool {
	call, err := t.chain.ParsePayload(x.Payload)
	return err == nil && call.Does(taker)
}

// isUnknownToNode says that the node was asked for every version of t, and has none.
func isUnknownToNode(t Tx, v ChainObservation) bool {
	for _, h := range t.Versions {
		if v.Known[h] != AnswerNotFound || v.Receipts[h].Answer == AnswerFound {
			return false
		}
	}
	return t.Receipt == nil
}

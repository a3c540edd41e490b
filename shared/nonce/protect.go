package nonce

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/shared/lease"
)

// suspect compares the chain's counts with the cursor. What it finds amiss means
// that somebody else used the account, if a second look, a block later, finds it
// too: only then PROTECT is opened, with the numbers as evidence. A count below
// the cursor is lag, and proves nothing.
func suspect(w Work, v View) CursorChange {
	seen := amiss(w, v)
	switch {
	case w.Protected, v.Doubts.Signs:
		return CursorChange{}
	case seen == nil && w.Suspicion != nil && pastSuspicion(w, v):
		return CursorChange{Trust: true}
	case seen == nil:
		return CursorChange{}
	}
	seen.LatestCount, seen.PendingCount = v.Account.LatestCount, v.Account.PendingCount
	seen.Block, seen.BlockHash, seen.Node, seen.BorneOutBy = v.Head.Number, v.Head.Hash, v.Node, v.BorneOutBy
	switch {
	case w.Suspicion == nil:
		return CursorChange{Suspect: seen}
	case seen.Block > w.Suspicion.Block && (seen.Why == WhyReorg) != (w.Suspicion.Why == WhyReorg): // another sign, seen once
		return CursorChange{Suspect: seen}
	case seen.Block > w.Suspicion.Block:
		return CursorChange{Protect: seen}
	}
	return CursorChange{}
}

// pastSuspicion says that v would show what the suspicion was about, if it were so: it
// is at its block or later, and tells of a block that had fallen whether it stands.
func pastSuspicion(w Work, v View) bool {
	tells := w.Suspicion.Why != WhyReorg || stands(w, v) != finalsUnknown
	return tells && v.Head.Number >= w.Suspicion.Block
}

// amiss says what in the view breaks a premise, with the count that would be
// right at most; or nothing.
func amiss(w Work, v View) *Suspicion {
	a := v.Account
	switch {
	case v.Head.Number < w.FinalHead: // the node lags: its counts are old
		return nil
	case stands(w, v) == finalsFell:
		last, _ := w.lastFinal()
		return &Suspicion{Why: WhyReorg, Final: &last, ExpectedNonce: w.NextNonce,
			What: "the block of a final transaction is no longer the chain's"}
	case a.LatestCount > w.NextNonce || a.PendingCount > w.NextNonce:
		return &Suspicion{Why: WhyAhead, ExpectedNonce: w.NextNonce,
			What: "the chain's count of the account is ahead of every nonce handed out"}
	case a.LatestCount > w.lowest() && unheardOf(w.Unsettled[0], v):
		return &Suspicion{Why: WhyTaken, ExpectedNonce: w.lowest(),
			What: "the lowest nonce in flight is consumed, and the node knows none of its versions"}
	}
	return nil
}

// identify adds to the evidence of an episode that opens the transaction that
// took the nonce, as far as the node can say. Not knowing it stops nothing.
func (t *tenure) identify(ctx context.Context, seen *Suspicion) error {
	if seen == nil || seen.Why == WhyReorg {
		return nil
	}
	err := t.call(ctx, func(ctx context.Context) error {
		taker, err := t.chain.Taken(ctx, t.work.submitter(), seen.ExpectedNonce)
		if err == nil {
			seen.Taker = &taker
		}
		return err
	})
	switch {
	case errors.Is(err, lease.ErrFenced):
		return err
	case err != nil:
		seen.TakerUnknown = err.Error()
		return nil
	}
	for _, x := range t.work.Unsettled {
		if *x.Nonce == seen.ExpectedNonce {
			seen.SameAsIntent = t.does(x, *seen.Taker)
		}
	}
	return nil
}

// does says that the transaction that took x's nonce does what x wanted.
func (t *tenure) does(x Tx, taker Taker) bool {
	call, err := t.chain.Call(x.Payload)
	return err == nil && call.Does(taker)
}

// unheardOf says that the node was asked for every version of t, and has none.
func unheardOf(t Tx, v View) bool {
	for _, h := range t.Versions {
		if v.Known[h] != AnswerNotFound || v.Receipts[h].Answer == AnswerFound {
			return false
		}
	}
	return t.Receipt == nil
}

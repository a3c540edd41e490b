package nonce

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
)

// foreignMost is how many foreign transactions one invocation reads.
const foreignMost = 50

// readForeign reads the transactions that consumed nonces of the account and are not on
// record, as far as they are final, and stores them with the open episode. It reads
// some, and says in the work in hand whether there is more; the next invocation goes on.
// An answer that could not be had, or that the chain's nodes do not bear out, is asked
// for again. Only the loss of the lease and an error of the database are errors.
func (t *tenure) readForeign(ctx context.Context) error {
	if t.work.Episode == 0 {
		return nil
	}
	t.work.ForeignLeft = true
	step, err := t.readSomeForeign(ctx)
	switch {
	case errors.Is(err, lease.ErrFenced):
		return err
	case err != nil:
		t.Log.WarnContext(ctx, "foreign transactions not read: they are asked for again", append(t.attrs(), "error", err.Error())...)
		return nil
	}
	if err = t.storeForeign(ctx, step); errors.Is(err, ErrForeignChanged) {
		t.Log.ErrorContext(ctx, "a reorg below finality: a foreign transaction by which a release judged is another one now", append(t.attrs(), "error", err.Error())...)
		return nil
	}
	return err
}

// foreignStep is what one step of the reading has brought.
type foreignStep struct {
	found []ForeignTransaction // proved, and not stored yet
	moved *ForeignReading      // how far blocks were read; nil: no further than before
}

func (s foreignStep) empty() bool { return len(s.found) == 0 && s.moved == nil }

func (t *tenure) storeForeign(ctx context.Context, step foreignStep) (err error) {
	switch {
	case step.empty():
		return nil
	case step.moved != nil:
		err = t.Book.StoreForeignRead(ctx, t.work.Lease, step.found, *step.moved)
	default:
		err = t.Book.StoreForeign(ctx, t.work.Lease, step.found)
	}
	if err != nil {
		return fmt.Errorf("store foreign transactions of %s: %w", t.work.submitter(), err)
	}
	t.pass("foreign.stored")
	return nil
}

// readSomeForeign reads what is not stored yet, and sees whether there is more. A nonce
// of which the node does not tell keeps no other from being read. Where the node has no
// counts that are old enough for the lowest, the blocks are read.
func (t *tenure) readSomeForeign(ctx context.Context) (foreignStep, error) {
	v, err := t.look(ctx, Look{Submitter: t.work.submitter(), Account: true, FinalCount: true})
	if err != nil || v.FinalCount == nil {
		return foreignStep{}, err
	}
	left, err := t.foreignLeft(ctx, *v.FinalCount)
	if err != nil {
		return foreignStep{}, err
	}
	some := slices.DeleteFunc(slices.Clone(left), func(n uint64) bool { return t.untold[n] })
	if len(some) > foreignMost { // the lowest, and not always the same: the node may never tell of them
		first := 1 + rand.IntN(len(some)-1)
		some = slices.Concat(some[:1], some[first:], some[1:first])[:foreignMost]
	}
	found, told, errRead := t.takersOf(ctx, some)
	if errors.Is(errRead, ErrNoCounts) {
		return t.readForeignBlocks(ctx, v, left)
	}
	proven, errProof := t.provenForeign(ctx, found, *v.FinalCount)
	t.work.ForeignLeft = told > 0 && told < len(left) || len(proven) < len(found) || v.Account.LatestCount > *v.FinalCount
	if len(proven) > 0 && !errors.Is(errRead, lease.ErrFenced) {
		return foreignStep{found: proven}, nil
	}
	return foreignStep{}, errors.Join(errRead, errProof)
}

// takersOf finds the foreign transactions that consumed these nonces, for as long as
// half of what the rounds of a tenure may take. It says of how many nonces the node told.
// That there are no counts for the first of them is the one answer that ends it.
func (t *tenure) takersOf(ctx context.Context, nonces []uint64) (found []ForeignTransaction, told int, err error) {
	for i, n := range nonces {
		if t.halfOver() {
			break
		}
		var taker Taker
		failed := t.call(ctx, func(ctx context.Context) (err error) {
			taker, err = t.chain.Taken(ctx, t.work.submitter(), n)
			return err
		})
		switch {
		case errors.Is(failed, lease.ErrFenced):
			return nil, 0, failed
		case errors.Is(failed, ErrNoCounts) && i == 0:
			return nil, 0, failed
		case failed != nil:
			err = failed
			t.tells(n, errors.Is(failed, ErrNotTold) && !errors.Is(failed, ErrNoCounts))
			continue
		case !t.work.knows(taker.Hash):
			found = append(found, ForeignTransaction{Nonce: n, Episode: t.work.Episode, Taker: taker, CallDigest: taker.CallDigest()})
		}
		told++
	}
	return found, told, err
}

// tells keeps for this invocation whether what consumed the nonce is not told, however
// often it is asked.
func (t *tenure) tells(n uint64, untold bool) {
	if t.untold == nil {
		t.untold = make(map[uint64]bool)
	}
	if delete(t.untold, n); untold {
		t.untold[n] = true
	}
}

// halfOver says that half of what the rounds of a tenure may take is over.
func (t *tenure) halfOver() bool { return time.Since(t.began) > t.Rules.RoundsEndAfter/2 }

// foreignLeft lists the nonces below the final count that are not stored as consumed by
// a foreign transaction, and may have been.
func (t *tenure) foreignLeft(ctx context.Context, finalCount uint64) ([]uint64, error) {
	from := t.work.lowest()
	stored, err := t.Book.ForeignTransactions(ctx, t.work.submitter(), from, finalCount)
	if err != nil {
		return nil, err
	}
	var left []uint64
	for n := from; n < finalCount; n++ {
		i := slices.IndexFunc(t.work.Unsettled, func(x Tx) bool { return *x.Nonce == n })
		ours := n < t.work.NextNonce && (i < 0 || t.work.Unsettled[i].Receipt != nil)
		if !ours && !slices.ContainsFunc(stored, func(f ForeignTransaction) bool { return f.Nonce == n }) {
			left = append(left, n)
		}
	}
	return left, nil
}

// knows says that h is a version of something unsettled.
func (w Work) knows(h Hash) bool {
	return slices.ContainsFunc(w.Unsettled, func(t Tx) bool { return slices.Contains(t.Versions, h) })
}

// provenForeign gives each transaction its receipt, and leaves out those of which the
// node has none, or one of another block. Of several nodes a quorum has to say the same.
func (t *tenure) provenForeign(ctx context.Context, found []ForeignTransaction, count uint64) ([]ForeignTransaction, error) {
	if len(found) == 0 {
		return nil, nil
	}
	q := Look{Submitter: t.work.submitter(), Account: true, FinalCount: true}
	for _, f := range found {
		q.Receipts = append(q.Receipts, f.Taker.Hash)
	}
	v, err := t.look(ctx, q)
	if err != nil {
		return nil, err
	}
	var proven []ForeignTransaction
	for _, f := range found {
		a := v.Receipts[f.Taker.Hash]
		if a.Answer != AnswerFound || a.Receipt.BlockHash != f.Taker.BlockHash || v.FinalCount == nil || f.Nonce >= *v.FinalCount {
			continue
		}
		f.Succeeded, f.Receipt = a.Receipt.Succeeded, a.Receipt.Document
		if len(f.Taker.Data) > ForeignDataMost {
			f.Taker.Data = nil
		}
		proven = append(proven, f)
	}
	what := fmt.Sprintf("the account's final count is %d or more, and has these %d transactions", count, len(proven))
	if err := t.borneOut(ctx, q, v, what, sameForeign(proven)); err != nil {
		return nil, err
	}
	return proven, nil
}

// sameForeign asks a view whether the transactions are final there, with the same
// receipts.
func sameForeign(all []ForeignTransaction) func(View) vote {
	return func(o View) vote {
		said := bearsOut
		for _, f := range all {
			switch a := o.Receipts[f.Taker.Hash]; {
			case a.Answer == AnswerFound && (a.Receipt.BlockHash != f.Taker.BlockHash || a.Receipt.Succeeded != f.Succeeded):
				return contradicts
			case a.Answer != AnswerFound, o.FinalCount == nil, *o.FinalCount <= f.Nonce:
				said = silent
			}
		}
		return said
	}
}

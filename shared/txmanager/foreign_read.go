package txmanager

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
)

// maxForeignReads is how many foreign transactions one invocation reads.
const maxForeignReads = 50

// readForeign reads the transactions that consumed nonces of the account and are not on
// record, as far as they are final, and stores them with the open episode. It reads
// some, and says in the work in hand whether there is more; the next invocation goes on.
// An answer that could not be had, or that the chain's nodes do not bear out, is asked
// for again. Only the loss of the lease and an error of the database are errors.
func (t *leaseSession) readForeign(ctx context.Context) error {
	if t.state.Incident == 0 {
		return nil
	}
	t.state.ForeignUnread = true
	step, err := t.readSomeForeign(ctx)
	switch {
	case errors.Is(err, lease.ErrFenced):
		return err
	case err != nil:
		t.Log.WarnContext(ctx, "foreign transactions not read: they are asked for again", append(t.logAttrs(), "error", err.Error())...)
		return nil
	}
	if err = t.storeForeign(ctx, step); errors.Is(err, ErrForeignChanged) {
		t.Log.ErrorContext(ctx, "a reorg below finality: a foreign transaction by which a release judged is another one now", append(t.logAttrs(), "error", err.Error())...)
		return nil
	}
	return err
}

// foreignProgress is what one step of the reading has brought.
type foreignProgress struct {
	found []ForeignTransaction // proved, and not stored yet
	scan  *ForeignScan         // how far blocks were read; nil: no further than before
}

func (s foreignProgress) isEmpty() bool { return len(s.found) == 0 && s.scan == nil }

func (t *leaseSession) storeForeign(ctx context.Context, step foreignProgress) (err error) {
	switch {
	case step.isEmpty():
		return nil
	case step.scan != nil:
		err = t.Store.StoreForeignScan(ctx, t.state.Lease, step.found, *step.scan)
	default:
		err = t.Store.StoreForeignTransactions(ctx, t.state.Lease, step.found)
	}
	if err != nil {
		return fmt.Errorf("store foreign transactions of %s: %w", t.state.submitterOf(), err)
	}
	t.reached("foreign.stored")
	return nil
}

// readSomeForeign reads what is not stored yet, and sees whether there is more. A nonce
// of which the node does not tell keeps no other from being read. Where the node has no
// counts that are old enough for the lowest, the blocks are read.
func (t *leaseSession) readSomeForeign(ctx context.Context) (foreignProgress, error) {
	v, err := t.query(ctx, ChainQuery{Submitter: t.state.submitterOf(), Account: true, FinalCount: true})
	if err != nil || v.FinalCount == nil {
		return foreignProgress{}, err
	}
	left, err := t.unreadForeignNonces(ctx, *v.FinalCount)
	if err != nil {
		return foreignProgress{}, err
	}
	some := slices.DeleteFunc(slices.Clone(left), func(n uint64) bool { return t.unknownConsumers[n] })
	if len(some) > maxForeignReads { // the lowest, and not always the same: the node may never tell of them
		first := 1 + rand.IntN(len(some)-1)
		some = slices.Concat(some[:1], some[first:], some[1:first])[:maxForeignReads]
	}
	found, told, errRead := t.findConsumingTxs(ctx, some)
	if errors.Is(errRead, ErrNoCounts) {
		return t.readForeignBlocks(ctx, v, left)
	}
	proven, errProof := t.proveForeign(ctx, found, *v.FinalCount)
	t.state.ForeignUnread = told > 0 && told < len(left) || len(proven) < len(found) || v.Account.LatestCount > *v.FinalCount
	if len(proven) > 0 && !errors.Is(errRead, lease.ErrFenced) {
		return foreignProgress{found: proven}, nil
	}
	return foreignProgress{}, errors.Join(errRead, errProof)
}

// findConsumingTxs finds the foreign transactions that consumed these nonces, for as long as
// half of what the rounds of a tenure may take. It says of how many nonces the node told.
// That there are no counts for the first of them is the one answer that ends it.
func (t *leaseSession) findConsumingTxs(ctx context.Context, nonces []uint64) (found []ForeignTransaction, told int, err error) {
	for i, n := range nonces {
		if t.isHalfTimeOver() {
			break
		}
		var taker ConsumingTx
		failed := t.callOutside(ctx, func(ctx context.Context) (err error) {
			taker, err = t.chain.FindConsumingTx(ctx, t.state.submitterOf(), n)
			return err
		})
		switch {
		case errors.Is(failed, lease.ErrFenced):
			return nil, 0, failed
		case errors.Is(failed, ErrNoCounts) && i == 0:
			return nil, 0, failed
		case failed != nil:
			err = failed
			t.noteUnknownConsumer(n, errors.Is(failed, ErrConsumerUnavailable) && !errors.Is(failed, ErrNoCounts))
			continue
		case !t.state.hasVersion(taker.Hash):
			found = append(found, ForeignTransaction{Nonce: n, Incident: t.state.Incident, Tx: taker, CallDigest: taker.CallDigest()})
		}
		told++
	}
	return found, told, err
}

// noteUnknownConsumer keeps for this invocation whether what consumed the nonce is not told, however
// often it is asked.
func (t *leaseSession) noteUnknownConsumer(n uint64, untold bool) {
	if t.unknownConsumers == nil {
		t.unknownConsumers = make(map[uint64]bool)
	}
	if delete(t.unknownConsumers, n); untold {
		t.unknownConsumers[n] = true
	}
}

// isHalfTimeOver says that half of what the rounds of a tenure may take is over.
func (t *leaseSession) isHalfTimeOver() bool {
	return time.Since(t.began) > t.Rules.IterationsEndAfter/2
}

// unreadForeignNonces lists the nonces below the final count that are not stored as consumed by
// a foreign transaction, and may have been.
func (t *leaseSession) unreadForeignNonces(ctx context.Context, finalCount uint64) ([]uint64, error) {
	from := t.state.lowestOpenNonce()
	stored, err := t.Store.ForeignTransactions(ctx, t.state.submitterOf(), from, finalCount)
	if err != nil {
		return nil, err
	}
	var left []uint64
	for n := from; n < finalCount; n++ {
		i := slices.IndexFunc(t.state.Open, func(x Tx) bool { return *x.Nonce == n })
		ours := n < t.state.NextNonce && (i < 0 || t.state.Open[i].Receipt != nil)
		if !ours && !slices.ContainsFunc(stored, func(f ForeignTransaction) bool { return f.Nonce == n }) {
			left = append(left, n)
		}
	}
	return left, nil
}

// hasVersion says that h is a version of something unsettled.
func (w SubmitterState) hasVersion(h Hash) bool {
	return slices.ContainsFunc(w.Open, func(t Tx) bool { return slices.Contains(t.Versions, h) })
}

// proveForeign gives each transaction its receipt, and leaves out those of which the
// node has none, or one of another block. Of several nodes a quorum has to say the same.
func (t *leaseSession) proveForeign(ctx context.Context, found []ForeignTransaction, count uint64) ([]ForeignTransaction, error) {
	if len(found) == 0 {
		return nil, nil
	}
	q := ChainQuery{Submitter: t.state.submitterOf(), Account: true, FinalCount: true}
	for _, f := range found {
		q.Receipts = append(q.Receipts, f.Tx.Hash)
	}
	v, err := t.query(ctx, q)
	if err != nil {
		return nil, err
	}
	var proven []ForeignTransaction
	for _, f := range found {
		a := v.Receipts[f.Tx.Hash]
		if a.Answer != AnswerFound || a.Receipt.BlockHash != f.Tx.BlockHash || v.FinalCount == nil || f.Nonce >= *v.FinalCount {
			continue
		}
		f.Succeeded, f.Receipt = a.Receipt.Succeeded, a.Receipt.Document
		if len(f.Tx.Data) > MaxForeignData {
			f.Tx.Data = nil
		}
		proven = append(proven, f)
	}
	what := fmt.Sprintf("the account's final count is %d or more, and has these %d transactions", count, len(proven))
	if err := t.requireQuorum(ctx, q, v, what, agreesOnForeign(proven)); err != nil {
		return nil, err
	}
	return proven, nil
}

// agreesOnForeign asks a view whether the transactions are final there, with the same
// receipts.
func agreesOnForeign(all []ForeignTransaction) func(ChainObservation) vote {
	return func(o ChainObservation) vote {
		said := agrees
		for _, f := range all {
			switch a := o.Receipts[f.Tx.Hash]; {
			case a.Answer == AnswerFound && (a.Receipt.BlockHash != f.Tx.BlockHash || a.Receipt.Succeeded != f.Succeeded):
				return disagrees
			case a.Answer != AnswerFound, o.FinalCount == nil, *o.FinalCount <= f.Nonce:
				said = abstains
			}
		}
		return said
	}
}

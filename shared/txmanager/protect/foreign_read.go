package protect

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/quorum"
	"github.com/fencepost/fencepost/shared/txmanager/session"
)

// incident is the work on one PROTECT incident within a lease session.
type incident struct {
	*session.Session
	unknownConsumers map[uint64]bool       // consumed nonces whose consuming transaction the node cannot give
	blocksRead       int                   // blocks read so far for foreign transactions
	scan             txmanager.ForeignScan // how far those blocks were read
}

// ReadForeign reads and stores some of the foreign transactions of the open incident of
// t, if there is one: see readForeign.
func ReadForeign(ctx context.Context, t *session.Session) error {
	return (&incident{Session: t}).readForeign(ctx)
}

// maxForeignReads is how many foreign transactions are read and proved in one step.
const maxForeignReads = 50

// readForeign reads the final transactions that consumed nonces of the account and are not stored,
// and stores them with the open incident. It reads some of them and sets ForeignUnread if there
// are more; the next invocation continues. A transaction that could not be read, or that the nodes
// do not agree on, is read again later. Only a lost lease and a database error are returned.
func (t *incident) readForeign(ctx context.Context) error {
	if t.State.Incident == 0 {
		return nil
	}
	t.State.ForeignUnread = true
	step, err := t.readSomeForeign(ctx)
	switch {
	case errors.Is(err, lease.ErrFenced):
		return err
	case err != nil:
		t.Log.WarnContext(ctx, "foreign transactions not read: they are asked for again", append(t.LogAttrs(), "error", err.Error())...)
		return nil
	}
	if err = t.storeForeign(ctx, step); errors.Is(err, txmanager.ErrForeignChanged) {
		t.Log.ErrorContext(ctx, "a reorg below finality replaced a foreign transaction that a release relied on", append(t.LogAttrs(), "error", err.Error())...)
		return nil
	}
	return err
}

// foreignProgress is the result of one step.
type foreignProgress struct {
	found []txmanager.ForeignTransaction // proved, and not stored yet
	scan  *txmanager.ForeignScan         // how far blocks were read; nil: no further than before
}

func (s foreignProgress) isEmpty() bool { return len(s.found) == 0 && s.scan == nil }

func (t *incident) storeForeign(ctx context.Context, step foreignProgress) error {
	if step.isEmpty() {
		return nil
	}
	if err := t.Store.StoreForeignTransactions(ctx, t.State.Lease, step.found, step.scan); err != nil {
		return fmt.Errorf("store foreign transactions of %s: %w", t.State.Submitter(), err)
	}
	t.CrashPoint("foreign.stored")
	return nil
}

// readSomeForeign reads transactions that are not stored yet, and determines whether there are
// more. A nonce that the node cannot answer does not block the others. If the node lacks counts
// that are old enough for the lowest nonce, blocks are read instead.
func (t *incident) readSomeForeign(ctx context.Context) (foreignProgress, error) {
	v, err := t.Query(ctx, txmanager.ChainQuery{Submitter: t.State.Submitter(), Account: true, FinalCount: true})
	if err != nil || v.FinalCount == nil {
		return foreignProgress{}, err
	}
	left, err := t.unreadForeignNonces(ctx, *v.FinalCount)
	if err != nil {
		return foreignProgress{}, err
	}
	some := slices.DeleteFunc(slices.Clone(left), func(n uint64) bool { return t.unknownConsumers[n] })
	if len(some) > maxForeignReads { // the lowest one and a random part of the rest: the node may never answer about some
		first := 1 + rand.IntN(len(some)-1)
		some = slices.Concat(some[:1], some[first:], some[1:first])[:maxForeignReads]
	}
	found, told, errRead := t.findConsumingTxs(ctx, some)
	if errors.Is(errRead, txmanager.ErrNoCounts) {
		return t.readForeignBlocks(ctx, v, left)
	}
	proven, errProof := t.proveForeign(ctx, found, *v.FinalCount)
	t.State.ForeignUnread = told > 0 && told < len(left) || len(proven) < len(found) || v.Account.LatestCount > *v.FinalCount
	if len(proven) > 0 && !errors.Is(errRead, lease.ErrFenced) {
		return foreignProgress{found: proven}, nil
	}
	return foreignProgress{}, errors.Join(errRead, errProof)
}

// findConsumingTxs finds the foreign transactions that consumed these nonces, until half of the
// time for iterations is over. told is how many nonces the node answered. Only [txmanager.ErrNoCounts] for
// the first nonce, or a lost lease, ends it early.
func (t *incident) findConsumingTxs(ctx context.Context, nonces []uint64) (found []txmanager.ForeignTransaction, told int, err error) {
	for i, n := range nonces {
		if t.IsHalfTimeOver() {
			break
		}
		consuming, failed := t.FindConsumingTx(ctx, n)
		switch {
		case errors.Is(failed, lease.ErrFenced):
			return nil, 0, failed
		case errors.Is(failed, txmanager.ErrNoCounts) && i == 0:
			return nil, 0, failed
		case failed != nil:
			err = failed
			t.noteUnknownConsumer(n, errors.Is(failed, txmanager.ErrConsumerUnavailable) && !errors.Is(failed, txmanager.ErrNoCounts))
			continue
		case !hasVersion(t.State, consuming.Hash):
			found = append(found, t.foreignTransaction(n, consuming))
		}
		told++
	}
	return found, told, err
}

func (t *incident) foreignTransaction(n uint64, tx txmanager.ConsumingTx) txmanager.ForeignTransaction {
	return txmanager.ForeignTransaction{Nonce: n, Incident: t.State.Incident, Tx: tx, CallDigest: tx.CallDigest()}
}

// noteUnknownConsumer records for this invocation whether the node can never give the transaction
// that consumed n.
func (t *incident) noteUnknownConsumer(n uint64, unavailable bool) {
	if t.unknownConsumers == nil {
		t.unknownConsumers = make(map[uint64]bool)
	}
	if delete(t.unknownConsumers, n); unavailable {
		t.unknownConsumers[n] = true
	}
}

// unreadForeignNonces lists the nonces below the final count that a foreign transaction may have
// consumed and that have none stored.
func (t *incident) unreadForeignNonces(ctx context.Context, finalCount uint64) ([]uint64, error) {
	from := t.State.LowestOpenNonce()
	stored, err := t.Store.ForeignTransactions(ctx, t.State.Submitter(), from, finalCount)
	if err != nil {
		return nil, err
	}
	var left []uint64
	for n := from; n < finalCount; n++ {
		i := slices.IndexFunc(t.State.Open, func(x txmanager.Tx) bool { return *x.Nonce == n })
		ours := n < t.State.NextNonce && (i < 0 || t.State.Open[i].Receipt != nil)
		if !ours && !slices.ContainsFunc(stored, func(f txmanager.ForeignTransaction) bool { return f.Nonce == n }) {
			left = append(left, n)
		}
	}
	return left, nil
}

// hasVersion reports whether h is a version of an open transaction.
func hasVersion(w txmanager.SubmitterState, h txmanager.Hash) bool {
	return slices.ContainsFunc(w.Open, func(t txmanager.Tx) bool { return slices.Contains(t.Versions, h) })
}

// proveForeign adds its receipt to each transaction. It drops a transaction without a receipt,
// with one of another block, or not below the final count. Where there are several nodes, a quorum
// must agree.
func (t *incident) proveForeign(ctx context.Context, found []txmanager.ForeignTransaction, count uint64) ([]txmanager.ForeignTransaction, error) {
	if len(found) == 0 {
		return nil, nil
	}
	q := t.receiptsQuery(found)
	v, err := t.Query(ctx, q)
	if err != nil {
		return nil, err
	}
	var proven []txmanager.ForeignTransaction
	for _, f := range found {
		a := v.Receipts[f.Tx.Hash]
		if a.Answer != txmanager.AnswerFound || a.Receipt.BlockHash != f.Tx.BlockHash || v.FinalCount == nil || f.Nonce >= *v.FinalCount {
			continue
		}
		proven = append(proven, withReceipt(f, a.Receipt))
	}
	what := fmt.Sprintf("the account's final count is %d or more, and has these %d transactions", count, len(proven))
	if err := quorum.Require(ctx, t.Session, q, v, what, agreesOnForeign(proven)); err != nil {
		return nil, err
	}
	return proven, nil
}

// receiptsQuery asks for the receipts of the transactions, and for the final count.
func (t *incident) receiptsQuery(found []txmanager.ForeignTransaction) txmanager.ChainQuery {
	q := txmanager.ChainQuery{Submitter: t.State.Submitter(), Account: true, FinalCount: true}
	for _, f := range found {
		q.Receipts = append(q.Receipts, f.Tx.Hash)
	}
	return q
}

// withReceipt is f as it is stored, with its receipt as proof.
func withReceipt(f txmanager.ForeignTransaction, r txmanager.Receipt) txmanager.ForeignTransaction {
	f.Succeeded, f.Receipt = r.Succeeded, r.Document
	if len(f.Tx.Data) > txmanager.MaxForeignData {
		f.Tx.Data = nil
	}
	return f
}

// agreesOnForeign votes on whether the transactions are final with the same receipts.
func agreesOnForeign(all []txmanager.ForeignTransaction) func(txmanager.ChainObservation) quorum.Vote {
	return func(o txmanager.ChainObservation) quorum.Vote {
		said := quorum.Agrees
		for _, f := range all {
			switch a := o.Receipts[f.Tx.Hash]; {
			case a.Answer == txmanager.AnswerFound && (a.Receipt.BlockHash != f.Tx.BlockHash || a.Receipt.Succeeded != f.Succeeded):
				return quorum.Disagrees
			case a.Answer != txmanager.AnswerFound, o.FinalCount == nil, *o.FinalCount <= f.Nonce:
				said = quorum.Abstains
			}
		}
		return said
	}
}

// IdentifyConsumingTx adds to an opening incident's evidence the transaction that consumed the
// nonce, if the node can give it. Otherwise PROTECT opens without it.
func IdentifyConsumingTx(ctx context.Context, t *session.Session, seen *txmanager.Violation) error {
	if seen == nil || seen.Kind == txmanager.FinalBlockReorged {
		return nil
	}
	consuming, err := t.FindConsumingTx(ctx, seen.ExpectedNonce)
	switch {
	case errors.Is(err, lease.ErrFenced):
		return err
	case err != nil:
		seen.ConsumedByUnknown = err.Error()
		return nil
	}
	seen.ConsumedBy = &consuming
	for _, x := range t.State.Open {
		if *x.Nonce == seen.ExpectedNonce {
			call, err := t.Chain.ParsePayload(x.Payload)
			seen.SameAsIntent = err == nil && call.Does(consuming)
		}
	}
	return nil
}

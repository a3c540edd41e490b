package protect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/quorum"
	"github.com/fencepost/fencepost/shared/txmanager/session"
)

// archiveNodeAdvice tells an operator what to do if no node has a transaction.
const archiveNodeAdvice = "let rpc.urls, or the chain's entry in chains, have a node that keeps all blocks, transactions and receipts (an archive node), " +
	"and ask again; or, where the request was carried out, state in executed for this nonce how you know it"

// readByHash reads the transactions whose hashes the operator gave for lost nonces, and stores
// those not stored yet. Each must be signed by the account, with that nonce, and a quorum of nodes
// must have its receipt at finality. A transaction proved this way replaces another stored one,
// since a reorg below finality removed that one.
func (t *incident) readByHash(ctx context.Context, l *txmanager.ReleaseRequest, lost []uint64) error {
	if len(l.Hashes) == 0 {
		return nil
	}
	stored, err := t.Store.ForeignTransactions(ctx, t.State.Submitter(), t.State.LowestOpenNonce(), l.Count)
	if err != nil {
		return err
	}
	known := make(map[uint64]txmanager.Hash)
	for _, f := range stored {
		known[f.Nonce] = f.Tx.Hash
	}
	var left []uint64
	for _, n := range slices.Sorted(maps.Keys(l.Hashes)) {
		if !slices.Contains(lost, n) {
			return txmanager.UnprovedError{Field: "hashes", Nonce: n, Why: t.notLostReason(n, l.Count)}
		}
		if h, read := known[n]; !read || h != l.Hashes[n] {
			left = append(left, n)
		}
	}
	for some := range slices.Chunk(left, maxForeignReads) {
		if t.IsHalfTimeOver() {
			return fmt.Errorf("%w: by the hashes that you gave, and some are left", txmanager.ErrStillReading)
		}
		found, err := t.readTransactions(ctx, l, some)
		if err != nil {
			return err
		}
		if err := t.storeForeign(ctx, foreignProgress{found: found}); err != nil {
			return err
		}
	}
	return nil
}

// readTransactions reads the transactions of the nonces and their receipts.
func (t *incident) readTransactions(ctx context.Context, l *txmanager.ReleaseRequest, nonces []uint64) (found []txmanager.ForeignTransaction, err error) {
	for _, n := range nonces {
		one, err := t.readTransaction(ctx, n, l.Hashes[n])
		if err != nil {
			return nil, err
		}
		found = append(found, t.foreignTransaction(n, one))
	}
	q := t.receiptsQuery(found)
	v, err := t.queryWhereFound(ctx, q)
	if err != nil {
		return nil, err
	}
	for i, f := range found {
		a := v.Receipts[f.Tx.Hash]
		switch {
		case a.Answer == txmanager.AnswerNotFound:
			return nil, txmanager.UnprovedError{Field: "hashes", Nonce: f.Nonce, Why: fmt.Sprintf("no node has a receipt of transaction %s: %s", f.Tx.Hash, archiveNodeAdvice)}
		case a.Answer != txmanager.AnswerFound, v.FinalCount == nil, *v.FinalCount <= f.Nonce:
			return nil, fmt.Errorf("%w: no node has shown transaction %s as final yet", txmanager.ErrStillReading, f.Tx.Hash)
		}
		f.Tx.BlockNumber, f.Tx.BlockHash, f.Tx.Node = a.Receipt.BlockNumber, a.Receipt.BlockHash, v.Node
		found[i] = withReceipt(f, a.Receipt)
	}
	what := fmt.Sprintf("the account's final count is above nonce %d, and has these %d transactions", nonces[len(nonces)-1], len(found))
	err = quorum.Require(ctx, t.Session, q, v, what, agreesOnForeign(found))
	if errors.Is(err, txmanager.ErrNoQuorum) {
		return nil, txmanager.UnprovedError{Field: "hashes", Nonce: nonces[0], Why: fmt.Sprintf("too few nodes have the receipt: %v: ask again, or %s", err, archiveNodeAdvice)}
	}
	return found, err
}

// readTransaction reads the transaction with hash h, which must be signed by the account with
// nonce n.
func (t *incident) readTransaction(ctx context.Context, n uint64, h txmanager.Hash) (txmanager.ConsumingTx, error) {
	tx, err := session.Outside(ctx, t.Session, func(ctx context.Context) (txmanager.SignedTransaction, error) { return t.Chain.Transaction(ctx, h) })
	switch {
	case errors.Is(err, lease.ErrFenced):
		return txmanager.ConsumingTx{}, err
	case errors.Is(err, txmanager.ErrNoTransaction):
		return txmanager.ConsumingTx{}, txmanager.UnprovedError{Field: "hashes", Nonce: n, Why: fmt.Sprintf("no node knows a transaction %s: %s", h, archiveNodeAdvice)}
	case err != nil:
		return txmanager.ConsumingTx{}, fmt.Errorf("%w: transaction %s, and a node did not answer (%v)", txmanager.ErrStillReading, h, err)
	case tx.From != t.State.Submitter().Address():
		return txmanager.ConsumingTx{}, txmanager.UnprovedError{Field: "hashes", Nonce: n, Why: fmt.Sprintf("transaction %s is signed by %s, and not by the account", h, tx.From)}
	case tx.Nonce != n:
		return txmanager.ConsumingTx{}, txmanager.UnprovedError{Field: "hashes", Nonce: n, Why: fmt.Sprintf("transaction %s has nonce %d", h, tx.Nonce)}
	case hasVersion(t.State, h):
		return txmanager.ConsumingTx{}, txmanager.UnprovedError{Field: "hashes", Nonce: n, Why: fmt.Sprintf("transaction %s is on record here: ask again once it is settled", h)}
	}
	return tx.Tx, nil
}

// queryWhereFound is the observation of the first node that has all the receipts, or of the first
// node queried if none has.
func (t *incident) queryWhereFound(ctx context.Context, q txmanager.ChainQuery) (txmanager.ChainObservation, error) {
	hasAll := func(v txmanager.ChainObservation) bool {
		return !slices.ContainsFunc(q.Receipts, func(h txmanager.Hash) bool { return v.Receipts[h].Answer != txmanager.AnswerFound })
	}
	v, err := t.Query(ctx, q)
	if err != nil || v.OtherNodes == nil || hasAll(v) {
		return v, err
	}
	others, err := quorum.QueryAll(ctx, t.Session, v, q)
	if i := slices.IndexFunc(others, hasAll); err == nil && i >= 0 {
		others[i].OtherNodes = v.OtherNodes
		return others[i], nil
	}
	return v, err
}

// checkProved refuses pairs without proof. A named request needs a transaction that was read, or
// the operator's statement that it was carried out, and not both.
func (e evidence) checkProved(l *txmanager.ReleaseRequest, pairs map[uint64]string) error {
	for _, n := range slices.Sorted(maps.Keys(pairs)) {
		_, read := e.foreign[n]
		switch _, stated := l.Executed[n]; {
		case !read && !stated:
			return txmanager.UnprovedError{Field: "hashes", Nonce: n, Why: fmt.Sprintf("no node tells which transaction consumed it, so nothing proves that %q was carried out: give the transaction's hash. Where you do not have it, %s", pairs[n], archiveNodeAdvice)}
		case read && stated:
			return txmanager.UnprovedError{Field: "executed", Nonce: n, Why: fmt.Sprintf("transaction %s consumed it, and says itself whether it was carried out: leave executed out", e.foreign[n].Tx.Hash)}
		}
	}
	return nil
}

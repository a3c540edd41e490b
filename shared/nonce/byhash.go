package nonce

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/shared/lease"
)

// ErrUnproved reports what a release says of a lost nonce that the chain does not prove.
type ErrUnproved struct {
	Field string // of the release: hashes or executed
	Nonce uint64
	Why   string
}

// Error names the nonce with the reason.
func (e ErrUnproved) Error() string { return fmt.Sprintf("nonce %d: %s", e.Nonce, e.Why) }

// archive tells an operator what to do where no node shows a transaction.
const archive = "let rpc.urls, or the chain's entry in chains, have a node that keeps all blocks, transactions and receipts (an archive node), " +
	"and ask again; or, where the request was carried out, state in executed for this nonce how you know it"

// readByHash reads the transactions whose hashes the operator gave for lost nonces. It
// stores those that are not stored yet. Each has to be the account's, with that nonce, and
// a quorum of the nodes has to give its receipt at finality. One that is proved so takes
// the place of another that was stored: a reorg below finality has removed that one.
func (t *tenure) readByHash(ctx context.Context, l *Leave, lost []uint64) error {
	if len(l.Hashes) == 0 {
		return nil
	}
	stored, err := t.Book.ForeignTransactions(ctx, t.work.submitter(), t.work.lowest(), l.Count)
	if err != nil {
		return err
	}
	known := make(map[uint64]Hash)
	for _, f := range stored {
		known[f.Nonce] = f.Taker.Hash
	}
	var left []uint64
	for _, n := range slices.Sorted(maps.Keys(l.Hashes)) {
		if !slices.Contains(lost, n) {
			return ErrUnproved{"hashes", n, t.notLost(n, l.Count)}
		}
		if h, read := known[n]; !read || h != l.Hashes[n] {
			left = append(left, n)
		}
	}
	for some := range slices.Chunk(left, foreignMost) {
		if t.halfOver() {
			return fmt.Errorf("%w: by the hashes that you gave, and some are left", ErrReading)
		}
		found, err := t.byHash(ctx, l, some)
		if err != nil {
			return err
		}
		if err := t.storeForeign(ctx, foreignStep{found: found}); err != nil {
			return err
		}
	}
	return nil
}

// byHash reads the transactions of the nonces, with their receipts.
func (t *tenure) byHash(ctx context.Context, l *Leave, nonces []uint64) (found []ForeignTransaction, err error) {
	for _, n := range nonces {
		one, err := t.signedAs(ctx, n, l.Hashes[n])
		if err != nil {
			return nil, err
		}
		found = append(found, ForeignTransaction{Nonce: n, Episode: t.work.Episode, Taker: one, CallDigest: one.CallDigest()})
	}
	q := Look{Submitter: t.work.submitter(), Account: true, FinalCount: true}
	for _, f := range found {
		q.Receipts = append(q.Receipts, f.Taker.Hash)
	}
	v, err := t.queryWhereFound(ctx, q)
	if err != nil {
		return nil, err
	}
	for i := range found {
		f := &found[i]
		switch a := v.Receipts[f.Taker.Hash]; {
		case a.Answer == AnswerNotFound:
			return nil, ErrUnproved{"hashes", f.Nonce, fmt.Sprintf("no node has a receipt of transaction %s: %s", f.Taker.Hash, archive)}
		case a.Answer != AnswerFound, v.FinalCount == nil, *v.FinalCount <= f.Nonce:
			return nil, fmt.Errorf("%w: no node has said yet that transaction %s is final", ErrReading, f.Taker.Hash)
		default:
			f.Taker.BlockNumber, f.Taker.BlockHash, f.Taker.Node = a.Receipt.BlockNumber, a.Receipt.BlockHash, v.Node
			f.Succeeded, f.Receipt = a.Receipt.Succeeded, a.Receipt.Document
		}
		if len(f.Taker.Data) > ForeignDataMost {
			f.Taker.Data = nil
		}
	}
	err = t.borneOut(ctx, q, v, fmt.Sprintf("the account's final count is above nonce %d, and has these %d transactions", nonces[len(nonces)-1], len(found)), sameForeign(found))
	if errors.Is(err, ErrNodes) {
		return nil, ErrUnproved{"hashes", nonces[0], fmt.Sprintf("too few nodes have the receipt: %v: ask again, or %s", err, archive)}
	}
	return found, err
}

// signedAs reads the transaction of that hash, which has to be the account's, with nonce n.
func (t *tenure) signedAs(ctx context.Context, n uint64, h Hash) (Taker, error) {
	var tx SignedTransaction
	err := t.call(ctx, func(ctx context.Context) (err error) {
		tx, err = t.chain.Transaction(ctx, h)
		return err
	})
	switch {
	case errors.Is(err, lease.ErrFenced):
		return Taker{}, err
	case errors.Is(err, ErrNoTransaction):
		return Taker{}, ErrUnproved{"hashes", n, fmt.Sprintf("no node knows a transaction %s: %s", h, archive)}
	case err != nil:
		return Taker{}, fmt.Errorf("%w: transaction %s, and a node did not answer (%v)", ErrReading, h, err)
	case tx.From != t.work.submitter().Address():
		return Taker{}, ErrUnproved{"hashes", n, fmt.Sprintf("transaction %s is signed by %s, and not by the account", h, tx.From)}
	case tx.Nonce != n:
		return Taker{}, ErrUnproved{"hashes", n, fmt.Sprintf("transaction %s has nonce %d", h, tx.Nonce)}
	case t.work.knows(h):
		return Taker{}, ErrUnproved{"hashes", n, fmt.Sprintf("transaction %s is on record here: ask again once it is settled", h)}
	}
	return tx.Does, nil
}

// queryWhereFound is the view of the first node that has all of the receipts; of the node
// that is asked first where none has.
func (t *tenure) queryWhereFound(ctx context.Context, q Look) (View, error) {
	hasAll := func(v View) bool {
		return !slices.ContainsFunc(q.Receipts, func(h Hash) bool { return v.Receipts[h].Answer != AnswerFound })
	}
	v, err := t.look(ctx, q)
	if err != nil || v.Witnesses == nil || hasAll(v) {
		return v, err
	}
	others, err := t.ask(ctx, v, q, everyNode)
	if i := slices.IndexFunc(others, hasAll); err == nil && i >= 0 {
		others[i].Witnesses = v.Witnesses
		return others[i], nil
	}
	return v, err
}

// proved refuses pairs that nothing proves: a named request ends by a transaction that was
// read, or by the operator's statement that it was carried out.
func (e evidence) proved(l *Leave, pairs map[uint64]string) error {
	for _, n := range slices.Sorted(maps.Keys(pairs)) {
		_, read := e.foreign[n]
		switch _, stated := l.Executed[n]; {
		case !read && !stated:
			return ErrUnproved{"hashes", n, fmt.Sprintf("no node tells which transaction consumed it, so nothing proves that %q was carried out: give the transaction's hash. Where you do not have it, %s", pairs[n], archive)}
		case read && stated:
			return ErrUnproved{"executed", n, fmt.Sprintf("transaction %s consumed it, and says itself whether it was carried out: leave executed out", e.foreign[n].Taker.Hash)}
		}
	}
	return nil
}

package protect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/quorum"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
)

// evidence is the known data about the transactions that consumed the lost nonces.
type evidence struct {
	lost    []uint64
	payer   bool // the submitter makes payouts: a proof of payment is required beside the name
	foreign map[uint64]txmanager.ForeignTransaction
}

// nameLostNonces checks what the operator stated about the lost nonces against the stored
// evidence, and plans each name's effect. The argument moves has the transitions of the resync
// without names. The observation v shows which open transactions have a receipt.
func (t *incident) nameLostNonces(ctx context.Context, l *txmanager.ReleaseRequest, v txmanager.ChainObservation, moves []txmanager.Transition, e evidence) ([]txmanager.Transition, []txmanager.Naming, error) {
	e, err := t.collectEvidence(ctx, l, e)
	if err != nil {
		return nil, nil, err
	}
	open, err := t.Store.OpenRequests(ctx, t.State.Submitter())
	if err != nil {
		return nil, nil, err
	}
	pairs, err := t.pairRequests(l, e, open)
	if err != nil {
		return nil, nil, err
	}
	if err := e.checkProved(l, pairs); err != nil {
		return nil, nil, err
	}
	stated := l.Requests
	l.Requests = maps.Clone(pairs) // and the nonces that the operator stated as no request: the record keeps both
	for n, name := range stated {
		if name == txmanager.NoRequest {
			l.Requests[n] = name
		}
	}
	known, err := t.Store.NamedRequests(ctx, t.State.Submitter(), slices.Sorted(maps.Values(pairs)))
	if err != nil {
		return nil, nil, err
	}
	var done []txmanager.Naming
	for _, n := range slices.Sorted(maps.Keys(pairs)) {
		if _, ok := known[pairs[n]]; !ok {
			if err := t.checkSpelling(n, pairs[n], open); err != nil {
				return nil, nil, err
			}
		}
		one, err := t.nameRequest(l, v, e, n, known[pairs[n]])
		if err != nil {
			return nil, nil, err
		}
		if i := transitionOf(&moves, t.State.Open, one.TxID); i >= 0 {
			moves[i] = t.endNamedRequest(moves[i], l, e, n)
		} else {
			l.EndedRequests = append(l.EndedRequests, one)
		}
		done = append(done, one)
	}
	l.ConsumedBy = e.consumingTxs(t.State.NextNonce)
	return moves, done, nil
}

// collectEvidence reads the transactions that consumed the lost nonces. Each nonce that the operator
// named must be lost.
func (t *incident) collectEvidence(ctx context.Context, l *txmanager.ReleaseRequest, e evidence) (evidence, error) {
	for n, name := range l.Requests {
		if !slices.Contains(e.lost, n) {
			return e, txmanager.NamingError{Nonce: n, RequestID: name, Why: t.notLostReason(n, l.Count)}
		}
	}
	if err := t.readByHash(ctx, l, e.lost); err != nil {
		return e, err
	}
	return t.readEvidence(ctx, e, l.Count)
}

// transitionOf is the index of the transition of the transaction id in moves. It adds one for an
// open transaction without a transition. The result is -1 for any other id.
func transitionOf(moves *[]txmanager.Transition, open []txmanager.Tx, id string) int {
	if id == "" {
		return -1
	}
	if i := slices.IndexFunc(*moves, func(m txmanager.Transition) bool { return m.To.ID == id }); i >= 0 {
		return i
	}
	i := slices.IndexFunc(open, func(x txmanager.Tx) bool { return x.ID == id })
	if i < 0 {
		return -1
	}
	*moves = append(*moves, txmanager.Transition{From: open[i].State, To: open[i]})
	return len(*moves) - 1
}

// checkSpelling reports a name that is not stored and differs from an open request only in case or
// in surrounding spaces. The intended request would be carried out again.
func (t *incident) checkSpelling(n uint64, name string, open []txmanager.OpenRequest) error {
	same := func(id string) bool { return strings.EqualFold(strings.TrimSpace(name), strings.TrimSpace(id)) }
	for _, o := range open {
		if o.RequestID != name && same(o.RequestID) {
			return txmanager.NamingError{Nonce: n, RequestID: name, Why: fmt.Sprintf("no request has this requestId; one that is open has %q", o.RequestID)}
		}
	}
	for _, x := range t.State.Open {
		if same(x.RequestID) {
			return txmanager.NamingError{Nonce: n, RequestID: name, Why: fmt.Sprintf("no request has this requestId; one in flight has %q", x.RequestID)}
		}
	}
	return nil
}

// notLostReason is why a named nonce is not lost.
func (t *incident) notLostReason(n, count uint64) string {
	switch {
	case n >= count:
		return fmt.Sprintf("the chain has not consumed it: its count at the finalized block is %d", count)
	case n < t.State.NextNonce:
		return "a transaction on record here has it"
	}
	return "it is not lost"
}

// nameRequest determines the effect of naming a request, stored as on, for nonce n, or the error why it has none.
func (t *incident) nameRequest(l *txmanager.ReleaseRequest, v txmanager.ChainObservation, e evidence, n uint64, on txmanager.NamedRequest) (txmanager.Naming, error) {
	id := l.Requests[n]
	one := txmanager.Naming{Nonce: n, RequestID: id, Effect: txmanager.NamedRecorded, Stated: l.Executed[n] != ""}
	if f, read := e.foreign[n]; read {
		one.TxHash = &f.Tx.Hash
		if !f.Succeeded {
			one.Effect = txmanager.NamedReverted
		}
	}
	one.TxID = on.TxID
	if on.TxID == "" || on.State == txmanager.Queued {
		return one, nil
	}
	if on.State.Terminal() {
		return one, txmanager.NamingError{Nonce: n, RequestID: id, Why: fmt.Sprintf("it has ended here: %s %s; say %q where no other request was it", on.State, on.Sub, txmanager.NoRequest)}
	}
	i := slices.IndexFunc(t.State.Open, func(x txmanager.Tx) bool { return x.ID == on.TxID })
	switch {
	case i < 0:
		return one, txmanager.NamingError{Nonce: n, RequestID: id, Why: "its state changed meanwhile: ask again"}
	case t.State.Open[i].FillsLostNonce:
		return one, txmanager.NamingError{Nonce: n, RequestID: id, Why: fmt.Sprintf("it is a placeholder of a release, and no request: say %q", txmanager.NoRequest)}
	case slices.Contains(e.lost, *t.State.Open[i].Nonce):
		return one, nil
	case t.State.Open[i].Recorded != nil:
		return one, txmanager.NamingError{Nonce: n, RequestID: id, Why: fmt.Sprintf("an earlier release named it for nonce %d", t.State.Open[i].Recorded.Nonce)}
	case !rules.HasNoReceipt(t.State.Open[i], v) || t.State.Open[i].Receipt != nil:
		return one, txmanager.NamingError{Nonce: n, RequestID: id, Why: fmt.Sprintf("its own bytes are on the chain at nonce %d; say %q where no other request was it", *t.State.Open[i].Nonce, txmanager.NoRequest)}
	}
	one.Effect = txmanager.NamedPlaceholder
	return one, nil
}

// endNamedRequest is m for a request named for nonce n. The request ends if its own nonce is lost;
// otherwise a placeholder must consume that nonce first.
func (t *incident) endNamedRequest(m txmanager.Transition, l *txmanager.ReleaseRequest, e evidence, n uint64) txmanager.Transition {
	r := e.recorded(n)
	if slices.Contains(e.lost, *m.To.Nonce) {
		m.To = rules.EndRecorded(m.To, r)
		return m
	}
	m.To.Recorded, m.To.RequestedAction, m.To.NextCheckAt = &r, txmanager.ActionPlaceholder, &t.State.Now
	m.To.Explain("", txmanager.WithDetail("a release recorded that a foreign transaction was this request: a placeholder is to consume its own place",
		fmt.Sprintf("the foreign transaction consumed nonce %d", n)))
	m.Decision = &txmanager.Decision{Action: txmanager.ActionPlaceholder, By: l.By, Reason: l.Reason}
	return m
}

// recorded is the record for a request that was named for nonce n.
func (e evidence) recorded(n uint64) txmanager.Recorded {
	r := txmanager.Recorded{Nonce: n}
	if f, read := e.foreign[n]; read {
		r.Receipt = &txmanager.Receipt{TxHash: f.Tx.Hash, BlockNumber: f.Tx.BlockNumber, BlockHash: f.Tx.BlockHash,
			Succeeded: f.Succeeded, Document: f.Receipt}
	}
	return r
}

// consumingTxs are the transactions that consumed the lost nonces below next, which intents held.
func (e evidence) consumingTxs(next uint64) map[uint64]txmanager.ConsumingTx {
	all := make(map[uint64]txmanager.ConsumingTx)
	for n, f := range e.foreign {
		if n < next && slices.Contains(e.lost, n) {
			all[n] = f.Tx
		}
	}
	return all
}

// readEvidence reads the stored transactions that consumed the lost nonces. Before that it reads
// and stores missing ones, as far as one invocation may. The error wraps [txmanager.ErrStillReading] where
// more must be read, or a node gave no answer. A transaction that no node can give stays unknown.
func (t *incident) readEvidence(ctx context.Context, e evidence, count uint64) (evidence, error) {
	e.foreign = make(map[uint64]txmanager.ForeignTransaction)
	var failed error // why the last step read nothing
	for more := true; more; {
		before := len(t.unknownConsumers)
		step, err := t.readSomeForeign(ctx)
		failed = err
		if errors.Is(err, lease.ErrFenced) || errors.Is(err, txmanager.ErrNoQuorum) {
			return e, err
		}
		if err := t.storeForeign(ctx, step); err != nil {
			return e, err
		}
		more = (!step.isEmpty() || len(t.unknownConsumers) > before) && !t.IsHalfTimeOver()
	}
	stored, err := t.Store.ForeignTransactions(ctx, t.State.Submitter(), t.State.LowestOpenNonce(), count)
	if err != nil {
		return e, err
	}
	for _, f := range stored {
		e.foreign[f.Nonce] = f
	}
	if err := t.checkComplete(e, failed); err != nil {
		return e, err
	}
	return e, t.checkStillOnChain(ctx, e)
}

// checkComplete returns an error that wraps [txmanager.ErrStillReading] while the transaction of a lost nonce
// may still be read. failed is why the last step read nothing.
func (t *incident) checkComplete(e evidence, failed error) error {
	missing, why := 0, ""
	for _, n := range e.lost {
		if _, read := e.foreign[n]; !read && !t.unknownConsumers[n] {
			missing++
		}
	}
	switch {
	case missing == 0:
		return nil
	case failed != nil:
		why = fmt.Sprintf(", and a node did not answer (%v)", failed)
	case t.scan.Begun:
		why = "; the node keeps no counts so old, and " + t.scan.Progress()
	}
	return fmt.Errorf("%w: %d of %d%s", txmanager.ErrStillReading, missing, len(e.lost), why)
}

// checkStillOnChain asks the chain's nodes about the block of the highest transaction that was
// read. A reorg below finality would have removed it with the others.
func (t *incident) checkStillOnChain(ctx context.Context, e evidence) error {
	var last *txmanager.ForeignTransaction
	for _, n := range e.lost {
		if f, read := e.foreign[n]; read && (last == nil || f.Nonce > last.Nonce) {
			last = &f
		}
	}
	if last == nil {
		return nil
	}
	q := txmanager.ChainQuery{Submitter: t.State.Submitter(), HashesAt: []uint64{last.Tx.BlockNumber}}
	v, err := t.Query(ctx, q)
	if err != nil {
		return fmt.Errorf("query block %d: %w", last.Tx.BlockNumber, err)
	}
	block := txmanager.Header{Number: last.Tx.BlockNumber, Hash: last.Tx.BlockHash}
	if v.HashesAt[block.Number] != block.Hash {
		return fmt.Errorf("%w that block %d, in which nonce %d was consumed, is on the chain", txmanager.ErrNoQuorum, block.Number, last.Nonce)
	}
	return quorum.Require(ctx, t.Session, q, v, fmt.Sprintf("block %d, in which nonce %d was consumed, is on the chain", block.Number, last.Nonce), quorum.AgreesOnBlock(block))
}

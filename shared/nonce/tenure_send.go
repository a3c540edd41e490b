package nonce

import (
	"context"
	"fmt"
)

// prepare readies the head of the queue, and signs for the expected nonces
// where the signer lives in this process. Another signer is asked only once the
// nonce is bound: what it signed might be seen outside.
func (t *tenure) prepare(ctx context.Context, v View) preparation {
	w := t.work
	if !t.kind.MaySign() || !w.queueOpen(w.now()) || w.room() == 0 {
		return preparation{}
	}
	var p preparation
	if reason := mayAllocate(w, w.Unsettled, v); reason != "" {
		p.wait(w.Queue[0], reason, t.Rules.afterBlocks(1, v.Head, w.now()))
		return p
	}
	p = t.Rules.prepare(w, t.chain, v, estimatesByTx(w, t.chain, v.Estimates))
	inProcess := t.Signer.InProcess(w.submitter())
	for i := range p.allocate {
		a := &p.allocate[i]
		if !inProcess {
			a.Tx.State, a.Tx.NextCheckAt = InFlight, nil
			continue
		}
		s, err := t.sign(ctx, p.unsigned[i])
		if err != nil {
			p.wait(w.Queue[i], "not signed: "+err.Error(), w.now().Add(t.Rules.BlockTime))
			p.allocate = p.allocate[:i]
			break
		}
		a.Tx, a.Signed = signedAs(a.Tx, s, w.now()), &s
	}
	return p
}

func (t *tenure) sign(ctx context.Context, tx Unsigned) (s Signed, err error) {
	err = t.call(ctx, func(ctx context.Context) error {
		s, err = t.Signer.Sign(ctx, t.work.submitter(), tx)
		return err
	})
	return s, err
}

// signHeld signs for nonces that are bound and have no bytes yet, and stores
// what was signed before anything is done with it.
func (t *tenure) signHeld(ctx context.Context) ([]string, error) {
	var w Write
	var ids []string
	for _, x := range t.work.Unsettled {
		if x.State != InFlight || !t.kind.MaySign() || t.work.Protected {
			continue
		}
		call, err := t.chain.Call(x.Payload)
		if err != nil {
			return nil, fmt.Errorf("read the payload of %s again: %w", x.ID, err)
		}
		s, err := t.sign(ctx, unsigned(x, call))
		if err != nil {
			return nil, fmt.Errorf("sign nonce %d of %s: %w", *x.Nonce, x.Submitter, err)
		}
		w.Store = append(w.Store, Version{Tx: signedAs(x, s, t.work.now()), Signed: s})
		ids = append(ids, x.ID)
	}
	if len(w.Store) == 0 {
		return nil, nil
	}
	_, err := t.write(ctx, w, false)
	return ids, err
}

// send broadcasts the stored bytes of the transactions named, in the order of
// their nonces, and records what the node said of each.
func (t *tenure) send(ctx context.Context, ids []string, head Header) (released bool, err error) {
	txs := t.work.pick(ids)
	raws := make([][]byte, len(txs))
	for i, x := range txs {
		raws[i] = x.Raw
	}
	var results []SendResult
	err = t.call(ctx, func(ctx context.Context) error {
		results = t.chain.Send(ctx, raws)
		return nil
	})
	if err != nil {
		return false, err
	}
	var w Write
	now := t.work.now()
	for i, x := range txs {
		res := results[i]
		if res.Class == SendNonceTooLow && t.ours(ctx, x) {
			res.Class = SendAlreadyKnown
		}
		t.logSent(ctx, x, res)
		w.Moves = append(w.Moves, Move{From: x.State, To: t.Rules.sent(x, res, head, now)})
	}
	return t.write(ctx, w, true)
}

// ours asks whether the chain knows a version of x. That we know its hash says
// nothing: it is stored before every send.
func (t *tenure) ours(ctx context.Context, x Tx) bool {
	v, err := t.look(ctx, Look{Submitter: x.Submitter, Receipts: x.Versions, Known: x.Versions})
	return err == nil && settledBy(x, v)
}

package chaintest

import (
	"math/big"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// deepest is the depth of the contract's deepest reorg.
const deepest = 32

// A reorg of each depth removes a transaction. From the next query on, receipt, counts and headers are those
// of the new chain; whether the node still knows the transaction depends on the node. Mined again, it has a
// receipt in another block.
func (b contract) ReorgRemovesAReceipt(t *testing.T) {
	b.eachDepth(t, func(depth uint64, tx txmanager.Signed, before txmanager.ChainObservation) {
		b.reorg(t, make([][][]byte, depth+1)...)

		b.wantOtherBlocks(t, tx, before)
		known, pending, again := txmanager.AnswerNotFound, depth, txmanager.SendAccepted
		if b.ReorgReturns {
			known, pending, again = txmanager.AnswerFound, depth+1, txmanager.SendAlreadyKnown
		}
		b.wantAnswers(t, "removed", tx, txmanager.AnswerNotFound, known)
		b.wantCounts(t, "removed", depth, pending)
		wantClass(t, b.send(t, tx)[0], again)
		b.mine(t, 1)
		b.wantMoved(t, tx, before, b.queryAgain(t, tx, before))
		b.wantCounts(t, "mined anew", depth+1, depth+1)
	})
}

// A reorg of each depth moves the transaction into another block, the last of the new ones. The receipt has
// that block and never the old one.
func (b contract) ReorgMovesAReceipt(t *testing.T) {
	b.eachDepth(t, func(depth uint64, tx txmanager.Signed, before txmanager.ChainObservation) {
		blocks := make([][][]byte, depth+1)
		blocks[depth] = [][]byte{tx.Raw}
		b.reorg(t, blocks...)

		b.wantMoved(t, tx, before, b.wantOtherBlocks(t, tx, before))
		b.wantCounts(t, "moved", depth+1, depth+1)
		b.wantConsumer(t, "moved", depth, tx)
	})
}

// A reorg of each depth removes a transaction, and the pools have lost it. Blocks follow without it until it
// is sent again as a new one.
func (b contract) ReorgLosesATransaction(t *testing.T) {
	b.eachDepth(t, func(depth uint64, tx txmanager.Signed, before txmanager.ChainObservation) {
		b.reorg(t, make([][][]byte, depth+1)...)
		check.OK(t)(b.DropPool())
		b.mine(t, 1)
		b.wantAnswers(t, "lost", tx, txmanager.AnswerNotFound, txmanager.AnswerNotFound)
		b.wantCounts(t, "lost", depth, depth)
		b.wantNotConsumed(t, "lost", depth)
		b.include(t, 1, tx)
		b.wantMoved(t, tx, before, b.queryAgain(t, tx, before))
	})
}

// A reorg of each depth gives the nonce to another transaction, in the first of the new blocks or in the
// last. The receipt is gone, and the node no longer knows the transaction and refuses it.
func (b contract) ReorgReplacesATransaction(t *testing.T) {
	b.eachDepth(t, func(depth uint64, tx txmanager.Signed, before txmanager.ChainObservation) {
		foreign := b.tx(t, depth, func(tx *txmanager.Unsigned) { tx.Value = big.NewInt(7) })
		blocks := make([][][]byte, depth+1)
		blocks[depth*(depth%2)] = [][]byte{foreign.Raw}
		b.reorg(t, blocks...)

		b.wantMoved(t, foreign, before, b.wantOtherBlocks(t, foreign, before))
		b.wantAnswers(t, "replaced", tx, txmanager.AnswerNotFound, txmanager.AnswerNotFound)
		b.wantCounts(t, "replaced", depth+1, depth+1)
		b.wantConsumer(t, "replaced", depth, foreign)
		wantClass(t, b.send(t, tx)[0], txmanager.SendNonceTooLow)
	})
}

// A reorg removes a transaction that a pending one follows. The node may still count the follower, but no
// block has it without the other. If both are gone, both are accepted again.
func (b contract) ReorgUnderPending(t *testing.T) {
	first, follower := b.tx(t, 0, nil), b.tx(t, 1, nil)
	b.include(t, 1, first)
	b.mustSend(t, follower)
	b.wantCounts(t, "one mined, one pending", 1, 2)
	b.reorg(t, nil)
	b.wantAnswers(t, "removed", follower, txmanager.AnswerNotFound, txmanager.AnswerFound)
	check.Equal(t, "removed: latest count", b.query(t, txmanager.ChainQuery{Account: true}).Account.LatestCount, 0)

	b.mine(t, 1)
	again := txmanager.SendNonceTooLow
	if !b.ReorgReturns {
		again = txmanager.SendAccepted
		b.wantAnswers(t, "a block later", follower, txmanager.AnswerNotFound, txmanager.AnswerNotFound)
		b.wantCounts(t, "a block later", 0, 0)
	}
	for _, r := range b.send(t, first, follower) {
		wantClass(t, r, again)
	}
	b.mine(t, 1)
	b.wantAnswers(t, "sent again", first, txmanager.AnswerFound, txmanager.AnswerFound)
	b.wantAnswers(t, "sent again", follower, txmanager.AnswerFound, txmanager.AnswerFound)
	b.wantCounts(t, "sent again", 2, 2)
}

// eachDepth calls f for each depth of a reorg with a transaction that has so many blocks on it. before observes it, and
// the headers from the block before it.
func (b *bundle) eachDepth(t *testing.T, f func(depth uint64, tx txmanager.Signed, before txmanager.ChainObservation)) {
	t.Helper()
	b.mine(t, 1)
	for depth := range uint64(deepest) {
		tx := b.tx(t, depth, nil)
		b.include(t, int(depth+1), tx)
		b.wantConsumer(t, "mined", depth, tx)
		head := b.query(t, txmanager.ChainQuery{}).Head.Number
		v := b.query(t, txmanager.ChainQuery{Receipts: []txmanager.Hash{tx.Hash}, FromBlock: head - depth - 1, ToBlock: head})
		if r := v.Receipts[tx.Hash]; r.Answer != txmanager.AnswerFound || r.Receipt.BlockHash != v.Headers[1].Hash {
			t.Fatalf("under %d blocks: receipt got %+v, want it in block %d", depth, r, head-depth)
		}
		f(depth, tx, v)
	}
}

// queryAgain queries the same about tx as before, and all new headers.
func (b *bundle) queryAgain(t *testing.T, tx txmanager.Signed, before txmanager.ChainObservation) txmanager.ChainObservation {
	t.Helper()
	v := b.query(t, txmanager.ChainQuery{Receipts: []txmanager.Hash{tx.Hash}, FromBlock: before.Headers[0].Number, ToBlock: before.Head.Number + deepest})
	if len(v.Headers) == 0 || v.Headers[len(v.Headers)-1] != v.Head {
		t.Fatalf("headers: got %+v, want them up to the head %+v", v.Headers, v.Head)
	}
	return v
}

func (b *bundle) reorg(t *testing.T, blocks ...[][]byte) {
	t.Helper()
	check.OK(t)(b.Reorg(blocks...))
}

// wantOtherBlocks is [bundle.queryAgain], and requires each block but the first to be replaced by one of its height.
func (b *bundle) wantOtherBlocks(t *testing.T, tx txmanager.Signed, before txmanager.ChainObservation) txmanager.ChainObservation {
	t.Helper()
	after := b.queryAgain(t, tx, before)
	if len(after.Headers) != len(before.Headers) || after.Headers[0] != before.Headers[0] {
		t.Fatalf("after a reorg: headers got %+v, want as many as %+v and the same first", after.Headers, before.Headers)
	}
	for i, old := range before.Headers[1:] {
		if now := after.Headers[i+1]; now.Hash == old.Hash || now.Number != old.Number {
			t.Errorf("after a reorg: block got %+v, want another than %+v", now, old)
		}
	}
	return after
}

// wantMoved requires tx in a block of after's chain that before's did not have.
func (b *bundle) wantMoved(t *testing.T, tx txmanager.Signed, before, after txmanager.ChainObservation) {
	t.Helper()
	got := after.Receipts[tx.Hash]
	in := func(v txmanager.ChainObservation) bool {
		return slices.ContainsFunc(v.Headers, func(h txmanager.Header) bool {
			return h.Hash == got.Receipt.BlockHash && h.Number == got.Receipt.BlockNumber
		})
	}
	if got.Answer != txmanager.AnswerFound || in(before) || !in(after) {
		t.Errorf("after a reorg: receipt got %+v, want it in a new block of %+v", got, after.Headers)
	}
}

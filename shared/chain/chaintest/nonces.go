package chaintest

import (
	"math/big"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// version is one of several transactions with nonce 0. It pays percent more than a transaction usually does
// here.
func (b *bundle) version(t *testing.T, number, percent int64) txmanager.Signed {
	t.Helper()
	return b.tx(t, 0, func(tx *txmanager.Unsigned) {
		tx.FeeCapWei = big.NewInt(10e9 / 100 * (100 + percent))
		tx.TipCapWei = big.NewInt(1e9 / 100 * (100 + percent))
		tx.Value = big.NewInt(number)
	})
}

// wantCounts queries the account's counts.
func (b *bundle) wantCounts(t *testing.T, when string, latest, pending uint64) {
	t.Helper()
	a := b.query(t, txmanager.ChainQuery{Account: true}).Account
	check.Equal(t, when+": latest and pending count", [2]uint64{a.LatestCount, a.PendingCount}, [2]uint64{latest, pending})
}

// wantAnswers queries each transaction's receipt and whether it is known.
func (b *bundle) wantAnswers(t *testing.T, when string, tx txmanager.Signed, receipt, known txmanager.Answer) {
	t.Helper()
	v := b.query(t, txmanager.ChainQuery{Receipts: []txmanager.Hash{tx.Hash}, Known: []txmanager.Hash{tx.Hash}})
	check.Equal(t, when+": receipt answer", v.Receipts[tx.Hash].Answer, receipt)
	check.Equal(t, when+": known", v.Known[tx.Hash], known)
}

// Of two versions of one nonce the node keeps the one that pays more. The other is not found from then on,
// pending or mined, though other nodes may have it.
func (b contract) Replaced(t *testing.T) {
	first, second := b.version(t, 1, 0), b.version(t, 2, 25)
	b.mustSend(t, first)
	b.wantAnswers(t, "first sent", first, txmanager.AnswerNotFound, txmanager.AnswerFound)
	b.mustSend(t, second)
	b.wantAnswers(t, "first replaced", first, txmanager.AnswerNotFound, txmanager.AnswerNotFound)
	b.wantAnswers(t, "second sent", second, txmanager.AnswerNotFound, txmanager.AnswerFound)
	b.wantCounts(t, "second sent", 0, 1)
	wantClass(t, b.send(t, first)[0], txmanager.SendUnderpriced)

	b.mine(t, 1)
	b.wantAnswers(t, "second mined", first, txmanager.AnswerNotFound, txmanager.AnswerNotFound)
	b.wantAnswers(t, "second mined", second, txmanager.AnswerFound, txmanager.AnswerFound)
	b.wantCounts(t, "second mined", 1, 1)
	wantClass(t, b.send(t, first)[0], txmanager.SendNonceTooLow)
}

// A node accepts a nonce before the preceding one, counts it only when that has arrived, and does not mine it
// before.
func (b contract) NonceGap(t *testing.T) {
	later := b.tx(t, 1, nil)
	b.mustSend(t, later)
	wantClass(t, b.send(t, later)[0], txmanager.SendAlreadyKnown)
	b.wantCounts(t, "gap", 0, 0)
	b.mine(t, 1)
	b.wantAnswers(t, "block over a gap", later, txmanager.AnswerNotFound, txmanager.AnswerFound)

	b.mustSend(t, b.tx(t, 0, nil))
	b.wantCounts(t, "gap filled", 0, 2)
	b.mine(t, 1)
	b.wantAnswers(t, "gap filled and mined", later, txmanager.AnswerFound, txmanager.AnswerFound)
	b.wantCounts(t, "gap filled and mined", 2, 2)
}

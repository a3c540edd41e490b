package chaintest

import (
	"fmt"
	"math/big"
	"net/http"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Results are in the order of the transactions, one for each. The same bytes again are already known, and have no effect.
func (b contract) SendInOrder(t *testing.T) {
	first := b.tx(t, 0, nil)
	results := b.send(t, first, b.tx(t, 1, nil), first, b.tx(t, 2, nil))
	for i, want := range []txmanager.SendClass{txmanager.SendAccepted, txmanager.SendAccepted, txmanager.SendAlreadyKnown, txmanager.SendAccepted} {
		wantClass(t, results[i], want)
	}
	if again := results[2]; !again.Acknowledged() || again.Text == "" {
		t.Errorf("the same bytes again: got %+v, want it acknowledged, with the node's words", again)
	}
	b.mine(t, 1)
	b.wantCounts(t, "sent in order", 3, 3)
	check.Equal(t, "results of nothing", len(b.connector.Send(t.Context(), nil)), 0)
}

// A consumed nonce is refused with the same class whichever transaction consumed it. Only known tells the two
// cases apart.
func (b contract) NonceTooLow(t *testing.T) {
	ours, foreign := b.tx(t, 0, nil), b.tx(t, 0, func(tx *txmanager.Unsigned) { tx.Value = big.NewInt(2) })
	b.include(t, 1, ours)
	for name, c := range map[string]struct {
		tx    txmanager.Signed
		known txmanager.Answer
	}{
		"consumed by these bytes": {ours, txmanager.AnswerFound},
		"consumed by others":      {foreign, txmanager.AnswerNotFound},
	} {
		wantClass(t, b.send(t, c.tx)[0], txmanager.SendNonceTooLow)
		check.Equal(t, name+": known", b.query(t, txmanager.ChainQuery{Known: []txmanager.Hash{c.tx.Hash}}).Known[c.tx.Hash], c.known)
	}
}

func (b contract) ReplacementUnderpriced(t *testing.T) {
	b.mustSend(t, b.version(t, 1, 0))
	refused := b.send(t, b.version(t, 2, b.BumpPercent-1))[0]
	wantClass(t, refused, txmanager.SendUnderpriced)
	check.Equal(t, "underpriced replacement: acknowledged", refused.Acknowledged(), false)
	b.mustSend(t, b.version(t, 3, b.BumpPercent))
}

func (b contract) InsufficientFunds(t *testing.T) {
	tx := b.tx(t, 0, func(tx *txmanager.Unsigned) { tx.Value = new(big.Int).Lsh(big.NewInt(1), 200) })
	wantClass(t, b.send(t, tx)[0], txmanager.SendInsufficientFunds)
}

// A node accepted the bytes and its answer was lost: the result is unknown for each kind of lost answer. Sent
// again they are known.
func (b overJSONRPC) SilenceAfterAcceptance(t *testing.T) {
	hasty := b.connect(t, b.ChainID, 300*time.Millisecond)
	for n, c := range []struct {
		name      string
		fault     Fault
		connector txmanager.ChainConnector
	}{
		{"dropped", Fault{Drop: true}, b.connector},
		{"bad gateway", Fault{Status: http.StatusBadGateway}, b.connector},
		{"hanging", Fault{Hang: true}, hasty},
	} {
		tx, next := b.tx(t, uint64(2*n), nil), b.tx(t, uint64(2*n+1), nil)
		b.proxy.Set(c.fault)
		for _, r := range c.connector.Send(t.Context(), [][]byte{tx.Raw, next.Raw}) {
			wantClass(t, r, txmanager.SendUnknown)
			check.Equal(t, c.name+": it says why", r.Text != "", true)
		}
		b.proxy.Set(Fault{})
		for _, r := range b.send(t, tx, next) {
			wantClass(t, r, txmanager.SendAlreadyKnown)
		}
	}
}

func (b overJSONRPC) UnknownWordsAndWrongHash(t *testing.T) {
	for n, response := range []map[string]any{
		NodeError("the moon is in the wrong house"),
		{"result": nil},
		{"result": absentHash},
		{"result": true},
		{},
	} {
		b.proxy.Set(FaultyMethod("eth_sendRawTransaction", response))
		got := b.send(t, b.tx(t, uint64(n), nil))[0]
		wantClass(t, got, txmanager.SendUnknown)
		check.Equal(t, fmt.Sprintf("response %d: it says why", n), got.Text != "", true)
	}
}

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

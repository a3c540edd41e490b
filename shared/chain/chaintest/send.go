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

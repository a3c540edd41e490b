package txtest

import (
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// DrawHeld is a transaction that holds nonce n, in any state and with any check times.
func DrawHeld(t *rapid.T, n uint64) txmanager.Tx {
	at := rapid.SampledFrom([]*time.Time{nil, Ago(time.Minute), Ago(time.Minute), In(time.Minute)})
	from := rapid.Uint64Range(95, 105).Draw(t, "block")
	tx := rapid.SampledFrom([]txmanager.Tx{
		Pending(n), Submitted(n), Pending(n), Submitted(n), Bare(n), Included(n, Blocks('a', from, from+2)...), Stuck(n), Held(n, txmanager.Protect, ""),
	}).Draw(t, "tx")
	tx.NextCheckAt, tx.NextResubmitAt = at.Draw(t, "check"), at.Draw(t, "resubmit")
	if tx.State != txmanager.InFlight {
		tx.SubmitAttempts = rapid.SampledFrom([]int{1, 5, 18, 19, 20, 21}).Draw(t, "attempts")
		tx.FirstSubmitAt = Ago(rapid.SampledFrom([]time.Duration{time.Minute, 2 * time.Minute, 10 * time.Minute, time.Hour}).Draw(t, "age"))
	}
	return tx
}

// DrawState is a submitter's state with one to six open nonces from first on, and two queued intents.
func DrawState(t *rapid.T, first uint64) txmanager.SubmitterState {
	var txs []txmanager.Tx
	for n := range uint64(rapid.IntRange(1, 6).Draw(t, "held")) {
		txs = append(txs, DrawHeld(t, first+n))
	}
	window := rapid.Uint64Range(2, 8).Draw(t, "window")
	return Queue(StateOf(window, first+uint64(len(txs)), txs...), Queued(1, "pay"), Queued(2, "pay"))
}

// DrawAnswers is what a node on one of two chains says of every open version, in nonce order, so
// that a seed draws the same again.
func DrawAnswers(t *rapid.T, w txmanager.SubmitterState) txmanager.ChainObservation {
	from := rapid.Uint64Range(94, 104).Draw(t, "from")
	chain := rapid.SampledFrom([]byte{'a', 'b'})
	v := ViewOf(w, Blocks(chain.Draw(t, "chain"), from, from+rapid.Uint64Range(0, 8).Draw(t, "headers"))...)
	for _, tx := range w.Open {
		for _, h := range tx.Versions {
			switch rapid.IntRange(0, 3).Draw(t, "answer") {
			case 2:
				v.Receipts[h] = txmanager.ReceiptAnswer{}
			case 3:
				b := Block(chain.Draw(t, "in"), rapid.Uint64Range(93, 112).Draw(t, "at"))
				v = Finding(v, txmanager.Receipt{TxHash: h, BlockNumber: b.Number, BlockHash: b.Hash, Succeeded: rapid.Bool().Draw(t, "succeeded")})
			}
		}
	}
	if rapid.Bool().Draw(t, "without headers") {
		v.Headers = nil
	}
	return v
}

// MixCase draws the letter case of each hex digit after 0x.
func MixCase(t *rapid.T, text string) string {
	digits := []byte(text)
	for i := 2; i < len(digits); i++ {
		if rapid.Bool().Draw(t, "upper") {
			digits[i] = strings.ToUpper(text)[i]
		}
	}
	return string(digits)
}

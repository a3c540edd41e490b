package txmanager

// Recorded is what a release recorded for a request: the foreign transaction that carried it out.
type Recorded struct {
	Nonce   uint64   `json:"nonce"`   // the nonce that the transaction consumed
	Receipt *Receipt `json:"receipt"` // nil: no node gave the transaction, and an operator stated that it was carried out
}

// StatedAsExecuted is the last error of a request that ended on an operator's statement alone.
const StatedAsExecuted = "an operator stated that a foreign transaction was this request and was carried out; no node shows that transaction, so nothing on the chain proves it"

// isExecutedElsewhere reports whether a foreign transaction carried out t's request, and t's own
// nonce has no placeholder yet.
func (t Tx) isExecutedElsewhere() bool { return t.Recorded != nil && !t.isPlaceholder(t.Hash()) }

// endRecorded is t, ended by the named foreign transaction.
func endRecorded(t Tx, r Recorded) Tx {
	t.Recorded, t.Receipt, t.Confirmations = &r, r.Receipt, nil
	t.State, t.Sub, t.RequestedAction, t.NextCheckAt, t.NextResubmitAt = Confirmed, RecordedOnChain, "", nil, nil
	if r.Receipt == nil {
		t.LastError = StatedAsExecuted
		return t
	}
	t.LastError = "a release recorded that a foreign transaction was this request"
	t.Confirmations = []Header{{Number: r.Receipt.BlockNumber, Hash: r.Receipt.BlockHash}}
	if !r.Receipt.Succeeded {
		t.State, t.Sub = Failed, Reverted
		t.LastError = "a release recorded that a foreign transaction was this request, and it reverted"
	}
	return t
}

// isExecutedTwice reports whether t's own bytes were carried out after a release recorded a
// foreign transaction for it.
func (t Tx) isExecutedTwice() bool {
	return t.Recorded != nil && t.State.Terminal() && t.Receipt != nil && t.Receipt.Succeeded &&
		(t.Recorded.Receipt == nil || t.Recorded.Receipt.TxHash != t.Receipt.TxHash) && !t.isPlaceholder(t.Receipt.TxHash)
}

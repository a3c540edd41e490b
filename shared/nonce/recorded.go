package nonce

// Recorded is what a release recorded of a request: the foreign transaction that it was.
type Recorded struct {
	Nonce   uint64   `json:"nonce"`   // the nonce that the transaction consumed
	Receipt *Receipt `json:"receipt"` // nil: the node did not tell of it, and the operator named it all the same
}

// spent says that t's request was carried out by a foreign transaction, and that a
// placeholder is not there yet to consume t's own nonce.
func (t Tx) spent() bool { return t.Recorded != nil && !t.isPlaceholder(t.Hash()) }

// recordedAs is t with the named foreign transaction as its end.
func recordedAs(t Tx, r Recorded) Tx {
	t.Recorded, t.Receipt, t.Confirmations = &r, r.Receipt, nil
	t.State, t.Sub, t.Ordered, t.NextCheckAt, t.NextResubmitAt = Confirmed, RecordedOnChain, "", nil, nil
	t.LastError = "a release recorded that a foreign transaction was this request"
	if r.Receipt == nil {
		return t
	}
	t.Confirmations = []Header{{Number: r.Receipt.BlockNumber, Hash: r.Receipt.BlockHash}}
	if !r.Receipt.Succeeded {
		t.State, t.Sub = Failed, Reverted
		t.LastError = "a release recorded that a foreign transaction was this request, and it reverted"
	}
	return t
}

// secondExecution says that t was carried out by its own bytes, although a release
// recorded that a foreign transaction had done so already.
func (t Tx) secondExecution() bool {
	return t.Recorded != nil && t.State.Final() && t.Receipt != nil && t.Receipt.Succeeded &&
		(t.Recorded.Receipt == nil || t.Recorded.Receipt.TxHash != t.Receipt.TxHash) && !t.isPlaceholder(t.Receipt.TxHash)
}

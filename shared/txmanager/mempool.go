package txmanager

import "time"

// Signal is where a transaction without a receipt seems to be. It is one node's answer at one
// moment and proves nothing.
type Signal string

// The signals.
const (
	InMempool       Signal = "IN_MEMPOOL"       // the node knows a version of it
	PerhapsLost     Signal = "PERHAPS_LOST"     // the node knows no version, and the nonce is free there
	PerhapsReplaced Signal = "PERHAPS_REPLACED" // the node knows no version, and another transaction has the nonce there, mined or pending
)

// Advice is a suggestion for the decider. The transaction manager does not act on it.
type Advice string

// The suggestions.
const (
	AdviseWait     Advice = "WAIT"
	AdviseResubmit Advice = "RESUBMIT" // send the same bytes again
	AdviseBump     Advice = "BUMP"     // blocks require more than its last version pays
)

// Diagnosis is the result of a [MempoolInspector]. It informs an operator or a [StuckResolution],
// and it changes no state.
type Diagnosis struct {
	Signal       Signal    `json:"signal"`
	Advice       Advice    `json:"advice"`
	Since        time.Time `json:"since"` // the database's time of the first query with this result
	Node         string    `json:"node"`  // the node that answered; no credentials
	Block        uint64    `json:"block"` // the node's head
	LatestCount  uint64    `json:"latestCount"`
	PendingCount uint64    `json:"pendingCount"`
}

// MempoolInspector diagnoses transactions without a receipt from data that the query contains
// anyway: eth_getTransactionByHash of each version, and the account's counts.
type MempoolInspector struct {
	Most int // versions in a query beyond those of the lowest nonce
}

// addKnown adds the versions of the queried transactions to Known, the lowest nonces first.
func (m *MempoolInspector) addKnown(q *ChainQuery, unsettled []Tx) {
	if m == nil {
		return
	}
	about, most := q.coversTx(), len(q.Known)+m.Most
	for i, t := range unsettled {
		if i == 0 || t.Receipt != nil || !about(t) { // the lowest nonce's versions are always included
			continue
		}
		if len(q.Known)+len(t.Versions) > most {
			return
		}
		q.Known = append(q.Known, t.Versions...)
	}
}

// Inspect is t with a new Diagnosis. It returns t unchanged where it has a receipt, was not
// queried or got no answer, or where the result is the same as before.
func (m *MempoolInspector) Inspect(t Tx, lowest uint64, v ChainObservation, now time.Time) Tx {
	if m == nil || t.Receipt != nil || len(t.Versions) == 0 || v.Account.LatestCount < lowest { // a lower count means that the node lags
		return t
	}
	signal, ok := signalOf(t, v)
	if !ok {
		return t
	}
	advice := map[Signal]Advice{InMempool: AdviseWait, PerhapsLost: AdviseResubmit, PerhapsReplaced: AdviseWait}[signal]
	if signal == InMempool && t.Gas != nil && (!t.isMadeElsewhere() || t.isPlaceholder(t.Hash())) && !paysMarketPrice(*t.Gas, v.Account) {
		advice = AdviseBump
	}
	if d := t.Diagnosis; d != nil && d.Signal == signal && d.Advice == advice {
		return t
	}
	t.Diagnosis = &Diagnosis{Signal: signal, Advice: advice, Since: now, Node: v.Node, Block: v.Head.Number,
		LatestCount: v.Account.LatestCount, PendingCount: v.Account.PendingCount}
	return t
}

// signalOf evaluates one node's answers about every version of t. ok is false where an answer is
// missing.
func signalOf(t Tx, v ChainObservation) (s Signal, ok bool) {
	for _, h := range t.Versions {
		switch v.Known[h] {
		case AnswerFound:
			return InMempool, true
		case AnswerUnknown:
			return "", false
		}
	}
	if v.Account.LatestCount > *t.Nonce || v.Account.PendingCount > *t.Nonce {
		return PerhapsReplaced, true
	}
	return PerhapsLost, true
}

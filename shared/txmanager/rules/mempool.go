package rules

import (
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
)

// MempoolInspector diagnoses transactions without a receipt from data that the query contains
// anyway: eth_getTransactionByHash of each version, and the account's counts.
type MempoolInspector struct {
	Most int // versions in a query beyond those of the lowest nonce
}

// addKnown adds the versions of the queried transactions to Known, the lowest nonces first.
func (m *MempoolInspector) addKnown(q *txmanager.ChainQuery, unsettled []txmanager.Tx) {
	if m == nil {
		return
	}
	about, most := CoversTx(*q), len(q.Known)+m.Most
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
func (m *MempoolInspector) Inspect(t txmanager.Tx, lowest uint64, v txmanager.ChainObservation, now time.Time) txmanager.Tx {
	if m == nil || t.Receipt != nil || len(t.Versions) == 0 || v.Account.LatestCount < lowest { // a lower count means that the node lags
		return t
	}
	signal, ok := signalOf(t, v)
	if !ok {
		return t
	}
	advice := map[txmanager.Signal]txmanager.Advice{txmanager.InMempool: txmanager.AdviseWait, txmanager.PerhapsLost: txmanager.AdviseResubmit, txmanager.PerhapsReplaced: txmanager.AdviseWait}[signal]
	if signal == txmanager.InMempool && t.Gas != nil && (!t.IsMadeElsewhere() || t.IsPlaceholder(t.Hash())) && !gas.PaysMarketPrice(*t.Gas, v.Account) {
		advice = txmanager.AdviseBump
	}
	if d := t.Diagnosis; d != nil && d.Signal == signal && d.Advice == advice {
		return t
	}
	t.Diagnosis = &txmanager.Diagnosis{Signal: signal, Advice: advice, Since: now, Node: v.Node, Block: v.Head.Number,
		LatestCount: v.Account.LatestCount, PendingCount: v.Account.PendingCount}
	return t
}

// signalOf evaluates one node's answers about every version of t. ok is false where an answer is
// missing.
func signalOf(t txmanager.Tx, v txmanager.ChainObservation) (s txmanager.Signal, ok bool) {
	for _, h := range t.Versions {
		switch v.Known[h] {
		case txmanager.AnswerFound:
			return txmanager.InMempool, true
		case txmanager.AnswerUnknown:
			return "", false
		}
	}
	if v.Account.LatestCount > *t.Nonce || v.Account.PendingCount > *t.Nonce {
		return txmanager.PerhapsReplaced, true
	}
	return txmanager.PerhapsLost, true
}

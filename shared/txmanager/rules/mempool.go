package rules

import (
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
)

// MempoolInspector diagnoses transactions without a receipt. Its answer informs, and decides nothing.
type MempoolInspector interface {
	// Diagnose returns where the transaction of e seems to be and what a decider could do, or ok false for
	// no diagnosis. It must make no outside calls and use only e: any process may ask it, more than once.
	Diagnose(e MempoolEvidence) (signal txmanager.Signal, advice txmanager.Advice, ok bool)
}

// MempoolEvidence is what one node answered about a transaction. Its amounts are copies.
type MempoolEvidence struct {
	TxID         string
	Submitter    txmanager.Submitter
	Nonce        uint64
	Versions     []txmanager.Answer  // whether the node has each version, oldest first
	LatestCount  uint64              // the account's count in blocks
	PendingCount uint64              // and with the node's pool
	Last         txmanager.GasParams // of its last version; zero: unknown
	Underpriced  bool                // blocks require more than its last version pays, and a gas bump can replace it
}

// DefaultInspector is the default [MempoolInspector].
type DefaultInspector struct{}

// Diagnose implements [MempoolInspector]. ok is false where an answer is missing.
func (DefaultInspector) Diagnose(e MempoolEvidence) (txmanager.Signal, txmanager.Advice, bool) {
	for _, answer := range e.Versions {
		switch {
		case answer == txmanager.AnswerFound && e.Underpriced:
			return txmanager.InMempool, txmanager.AdviseBump, true
		case answer == txmanager.AnswerFound:
			return txmanager.InMempool, txmanager.AdviseWait, true
		case answer == txmanager.AnswerUnknown:
			return "", "", false
		}
	}
	if e.LatestCount > e.Nonce || e.PendingCount > e.Nonce {
		return txmanager.PerhapsReplaced, txmanager.AdviseWait, true
	}
	return txmanager.PerhapsLost, txmanager.AdviseResubmit, true
}

// Inspection is the mempool diagnosis of a deployment, from data that the query contains anyway:
// eth_getTransactionByHash of each version, and the account's counts.
type Inspection struct {
	Inspector   MempoolInspector
	MaxVersions int                        // versions in a query beyond those of the lowest nonce
	Unused      func(txID, problem string) // called with why an answer is not used; may be nil
}

// addKnown adds the versions of the queried transactions to Known, the lowest nonces first.
func (m *Inspection) addKnown(q *txmanager.ChainQuery, unsettled []txmanager.Tx) {
	if m == nil {
		return
	}
	about, limit := CoversTx(*q), len(q.Known)+m.MaxVersions
	for i, t := range unsettled {
		if i == 0 || t.Receipt != nil || !about(t) { // the lowest nonce's versions are always included
			continue
		}
		if len(q.Known)+len(t.Versions) > limit {
			return
		}
		q.Known = append(q.Known, t.Versions...)
	}
}

// Inspect is t with a new Diagnosis. It returns t unchanged where it has a receipt, was not
// queried or got no answer, or where the result is the same as before.
func (m *Inspection) Inspect(t txmanager.Tx, lowest uint64, v txmanager.ChainObservation, now time.Time) txmanager.Tx {
	if m == nil || t.Receipt != nil || len(t.Versions) == 0 || v.Account.LatestCount < lowest { // a lower count means that the node lags
		return t
	}
	signal, advice, ok := m.ask(evidenceOf(t, v))
	if !ok {
		return t
	}
	if d := t.Diagnosis; d != nil && d.Signal == signal && d.Advice == advice {
		return t
	}
	t.Diagnosis = &txmanager.Diagnosis{Signal: signal, Advice: advice, Since: now, Node: v.Node, Block: v.Head.Number,
		LatestCount: v.Account.LatestCount, PendingCount: v.Account.PendingCount}
	return t
}

// evidenceOf is what v shows about t.
func evidenceOf(t txmanager.Tx, v txmanager.ChainObservation) MempoolEvidence {
	e := MempoolEvidence{TxID: t.ID, Submitter: t.Submitter, Nonce: *t.Nonce, LatestCount: v.Account.LatestCount, PendingCount: v.Account.PendingCount}
	for _, h := range t.Versions {
		e.Versions = append(e.Versions, v.Known[h])
	}
	if t.Gas != nil {
		e.Last = gas.CopyParams(*t.Gas)
		e.Underpriced = (!t.IsMadeElsewhere() || t.IsPlaceholder(t.Hash())) && !gas.PaysMarketPrice(*t.Gas, v.Account)
	}
	return e
}

var (
	allSignals = []txmanager.Signal{txmanager.InMempool, txmanager.PerhapsLost, txmanager.PerhapsReplaced}
	allAdvice  = []txmanager.Advice{txmanager.AdviseWait, txmanager.AdviseResubmit, txmanager.AdviseBump}
)

// ask calls the inspector. A panic, or an answer that readers do not know, counts as no diagnosis.
func (m *Inspection) ask(e MempoolEvidence) (signal txmanager.Signal, advice txmanager.Advice, ok bool) {
	problem := ""
	switch p := txmanager.PanicOf(func() { signal, advice, ok = m.Inspector.Diagnose(e) }); {
	case p != nil:
		problem = fmt.Sprint("the MempoolInspector panicked: ", p)
	case ok && (!slices.Contains(allSignals, signal) || !slices.Contains(allAdvice, advice)):
		problem = fmt.Sprintf("signal %q, advice %q: want one of %v, and of %v", signal, advice, allSignals, allAdvice)
	}
	if problem != "" && m.Unused != nil {
		m.Unused(e.TxID, problem)
	}
	return signal, advice, ok && problem == ""
}

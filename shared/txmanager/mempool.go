package txmanager

import "time"

// Signal is where a transaction without a receipt seems to be. None of them is proof
// of anything: it is what one node said at one moment.
type Signal string

// The signals.
const (
	InMempool       Signal = "IN_MEMPOOL"       // the node knows a version of it
	PerhapsLost     Signal = "PERHAPS_LOST"     // it knows none, and its nonce is free there
	PerhapsReplaced Signal = "PERHAPS_REPLACED" // it knows none, and something else has its nonce there, mined or pending
)

// Advice is what a signal suggests to whoever decides. Nothing acts on it.
type Advice string

// The pieces of advice.
const (
	AdviseWait     Advice = "WAIT"
	AdviseResubmit Advice = "RESUBMIT" // send the same bytes again
	AdviseBump     Advice = "BUMP"     // blocks take more than its last version pays
)

// Diagnosis is what a [MempoolInspector] made of a look. It is for decisions, by people
// or by a [StuckResolution], and for observation: it ends nothing and moves nothing.
type Diagnosis struct {
	Signal       Signal    `json:"signal"`
	Advice       Advice    `json:"advice"`
	Since        time.Time `json:"since"` // by the database's clock: of the first look that said so
	Node         string    `json:"node"`  // which node, then; no credentials
	Block        uint64    `json:"block"` // its head
	LatestCount  uint64    `json:"latestCount"`
	PendingCount uint64    `json:"pendingCount"`
}

// MempoolInspector diagnoses transactions without a receipt, out of what the look asked
// for anyway: eth_getTransactionByHash of each version, and the account's counts.
type MempoolInspector struct {
	Most int // versions that a look asks for beyond those of the lowest nonce
}

// addKnown adds the versions of what is looked at, the lowest nonces first.
func (m *MempoolInspector) addKnown(q *ChainQuery, unsettled []Tx) {
	if m == nil {
		return
	}
	about, most := q.coversTx(), len(q.Known)+m.Most
	for i, t := range unsettled {
		if i == 0 || t.Receipt != nil || !about(t) { // the lowest's are asked for in any case
			continue
		}
		if len(q.Known)+len(t.Versions) > most {
			return
		}
		q.Known = append(q.Known, t.Versions...)
	}
}

// Inspect is t with what v shows of it, or as it was: where it has a receipt, where the
// look was not about it or got no answer, and where nothing has changed since the last.
func (m *MempoolInspector) Inspect(t Tx, lowest uint64, v ChainObservation, now time.Time) Tx {
	if m == nil || t.Receipt != nil || len(t.Versions) == 0 || v.Account.LatestCount < lowest { // else the node lags
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

// signalOf reads one node's answers about every version of t. What got no answer says
// nothing.
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

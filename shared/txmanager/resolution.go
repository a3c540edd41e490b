package txmanager

import "time"

// StuckResolution decides by code about STUCK transactions, in place of an operator.
type StuckResolution interface {
	// Resolve is called at every evaluation of a STUCK transaction without a requested action. The
	// same call may be repeated by any process. It returns [ActionWait] to leave the decision to
	// an operator, or another action with the reason to store. It must make no outside calls and
	// use only t.
	Resolve(t Tx) (Action, string)
}

// Decision is a decision made by code, as it is recorded.
type Decision struct {
	Action Action
	By     string
	Reason string
}

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

// Diagnosis is the result of a [rules.MempoolInspector]. It informs an operator or a [StuckResolution],
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

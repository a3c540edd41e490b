package txmanager

import "time"

// WaitCause is why a transaction waits: one of [WaitCauses], or "" if it does not wait.
type WaitCause string

// The stored causes. The rules set one with the decision to wait, and clear it when the wait is
// over. Their comments are their texts in docs/runbooks/waiting.md and in the description of the API.
const (
	WaitBalance     WaitCause = "BALANCE"      // the account cannot pay for it
	WaitGasEstimate WaitCause = "GAS_ESTIMATE" // no node has estimated the gas of its call
	WaitFeeCeiling  WaitCause = "FEE_CEILING"  // blocks take higher fees than the settings or the policy allow
	WaitOwnBounds   WaitCause = "OWN_BOUNDS"   // blocks take higher fees than its caller allows
	WaitPolicy      WaitCause = "POLICY"       // the submitter's policy allows no further fees now
	WaitDeferred    WaitCause = "DEFERRED"     // its call would revert now; it is tried again once the open transactions are terminal
	WaitPredecessor WaitCause = "PREDECESSOR"  // no node has acknowledged an earlier transaction
	WaitHandler     WaitCause = "HANDLER"      // its handler is missing, or asks to be called again
	WaitSigner      WaitCause = "SIGNER"       // the signer gave no signature
	WaitMACKey      WaitCause = "MAC_KEY"      // the function that signs lacks the key of its MAC
	WaitMACService  WaitCause = "MAC_SERVICE"  // the service that checks MACs gives no answer
	WaitNodes       WaitCause = "NODES"        // no node of the chain answers, or the node is behind
	WaitNodesDiffer WaitCause = "NODES_DIFFER" // the nodes of the chain do not agree
	WaitSuspected   WaitCause = "SUSPECTED"    // the chain contradicts the record: foreign use of the key, or a reorg, is suspected
	WaitAccountCode WaitCause = "ACCOUNT_CODE" // the account has code or a delegation
	WaitLostNonces  WaitCause = "LOST_NONCES"  // placeholders for nonces of a lost database are not final
	WaitGasBump     WaitCause = "GAS_BUMP"     // a limit prevents a higher fee that is due
	WaitNodeRefuses WaitCause = "NODE_REFUSES" // the node does not accept its bytes now
	WaitForOperator WaitCause = "OPERATOR"     // an operator must decide
)

// The derived causes. No row stores them: they follow from the state of the transaction, its
// submitter and its queue.
const (
	WaitProtect     WaitCause = "PROTECT"        // the submitter is in PROTECT
	WaitSuspended   WaitCause = "SUSPENDED"      // the submitter is suspended
	WaitHeld        WaitCause = "HELD"           // it is held until its caller posts it again, or an operator decides
	WaitWindowFull  WaitCause = "WINDOW_FULL"    // as many transactions are open as the submitter's window allows
	WaitEarlier     WaitCause = "EARLIER_INTENT" // an earlier intent of the queue has no nonce yet
	WaitNext        WaitCause = "NEXT"           // it is next: its allocation or signature is due
	WaitReservation WaitCause = "RESERVATION"    // the owner of the reserved nonce has not used it
	WaitBroadcast   WaitCause = "BROADCAST"      // it is sent, and no node has acknowledged it
	WaitInclusion   WaitCause = "INCLUSION"      // no block includes it
	WaitFinality    WaitCause = "FINALITY"       // its block is not final
)

// StoredCauses lists the causes that the constraint wait_cause_is_known allows.
func StoredCauses() []WaitCause {
	return []WaitCause{
		WaitBalance, WaitGasEstimate, WaitFeeCeiling, WaitOwnBounds, WaitPolicy, WaitDeferred, WaitPredecessor, WaitHandler, WaitSigner, WaitMACKey,
		WaitMACService, WaitNodes, WaitNodesDiffer, WaitSuspected, WaitAccountCode, WaitLostNonces, WaitGasBump, WaitNodeRefuses, WaitForOperator,
	}
}

// WaitCauses lists every cause, the stored ones first.
func WaitCauses() []WaitCause {
	return append(StoredCauses(),
		WaitProtect, WaitSuspended, WaitHeld, WaitWindowFull, WaitEarlier, WaitNext, WaitReservation, WaitBroadcast, WaitInclusion, WaitFinality)
}

// Wait is why a transaction waits. The zero value is no wait.
type Wait struct {
	Cause  WaitCause
	Reason string // for a person; "": it does not wait
}

// WaitFor is the wait for a reason; the zero value if the reason is "".
func WaitFor(cause WaitCause, reason string) Wait {
	if reason == "" {
		return Wait{}
	}
	return Wait{cause, reason}
}

// Explain sets why t waits, or with what it ended. A cause of "" is none: t does not wait, or
// its cause is derived.
func (t *Tx) Explain(cause WaitCause, reason string) { t.Cause, t.LastError = cause, reason }

// CauseGuide is what an operator needs to know about a cause.
type CauseGuide struct {
	NextActor string // who ends the wait
	Action    string // what an operator can do
	Runbook   string // a page of docs/runbooks, without its ending

	// Limit is the time after which the head of a queue that waits for this cause raises an alert.
	// Finalities is the same as a multiple of the chain's time to finality. Both 0: other alerts apply.
	Limit      time.Duration
	Finalities int
}

// Guide is the guide to c; the zero value for an unknown cause.
func (c WaitCause) Guide() CauseGuide { return causeGuides[c] }

// LimitOn is the time after which a head that waits for g's cause raises an alert, on a chain with
// this time to finality; 0: none.
func (g CauseGuide) LimitOn(toFinality time.Duration) time.Duration {
	return g.Limit + time.Duration(g.Finalities)*toFinality
}

var causeGuides = map[WaitCause]CauseGuide{
	WaitBalance:     {"the owner of the account", "Send coin to the account, or cancel the intent.", "balance", 5 * time.Minute, 0},
	WaitGasEstimate: {"a node of the chain", "Read lastErrorDetail. Cancel the intent, or post it again with gas.", "waiting", 15 * time.Minute, 0},
	WaitFeeCeiling:  {"the chain's fees", "Wait for lower fees, or raise fees.maxFeePerGas or the policy's limits.", "fee-ceiling", 15 * time.Minute, 0},
	WaitOwnBounds:   {"the chain's fees", "Wait for lower fees, or cancel the intent; its caller can post another with a higher maxFeePerGas.", "fee-ceiling", time.Hour, 0},
	WaitPolicy:      {"time, within 24 hours", "Wait, or raise maxFeesPerDay of the policy.", "fee-ceiling", time.Hour, 0},
	WaitDeferred:    {"the open transactions", "Wait until they are terminal, or cancel the intent.", "waiting", 0, 4},
	WaitPredecessor: {"a node of the chain", "Look at the transaction in blockedBy.", "waiting", 15 * time.Minute, 0},
	WaitHandler:     {"the handler", "Look at the handler's own log and at lastError.", "waiting", 15 * time.Minute, 0},
	WaitSigner:      {"the signer", "Restore the signer's service or key.", "signer-failing", 5 * time.Minute, 0},
	WaitMACKey:      {"an operator", "Add the key to intents.macKeys, or cancel the intent.", "intent-unproved", 5 * time.Minute, 0},
	WaitMACService:  {"the service that checks MACs", "Restore the service.", "intent-unproved", 5 * time.Minute, 0},
	WaitNodes:       {"a node of the chain", "Restore a node, or add another one.", "node-excluded", 10 * time.Minute, 0},
	WaitNodesDiffer: {"the nodes of the chain", "Find the node that is wrong, and remove it.", "node-excluded", 10 * time.Minute, 0},
	WaitSuspected:   {"the next chain queries", "Wait for PROTECT or its opposite; find out who else can use the key.", "protect", 10 * time.Minute, 0},
	WaitAccountCode: {"an operator", "Remove the account's delegation from outside, or use another account.", "waiting", 5 * time.Minute, 0},
	WaitLostNonces:  {"the chain", "Wait until the placeholders are final.", "restore", 0, 4},
	WaitGasBump:     {"the limit that lastError names", "Raise the limit, or wait for lower fees.", "gas-bump-held", 0, 0},
	WaitNodeRefuses: {"a node of the chain", "Wait: the same bytes are sent again.", "resubmits", 0, 0},
	WaitForOperator: {"an operator", "POST …/decide, after reading …/versions and …/history.", "stuck", 0, 0},
	WaitProtect:     {"an operator", "POST …/release, by the runbook.", "protect", time.Minute, 0},
	WaitSuspended:   {"an operator", "POST …/resume.", "waiting", 24 * time.Hour, 0},
	WaitHeld:        {"its caller, or an operator", "POST …/proceed, or cancel the intent.", "held-intents", 0, 0},
	WaitWindowFull:  {"the chain", "Wait for finality. A larger window lets more transactions be open at once.", "waiting", 0, 4},
	WaitEarlier:     {"the transaction in blockedBy", "Look at that transaction.", "waiting", 0, 0},
	WaitNext:        {"the function advance", "Nothing, unless it lasts: then look at the sweep and at the function's errors.", "waiting", 10 * time.Minute, 0},
	WaitReservation: {"the owner of the reservation", "Wait: the nonce is filled after the reservation's time.", "in-flight-age", 0, 0},
	WaitBroadcast:   {"a node of the chain", "Wait: the same bytes are sent again.", "resubmits", 0, 0},
	WaitInclusion:   {"the chain", "Wait, or POST …/decide with replace for higher fees.", "receipt-backlog", 0, 0},
	WaitFinality:    {"the chain", "Wait for the blocks on top of it.", "receipt-backlog", 0, 0},
}

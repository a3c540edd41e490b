package txmanager

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

var (
	storedCauses = []WaitCause{
		WaitBalance, WaitGasEstimate, WaitFeeCeiling, WaitOwnBounds, WaitPolicy, WaitDeferred, WaitPredecessor, WaitHandler, WaitSigner, WaitMACKey,
		WaitMACService, WaitNodes, WaitNodesDiffer, WaitSuspected, WaitAccountCode, WaitLostNonces, WaitGasBump, WaitNodeRefuses, WaitForOperator,
	}
	derivedCauses = []WaitCause{
		WaitProtect, WaitSuspended, WaitHeld, WaitWindowFull, WaitEarlier, WaitNext, WaitReservation, WaitBroadcast, WaitInclusion, WaitFinality,
	}
)

// StoredCauses lists the causes that the constraint wait_cause_is_known allows.
func StoredCauses() []WaitCause { return storedCauses }

// WaitCauses lists every cause, the stored ones first.
func WaitCauses() []WaitCause {
	return append(storedCauses[:len(storedCauses):len(storedCauses)], derivedCauses...)
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

package admin

import "github.com/fencepost/fencepost/shared/txmanager"

// whyWaits has, for each cause, the sentence that tells a person why a transaction waits.
var whyWaits = map[txmanager.WaitCause]string{
	txmanager.WaitBalance:     "The account cannot pay for the transaction.",
	txmanager.WaitGasEstimate: "No node has estimated the gas of the transaction's call.",
	txmanager.WaitFeeCeiling:  "Blocks take higher fees than the settings or the policy allow.",
	txmanager.WaitOwnBounds:   "Blocks take higher fees than the transaction's caller allows.",
	txmanager.WaitPolicy:      "The submitter's policy allows no further fees now.",
	txmanager.WaitDeferred:    "The transaction's call would revert now. It is tried again once the open transactions have ended.",
	txmanager.WaitPredecessor: "No node has acknowledged an earlier transaction.",
	txmanager.WaitHandler:     "The transaction's handler is missing, or asks to be called again.",
	txmanager.WaitSigner:      "The signer gave no signature.",
	txmanager.WaitMACKey:      "The function that signs lacks the key of the intent's MAC.",
	txmanager.WaitMACService:  "The service that checks MACs gives no answer.",
	txmanager.WaitNodes:       "No node of the chain answers, or the node is behind.",
	txmanager.WaitNodesDiffer: "The nodes of the chain do not agree.",
	txmanager.WaitSuspected:   "The chain contradicts the record: foreign use of the key, or a reorg, is suspected.",
	txmanager.WaitAccountCode: "The account has code or a delegation.",
	txmanager.WaitLostNonces:  "Placeholders for nonces of a lost database are not final.",
	txmanager.WaitGasBump:     "A limit prevents a higher fee that is due.",
	txmanager.WaitNodeRefuses: "The node does not accept the transaction now.",
	txmanager.WaitForOperator: "An operator must decide about the transaction.",
	txmanager.WaitProtect:     "The submitter is in PROTECT.",
	txmanager.WaitSuspended:   "The submitter is suspended.",
	txmanager.WaitHeld:        "The intent is held until its caller posts it again, or an operator decides.",
	txmanager.WaitWindowFull:  "As many transactions are open as the submitter's window allows.",
	txmanager.WaitEarlier:     "An earlier intent of the queue has no nonce yet.",
	txmanager.WaitNext:        "The transaction is next: its nonce or its signature is due.",
	txmanager.WaitReservation: "The owner of the reserved nonce has not used it.",
	txmanager.WaitBroadcast:   "The transaction is sent, and no node has acknowledged it.",
	txmanager.WaitInclusion:   "No block includes the transaction.",
	txmanager.WaitFinality:    "The transaction's block is not final.",
}

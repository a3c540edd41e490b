package txmanager

import (
	"slices"
	"strings"
)

// OperatorsOnly separates, in a transaction's LastError, the sentence that its caller may read
// from the detail for operators: the node's own text, which can name nonces. The database trigger
// that makes events uses it too.
const OperatorsOnly = "; for operators: "

// WithDetail joins a sentence for callers and a detail for operators.
func WithDetail(sentence, detail string) string {
	if detail == "" {
		return sentence
	}
	return sentence + OperatorsOnly + detail
}

// CallerText splits LastError into the text for the transaction's caller and the detail for
// operators. A node's answer to sent bytes is never for callers, also in texts stored before this
// rule.
func CallerText(lastError string) (text, detail string) {
	text, detail, _ = strings.Cut(lastError, OperatorsOnly)
	name, words, _ := strings.Cut(text, ": ")
	class := slices.IndexFunc(sendClasses[:], func(c sendClass) bool { return c.name == name })
	if class < 0 || words == sendClasses[class].sentence {
		return text, detail
	}
	return SendClass(class).Description(), words
}

// sendClass is the meaning of a [SendClass].
type sendClass struct {
	name     string
	sentence string    // for callers
	cause    WaitCause // why a transaction then waits, unless a node has acknowledged it
}

var sendClasses = [...]sendClass{
	SendUnknown:           {"unknown", "the node gave no clear answer; the same bytes are sent again", WaitNodes},
	SendAccepted:          {"accepted", "the node took it", ""},
	SendAlreadyKnown:      {"already_known", "the node had it", ""},
	SendNonceTooLow:       {"nonce_too_low", "the node answers that the nonce is consumed; the nodes are asked for the transaction that consumed it", WaitNodeRefuses},
	SendNonceTooHigh:      {"nonce_too_high", "the node refuses it before the transactions of lower nonces; it is sent again", WaitNodeRefuses},
	SendUnderpriced:       {"replacement_underpriced", "the node has another version of it that pays as much; it is sent again", WaitNodeRefuses},
	SendFeeTooLow:         {"fee_too_low", "it pays less than the node takes now; it is sent again", WaitNodeRefuses},
	SendInsufficientFunds: {"insufficient_funds", "the account cannot pay for it now; it is sent again", WaitBalance},
	SendPoolFull:          {"pool_full", "the node has no room for it now; it is sent again", WaitNodeRefuses},
	SendOverNodeCap:       {"over_node_cap", "its maximum fee is above the node's own limit; an operator must decide", WaitForOperator},
	SendInvalid:           {"invalid", "no node will take it; an operator must decide", WaitForOperator},
}

// Description is the class and its sentence for callers.
func (c SendClass) Description() string { return c.String() + ": " + sendClasses[c].sentence }

// Cause is why a transaction waits after this answer to its bytes, unless a node has acknowledged it.
func (c SendClass) Cause() WaitCause { return sendClasses[c].cause }

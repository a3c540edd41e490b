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
	class := slices.Index(sendClassNames[:], name)
	if class < 0 || words == sendClassSentences[class] {
		return text, detail
	}
	return SendClass(class).Description(), words
}

// sendClassSentences are the texts for callers, in the order of the classes.
var sendClassSentences = [...]string{
	SendUnknown:           "the node gave no clear answer; the same bytes are sent again",
	SendAccepted:          "the node took it",
	SendAlreadyKnown:      "the node had it",
	SendNonceTooLow:       "the node answers that the nonce is consumed; the nodes are asked for the transaction that consumed it",
	SendNonceTooHigh:      "the node refuses it before the transactions of lower nonces; it is sent again",
	SendUnderpriced:       "the node has another version of it that pays as much; it is sent again",
	SendFeeTooLow:         "it pays less than the node takes now; it is sent again",
	SendInsufficientFunds: "the account cannot pay for it now; it is sent again",
	SendPoolFull:          "the node has no room for it now; it is sent again",
	SendOverNodeCap:       "its maximum fee is above the node's own limit; an operator must decide",
	SendInvalid:           "no node will take it; an operator must decide",
}

// Description is the class and its sentence for callers.
func (c SendClass) Description() string { return c.String() + ": " + sendClassSentences[c] }

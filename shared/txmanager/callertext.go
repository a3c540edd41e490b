package txmanager

import (
	"slices"
	"strings"
)

// operatorsOnly stands, in a transaction's LastError, between the sentence that its caller
// may read and what only operators may: a node's own words, which name nonces. The trigger
// that makes events knows it too.
const operatorsOnly = "; for operators: "

// withDetail is a sentence for callers, and a detail for operators behind it.
func withDetail(sentence, detail string) string {
	if detail == "" {
		return sentence
	}
	return sentence + operatorsOnly + detail
}

// CallerText is what the caller of a transaction may read of its LastError. The rest is
// for operators. What a node said of bytes that it was sent is never for callers, also in a
// text of before this rule.
func CallerText(lastError string) (text, detail string) {
	text, detail, _ = strings.Cut(lastError, operatorsOnly)
	name, words, _ := strings.Cut(text, ": ")
	class := slices.Index(sendClassNames[:], name)
	if class < 0 || words == sendClassSentences[class] {
		return text, detail
	}
	return SendClass(class).description(), words
}

// sendClassSentences are what callers are told of each class, in its order.
var sendClassSentences = [...]string{
	SendUnknown:           "the node gave no clear answer; the same bytes are sent again",
	SendAccepted:          "the node took it",
	SendAlreadyKnown:      "the node had it",
	SendNonceTooLow:       "the node says that its place among the account's transactions is taken; the chain is asked by which",
	SendNonceTooHigh:      "the node does not take it before those that come first; it is sent again",
	SendUnderpriced:       "the node has another version of it that pays as much; it is sent again",
	SendFeeTooLow:         "it pays less than the node takes now; it is sent again",
	SendInsufficientFunds: "the account cannot pay for it now; it is sent again",
	SendPoolFull:          "the node has no room for it now; it is sent again",
	SendOverNodeCap:       "its fee may come to more than the node sends for anybody; an operator must decide",
	SendInvalid:           "no node will take it; an operator must decide",
}

// description is the class with the sentence for callers.
func (c SendClass) description() string { return c.String() + ": " + sendClassSentences[c] }

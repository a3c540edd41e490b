package store

import (
	"strings"
)

// PolicyRule is one of a policy's limits.
type PolicyRule string

// The rules, in the order in which they are checked.
const (
	RuleValue  PolicyRule = "VALUE"
	RuleTarget PolicyRule = "TARGET"
	RuleGas    PolicyRule = "GAS"
	RuleTip    PolicyRule = "TIP"
	RuleFee    PolicyRule = "FEE"
	RuleCount  PolicyRule = "COUNT" // more at once than a minute allows: trying again never helps
	RuleRate   PolicyRule = "RATE"
	RuleDay    PolicyRule = "DAY"
	RuleFees   PolicyRule = "FEES" // of a day

	// Of the caller, beside the submitter's.
	RuleCallerValue PolicyRule = "CALLER_VALUE"
	RuleCallerCount PolicyRule = "CALLER_COUNT"
	RuleCallerRate  PolicyRule = "CALLER_RATE"
	RuleCallerQueue PolicyRule = "CALLER_QUEUE"
	RuleCallerDay   PolicyRule = "CALLER_DAY"

	// Of a token.
	RuleToken     PolicyRule = "TOKEN" // a call of which no amount can be read
	RuleAmount    PolicyRule = "AMOUNT"
	RuleAmountDay PolicyRule = "AMOUNT_DAY"
)

// PolicyError reports the limit by which the submitter's policy refuses an intent. Nothing was
// stored.
type PolicyError struct {
	Rule  PolicyRule
	Limit string // of the rule; "" where it is a list
}

// policyRefusals has the text about each rule, after "the submitter's policy". {limit} is the rule's.
var policyRefusals = map[PolicyRule]string{
	RuleValue:       "allows at most {limit} wei in one transaction",
	RuleTarget:      "does not allow this target, or this function of it",
	RuleGas:         "allows at most {limit} gas in one transaction",
	RuleTip:         "allows a tip of at most {limit} wei per gas",
	RuleFee:         "allows a fee (gas times maxFeePerGas) of at most {limit} wei in one transaction",
	RuleFees:        "allows fees of at most {limit} wei in 24 hours",
	RuleCount:       "allows at most {limit} intents in a minute, and more nonces than that were asked for at once: ask for fewer",
	RuleRate:        "allows at most {limit} intents in a minute",
	RuleCallerValue: "allows this caller at most {limit} wei in one transaction",
	RuleCallerCount: "allows this caller at most {limit} intents in a minute, and more nonces than that were asked for at once: ask for fewer",
	RuleCallerRate:  "allows this caller at most {limit} intents in a minute",
	RuleCallerQueue: "allows this caller at most {limit} intents in the queue at once",
	RuleCallerDay:   "allows this caller at most {limit} wei in 24 hours",
	RuleToken:       "bounds amounts of this token, and allows of it transfer, approve and transferFrom as the ABI encodes them, and functions that targets names",
	RuleAmount:      "allows at most {limit} of this token's smallest unit in one transaction",
	RuleAmountDay:   "allows at most {limit} of this token's smallest unit in 24 hours",
	RuleDay:         "allows at most {limit} wei in 24 hours",
}

// Error names the limit.
func (e PolicyError) Error() string {
	return "the submitter's policy " + strings.ReplaceAll(policyRefusals[e.Rule], "{limit}", e.Limit)
}

// IsPermanent is true if the same intent will be refused until the policy changes.
func (e PolicyError) IsPermanent() bool {
	switch e.Rule {
	case RuleRate, RuleDay, RuleFees, RuleCallerRate, RuleCallerQueue, RuleCallerDay, RuleAmountDay:
		return false
	}
	return true
}

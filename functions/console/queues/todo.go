package queues

import "cmp"

// todos has what an operator can do, by the cause of a wait or the kind of an item. It names forms of this console, or a
// command where there is no form. It has an entry where the API's own text names routes and members.
var todos = map[string]string{
	"DATABASE":     "Find out which database this is, and follow the runbook in its order. The command that accepts it is fencepost protect accept-database.",
	"ACCOUNT":      "Run fencepost --json account get with its user and asset, and read in waitsFor what the act waits for. It is repeated without you; a repeat under another id could book twice.",
	"PROTECT":      "Read the evidence, then release the submitter as the runbook says.",
	"OPERATOR":     "Read the versions and the history, then decide.",
	"STUCK":        "Read the versions and the history, then decide.",
	"SUSPENDED":    "Find out why it is suspended, then resume the submitter.",
	"HELD":         "Read what it is held for, then let it go on or cancel it.",
	"INCLUSION":    "Wait, or decide to replace it with higher fees.",
	"PREDECESSOR":  "Look at the transaction that blocks it.",
	"GAS_ESTIMATE": "Read the node's words. Cancel the intent, or post it again with gas.",
	"HALT":         "Find the cause, then resume the transfers.",
	"FINDING":      "Find the cause by the evidence of the finding.",
	"PAYOUT":       "Find out whether it was paid, then state it as the runbook says.",
	"TRANSFER":     "Read on its page what it waits for.",
	"REFUND":       "Read on its page what it waits for.",
	"FOREIGN":      "Match each with its intent, or write it off, as the runbook says.",
	"PAUSED":       "Once the cause is over, resume the deliveries.",
	"PROPOSAL":     "Read it, then approve or reject it.",
}

// todo is what an operator can do about the cause or kind: this console's text, or else that of the API.
func todo(about, api string) string {
	return cmp.Or(todos[about], api)
}

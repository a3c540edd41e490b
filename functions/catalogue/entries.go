package catalogue

// general are the codes of any call.
var general = []Entry{
	{"INVALID_JSON", []int{400}, "The body is not one JSON value of UTF-8, or repeats a name.", "Send a correct body.", Never},
	{"INVALID_FIELD", []int{400}, "A value of the body, the path or the query is missing or wrong. `field` names it, and `detail` tells the valid values.", "Correct the value.", Never},
	{"UNSUPPORTED_FIELD", []int{400}, "The body, the query or a header has a name that this call does not take. `field` names it.", "Omit it. It may be misspelt.", Never},
	{"UNAUTHORIZED", []int{401}, "The token is missing, expired, forged, or not for this service.", "Get a token for the audience of the deployment, and send it as `Authorization: Bearer`.", Later},
	{"READ_ONLY", []int{403}, "The token is a viewer's, who may only read.", "Ask an operator.", Later},
	{"FORBIDDEN", []int{403}, "The holder of the token may not do this, the submitter is suspended, or a payout belongs to its transfer.", "Read `detail`. Ask an operator.", Later},
	{"NOT_FOUND", []int{404}, "It does not exist, it is not yours, or the deployment does not serve the path. The answer is the same.", "Check the id and the path.", Later},
	{"METHOD_NOT_ALLOWED", []int{405}, "The path does not take the method.", "Use a method of the header `Allow`.", Never},
	{"BODY_TIMEOUT", []int{408}, "The body was not complete within `http.bodyTimeout`. This attempt stored nothing.", "Send it again.", Safe},
	{"BODY_TOO_LARGE", []int{413}, "The body is longer than `http.maxBodyBytes`.", "Send less: a smaller batch, or less data.", Never},
	{"TOO_MANY_REQUESTS", []int{429}, "The instance serves too many of your requests or bytes at once, or you have 100 open proposals.", "Send fewer at once.", Safe},
	{"UNAVAILABLE", []int{503}, "The result is unknown, unless `detail` says that nothing was stored.", "Send the same request again, or read the state. " + WithoutCID, Safe},
	{"MOVE_EXPECTED", []int{503}, "The database is about to be moved to another server. Nothing was stored.", "Send it again after the move.", Safe},
	{"STEP_FAILED", []int{500}, "A task of a transfer failed. Only Cloud Tasks gets this answer.", "Nothing: Cloud Tasks calls again.", Safe},
}

// transactions are the codes of intents and transactions.
var transactions = []Entry{
	{"UNKNOWN_SUBMITTER", []int{404}, "The submitter is not registered, or not yours to use. The answer is the same.", "Check its name. Ask an operator to register it, or to name you as a caller.", Later},
	{"ANY_CALLER_REFUSED", []int{403}, "The submitter's callers are `*`, which admits no caller while `auth.openIssuer` is true.", "Ask an operator to list the callers.", Later},
	{"POLICY_REFUSED", []int{403}, "The submitter's policy forbids the value, the recipient, the token's call, the gas, the fees or the handler. `field` names it. Nothing was stored.", "Send what the policy allows, or ask an operator to change it.", Later},
	{"REQUEST_ID_CONFLICT", []int{409}, "The requestId belongs to another payload, another validUntil or another caller, for ever.", "If this is a new intent, give it a new requestId. If it is a repeat, send the first request unchanged.", Never},
	{"REQUEST_RECORDED", []int{409}, "The chain has this request already, as an operator recorded. `detail` has txId and hash.", "Do not post it again under any requestId. Read the transaction.", Never},
	{"SUBMITTER_PROTECTED", []int{409}, "The submitter is in PROTECT: another program used its account, or the database was restored. This attempt stored nothing.", "Wait until an operator releases it. Then ask `GET /api/v1/tx/by-request` before you send it again.", Later},
	{"SUBMITTER_RETIRED", []int{409}, "The submitter, or the account that pays an asset out, is retired for ever.", "Use another submitter. Of a payout: ask an operator to give the asset another payer.", Never},
	{"QUEUE_FULL", []int{429}, "Too many intents wait for the submitter, or too many of yours. Nothing was stored.", "Send it again later, or use another submitter.", Safe},
	{"RATE_LIMIT_EXCEEDED", []int{429}, "Too many intents in a minute by the submitter's policy, or too many transfers in a second. Nothing was stored.", "Send fewer in that time.", Safe},
	{"DAILY_AMOUNT_EXCEEDED", []int{429}, "The amount of 24 hours is used up: of the submitter's policy, of a token, of fees, or of your transfers of the asset. Nothing was stored.", "Wait, send less, or ask an operator to raise the limit.", Safe},
}

// operators are the codes of operators' calls about submitters, proposals and the database.
var operators = []Entry{
	{"CALLERS_OPEN", []int{400}, "The callers have `*`, which is refused while `auth.openIssuer` is true.", "List the callers.", Later},
	{"CALLERS_CONFLICT", []int{409}, "The change contradicts the present or former callers. Nothing was changed.", "Send the change that `detail` has.", Later},
	{"SUBMITTER_EXISTS", []int{409}, "The submitter is registered on other terms. Nothing was changed.", "Read its terms, and change them by the calls for that.", Later},
	{"SUBMITTER_IN_USE", []int{409}, "The submitter has open work, which `detail` names. Nothing was changed.", "Suspend it, and retire it once the work has ended.", Later},
	{"STRICT_WINDOW", []int{409}, "A window above 1 is refused while `nonce.strict.enabled` is true. Nothing was changed.", "Use a window of 1, or change the setting.", Later},
	{"PAYER_WINDOW", []int{409}, "The window of a payer cannot be wider than its widest so far. Nothing was changed.", "Register another account with a wider window as the payer.", Never},
	{"NOT_LEADER", []int{409}, "Another invocation holds the lease of the submitter. Nothing was changed.", "Send it again after Retry-After.", Safe},
	{"TOO_LATE", []int{409}, "No such decision is open: it was made, or the state has changed. Nothing was changed.", "Read the state again.", Later},
	{"PROOF_USED", []int{409}, "The foreign transaction proves another payout, and one transaction proves one payout. Nothing was changed.", "Write it off: the intents held for it proceed.", Never},
	{"NOT_A_PLANNED_MOVE", []int{409}, "The last change of the database's identity is not a planned move that was confirmed. Nothing was changed.", "Release the submitters singly.", Later},
	{"SAME_OPERATOR", []int{403}, "Your token shares a subject or an address with the proposer's. Nothing was changed.", "Let another operator approve it.", Never},
	{"PROPOSER_REMOVED", []int{409}, "The proposer is no operator any more. Nothing was changed.", "Propose it yourself, and let another operator approve it.", Later},
	{"PROPOSAL_STALE", []int{409}, "The state in which the proposal was made has changed. It was not carried out.", "Look at the state, and propose it again.", Never},
	{"PROPOSAL_EXPIRED", []int{409}, "The proposal was not approved in time. It was not carried out.", "Propose it again.", Never},
}

package serve

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/web"
)

// The transaction manager's codes that stand in no list of answers, or in several of its entries.
var (
	CallersOpen      = web.Code{Name: "CALLERS_OPEN", Status: http.StatusBadRequest}
	callersConflict  = web.Code{Name: "CALLERS_CONFLICT", Status: http.StatusConflict}
	SubmitterRetired = web.Code{Name: "SUBMITTER_RETIRED", Status: http.StatusConflict}
	submitterInUse   = web.Code{Name: "SUBMITTER_IN_USE", Status: http.StatusConflict}
	payerWindow      = web.Code{Name: "PAYER_WINDOW", Status: http.StatusConflict}
	TooLate          = web.Code{Name: "TOO_LATE", Status: http.StatusConflict}
	requestRecorded  = web.Code{Name: "REQUEST_RECORDED", Status: http.StatusConflict}
	queueFull        = web.Code{Name: "QUEUE_FULL", Status: http.StatusTooManyRequests}

	// Codes of policies. Transfers share the two for limits over time.
	policyRefused       = web.Code{Name: "POLICY_REFUSED", Status: http.StatusForbidden}
	rateLimitExceeded   = web.Code{Name: "RATE_LIMIT_EXCEEDED", Status: http.StatusTooManyRequests}
	dailyAmountExceeded = web.Code{Name: "DAILY_AMOUNT_EXCEEDED", Status: http.StatusTooManyRequests}
)

// The time after which a caller can expect to succeed.
const (
	rateRetryAfter  = 10 * time.Second // there is room again within a limit of a minute
	dayRetryAfter   = time.Hour        // there is room again within a limit of a day
	queueRetryAfter = 10 * time.Second // a full queue has room
	moveRetryAfter  = 10 * time.Second // a move of the database is over
)

const storedNothing = " This attempt stored nothing; GET /api/v1/tx/by-request shows whether an earlier one did."

// Answer is what a caller may see of an error.
type Answer struct {
	Err   error
	Code  web.Code // one of 5xx logs the error as its cause
	Text  string
	Field string        // the field at fault; "": none
	Retry time.Duration // 0: none, or a second for a code of 5xx
}

// NoSuchCursor answers a page token that the store does not take.
var NoSuchCursor = Answer{Err: store.ErrCursor, Code: web.InvalidField, Field: "pageToken", Text: noSuchPage}

// answers lists the store's errors. The first one that an error wraps counts.
var answers = []Answer{
	{Err: store.ErrNotPlanned, Code: web.Code{Name: "NOT_A_PLANNED_MOVE", Status: http.StatusConflict},
		Text: "the last change of the database's identity is not a planned move that was confirmed (migrate confirm-move): the database may lack committed changes: release each submitter by a separate call; nothing was changed"},
	{Err: store.ErrHandlerBarred, Code: policyRefused, Field: "handler",
		Text: "the submitter's callers do not name this handler (\"handler:<name>\")." + storedNothing},
	{Err: store.ErrPast, Code: web.InvalidField, Field: "validUntil",
		Text: "has passed by the database's clock; send a later time, or omit it." + storedNothing},
	{Err: store.ErrTooManyProposals, Code: web.TooManyRequests, Retry: dayRetryAfter,
		Text: "you have 100 open proposals: reject some of them; nothing was stored"},
	{Err: store.ErrUnknownProposal, Code: web.NotFound, Text: "there is no such proposal: GET /admin/v1/proposals lists them"},
	{Err: store.ErrStatusUnchanged, Code: TooLate, Text: "the submitter is that already; nothing was changed"},
	{Err: store.ErrAnyCaller, Code: web.Code{Name: "ANY_CALLER_REFUSED", Status: http.StatusForbidden},
		Text: "the submitter's callers are \"*\", which admits no caller while auth.openIssuer is true; an operator must list the callers (PUT /admin/v1/submitters/{submitter}/callers), or set auth.openIssuer to false if the issuer gives tokens only to your services." + storedNothing},
	{Err: store.ErrUnknownSubmitter, Code: web.Code{Name: "UNKNOWN_SUBMITTER", Status: http.StatusNotFound},
		Text: "the submitter is not registered, or not yours to use"},
	{Err: store.ErrRequestConflict, Code: web.Code{Name: "REQUEST_ID_CONFLICT", Status: http.StatusConflict},
		Text: "this requestId of the submitter belongs to another payload, another validUntil or another caller: post a new intent under a new requestId"},
	{Err: store.ErrProtected, Code: web.Code{Name: "SUBMITTER_PROTECTED", Status: http.StatusConflict},
		Text: "the submitter is in PROTECT until an operator releases it." + storedNothing},
	{Err: store.ErrRetired, Code: SubmitterRetired, Text: "the submitter is retired for ever: use another one; this attempt changed nothing"},
	{Err: store.ErrSuspended, Code: web.Forbidden, Text: "an operator has suspended the submitter." + storedNothing},
	{Err: store.ErrQueueFull, Code: queueFull, Retry: queueRetryAfter, Text: "too many intents wait for this submitter." + storedNothing},
	{Err: store.ErrMoved, Code: web.Unavailable, Text: "the submitter's state changed meanwhile; this attempt stored nothing: try again"},
	{Err: store.ErrNoMAC, Code: web.Unavailable, Text: "Cloud KMS, which makes the MAC of an intent, gave no answer; nothing was stored: try again"},
	{Err: store.ErrInDoubt, Code: web.Unavailable,
		Text: "PROTECT: whether this request was stored, and its result, are unknown until an operator has reconciled the database"},
	{Err: store.ErrDatabaseAccepted, Code: TooLate, Text: "the database is the one written last; there is nothing to accept"},
	{Err: store.ErrForeign, Code: TooLate,
		Text: "the database is not the one written last, and no operator has accepted it: POST /admin/v1/database/accept first; nothing was changed"},
	{Err: store.ErrHeldForForeign, Code: TooLate,
		Text: "the transaction is held for a foreign transaction: GET /admin/v1/submitters/{submitter}/foreign shows which; match it or write it off; nothing was changed"},
	{Err: store.ErrNoHold, Code: TooLate,
		Text: "no foreign transaction with that nonce waits for a decision: GET /admin/v1/submitters/{submitter}/foreign lists those that do; nothing was changed"},
	{Err: store.ErrProofUsed, Code: web.Code{Name: "PROOF_USED", Status: http.StatusConflict},
		Text: "the foreign transaction proves another payout, and a transaction can prove only one: write it off (POST /admin/v1/submitters/{submitter}/foreign/write-off), and the intents held for it proceed; nothing was changed"},
	{Err: store.ErrNoSuchIntent, Code: web.InvalidField, Field: "through",
		Text: "names no intent of this submitter: want the txId of the newest held intent that you have seen; nothing was changed"},
	{Err: store.ErrNotMatching, Code: web.InvalidField, Field: "txId",
		Text: "names an intent that is not held for that nonce, or that has another call: GET /admin/v1/submitters/{submitter}/foreign shows the one that is held; nothing was changed"},
	{Err: store.ErrNotHeld, Code: TooLate, Text: "the transaction is not held: it waits in the queue, has a nonce or is final; nothing was changed"},
	{Err: store.ErrNotFound, Code: web.NotFound, Text: "no such transaction"},
	{Err: store.ErrCoordinators, Code: web.Forbidden,
		Text: "the transaction is a transfer's payout, which only the coordinator cancels; nothing was changed; POST /admin/v1/transfers/{req_id}/resolve gives the payout up"},
	{Err: store.ErrTooLate, Code: TooLate,
		Text: "nothing can be decided about the transaction: it is final, in the queue, or has no bytes to replace or send again"},
	NoSuchCursor,
	{Err: store.ErrRegisteredOtherwise, Code: web.Code{Name: "SUBMITTER_EXISTS", Status: http.StatusConflict},
		Text: "the submitter is registered with other terms: GET /admin/v1/submitters/{submitter} shows them"},
}

// Find returns the problem of the first answer whose error err wraps; nil if there is none.
func Find(answers []Answer, err error) *web.Problem {
	for _, a := range answers {
		switch {
		case !errors.Is(err, a.Err):
		case a.Code.Status >= http.StatusInternalServerError:
			return &web.Problem{Code: a.Code, Detail: a.Text, RetryAfter: cmp.Or(a.Retry, time.Second), Cause: err}
		default:
			return &web.Problem{Code: a.Code, Field: a.Field, Detail: a.Text, RetryAfter: a.Retry}
		}
	}
	return nil
}

// Problem converts the errors of the inner layers to what a caller may see. It returns an unknown
// error unchanged; the answer is then UNAVAILABLE.
func Problem(err error) error {
	if p := cmp.Or(detailed(err), Find(answers, err)); p != nil {
		return p
	}
	return err
}

// detailed returns the problem of an error that names a value or a field; nil for any other error.
func detailed(err error) *web.Problem {
	var field *chain.FieldError
	var policy store.PolicyError
	var recorded store.RequestRecordedError
	var callers store.CallersError
	var window store.PayerWindowError
	var work store.OpenWorkError
	switch {
	case store.IsMoving(err):
		return &web.Problem{Code: web.Code{Name: "MOVE_EXPECTED", Status: http.StatusServiceUnavailable}, RetryAfter: moveRetryAfter, Cause: err,
			Detail: "the database is about to be moved to another server, and nothing is written meanwhile; nothing was stored: try again later"}
	case store.IsProposalGone(err):
		return web.UnavailableBecause(err, "the proposal can no longer be carried out; nothing was changed: read it again")
	case errors.As(err, &policy):
		return policyProblem(policy)
	case errors.As(err, &field):
		return payloadProblem(field)
	case errors.As(err, &callers):
		return &web.Problem{Code: callersConflict, Field: callers.Field, Detail: callers.Detail + "; nothing was changed"}
	case errors.As(err, &window):
		p := web.NewProblem(payerWindow, "the submitter is a payer: after a restore its nonces are filled up to its widest window, %d, so it cannot be wider; register another account with a wider window as the payer; nothing was changed", window.Widest)
		p.Field = "maxInFlight"
		return p
	case errors.As(err, &work):
		return web.NewProblem(submitterInUse, "the submitter has %s: suspend it, and retire it once it has none; nothing was changed", work.Work)
	case errors.As(err, &recorded):
		return web.NewProblem(requestRecorded, "%s; do not post it again under any requestId", recordedWords(recorded))
	case errors.Is(err, store.ErrNumbersAhead):
		return web.NewProblem(TooLate, "%v, as after a dump was loaded into another cluster: each check of conservation would count these rows again. Let the cluster number that many transactions first: docs/transfers.md says how (What was restored). Nothing was accepted", err)
	}
	return nil
}

// recordedWords describes the stored outcome of a request that the database had lost.
func recordedWords(r store.RequestRecordedError) string {
	if r.TxHash == "" {
		return "an operator stated that this request was carried out on the chain, and no node shows its transaction: it is transaction " + r.TxID + " here"
	}
	return "the chain has this request as " + r.TxHash + ": it is transaction " + r.TxID + " here"
}

// payloadProblem names the payload's field as the caller wrote it.
func payloadProblem(f *chain.FieldError) *web.Problem {
	codes := map[string]web.Code{
		chain.CodeInvalidJSON: web.InvalidJSON, chain.CodeInvalidField: web.InvalidField, chain.CodeUnsupportedField: web.UnsupportedField,
	}
	return &web.Problem{Code: codes[f.Code], Field: f.Field, Detail: f.Problem}
}

// policyProblems gives the code, the field and the retry time for each rule.
var policyProblems = map[store.PolicyRule]web.Problem{
	store.RuleValue:       {Code: policyRefused, Field: "payload.value"},
	store.RuleTarget:      {Code: policyRefused, Field: "payload.to"},
	store.RuleGas:         {Code: policyRefused, Field: "payload.gas"},
	store.RuleTip:         {Code: policyRefused, Field: "payload.maxPriorityFeePerGas"},
	store.RuleFee:         {Code: policyRefused, Field: "payload.maxFeePerGas"},
	store.RuleCount:       {Code: policyRefused},
	store.RuleRate:        {Code: rateLimitExceeded, RetryAfter: rateRetryAfter},
	store.RuleDay:         {Code: dailyAmountExceeded, Field: "payload.value", RetryAfter: dayRetryAfter},
	store.RuleFees:        {Code: dailyAmountExceeded, Field: "payload.maxFeePerGas", RetryAfter: dayRetryAfter},
	store.RuleCallerValue: {Code: policyRefused, Field: "payload.value"},
	store.RuleCallerCount: {Code: policyRefused},
	store.RuleCallerRate:  {Code: rateLimitExceeded, RetryAfter: rateRetryAfter},
	store.RuleCallerQueue: {Code: queueFull, RetryAfter: queueRetryAfter},
	store.RuleCallerDay:   {Code: dailyAmountExceeded, Field: "payload.value", RetryAfter: dayRetryAfter},
	store.RuleToken:       {Code: policyRefused, Field: "payload.data"},
	store.RuleAmount:      {Code: policyRefused, Field: "payload.data"},
	store.RuleAmountDay:   {Code: dailyAmountExceeded, Field: "payload.data", RetryAfter: dayRetryAfter},
}

// policyProblem names the exceeded limit and the member that exceeded it.
func policyProblem(e store.PolicyError) *web.Problem {
	of := policyProblems[e.Rule]
	of.Detail = e.Error() + "." + storedNothing
	return &of
}

package functions

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// The transaction manager's codes, in addition to those of package web.
var (
	unknownSubmitter   = web.Code{Name: "UNKNOWN_SUBMITTER", Status: http.StatusNotFound}
	anyCallerRefused   = web.Code{Name: "ANY_CALLER_REFUSED", Status: http.StatusForbidden}
	callersOpen        = web.Code{Name: "CALLERS_OPEN", Status: http.StatusBadRequest}
	callersConflict    = web.Code{Name: "CALLERS_CONFLICT", Status: http.StatusConflict}
	requestIDConflict  = web.Code{Name: "REQUEST_ID_CONFLICT", Status: http.StatusConflict}
	submitterProtected = web.Code{Name: "SUBMITTER_PROTECTED", Status: http.StatusConflict}
	submitterExists    = web.Code{Name: "SUBMITTER_EXISTS", Status: http.StatusConflict}
	notLeader          = web.Code{Name: "NOT_LEADER", Status: http.StatusConflict}
	tooLate            = web.Code{Name: "TOO_LATE", Status: http.StatusConflict}
	requestRecorded    = web.Code{Name: "REQUEST_RECORDED", Status: http.StatusConflict}
	proofUsed          = web.Code{Name: "PROOF_USED", Status: http.StatusConflict}
	notPlanned         = web.Code{Name: "NOT_A_PLANNED_MOVE", Status: http.StatusConflict}
	moveExpected       = web.Code{Name: "MOVE_EXPECTED", Status: http.StatusServiceUnavailable}
	queueFull          = web.Code{Name: "QUEUE_FULL", Status: http.StatusTooManyRequests}

	// Codes of policies. Transfers share the two for limits over time.
	policyRefused       = web.Code{Name: "POLICY_REFUSED", Status: http.StatusForbidden}
	rateLimitExceeded   = web.Code{Name: "RATE_LIMIT_EXCEEDED", Status: http.StatusTooManyRequests}
	dailyAmountExceeded = web.Code{Name: "DAILY_AMOUNT_EXCEEDED", Status: http.StatusTooManyRequests}
)

// The time after which a caller can find room again within a limit over time.
const (
	rateRetryAfter = 10 * time.Second
	dayRetryAfter  = time.Hour
)

const storedNothing = " This attempt stored nothing; GET /api/v1/tx/by-request is the word on the intent."

// moveRetryAfter is the time after which a caller can expect a database move to be over.
const moveRetryAfter = 10 * time.Second

// queueRetryAfter is the time after which a caller can expect room in a full queue.
const queueRetryAfter = 10 * time.Second

// problem converts the errors of the inner layers to what a caller may see. It returns an unknown
// error unchanged; the answer is then UNAVAILABLE.
func problem(err error) error {
	var field *chain.FieldError
	var policy store.PolicyError
	var recorded store.RequestRecordedError
	var callers store.CallersError
	switch {
	case store.IsMoving(err):
		p := web.NewProblem(moveExpected, "the database is about to be moved to another server, and nothing is written meanwhile; nothing was stored: try again later")
		p.RetryAfter, p.Cause = moveRetryAfter, err
		return p
	case errors.Is(err, store.ErrNotPlanned):
		return web.NewProblem(notPlanned, "the last change of the authority is not a planned move that was confirmed (migrate confirm-move): the database may lack what was committed, so each submitter is released by itself; nothing was changed")
	case errors.As(err, &policy):
		return policyProblem(policy)
	case errors.Is(err, store.ErrHandlerBarred):
		p := web.NewProblem(policyRefused, "the submitter's callers do not name this handler (\"handler:<name>\")."+storedNothing)
		p.Field = "handler"
		return p
	case errors.Is(err, store.ErrPast):
		return web.FieldProblem("validUntil", "has passed by the database's clock: want a later time, or none."+storedNothing)
	case store.IsProposalGone(err):
		return web.UnavailableBecause(err, "the proposal cannot be carried out any more; nothing was changed: look at it again")
	case errors.Is(err, store.ErrTooManyProposals):
		p := web.NewProblem(web.TooManyRequests, "you have 100 open proposals: reject those that are not wanted; nothing was stored")
		p.RetryAfter = dayRetryAfter
		return p
	case errors.Is(err, store.ErrUnknownProposal):
		return web.NewProblem(web.NotFound, "there is no such proposal: GET /admin/v1/proposals lists them")
	case errors.Is(err, store.ErrNotStatus):
		return web.NewProblem(tooLate, "the submitter is that already; nothing was changed")
	case errors.As(err, &field):
		return payloadProblem(field)
	case errors.As(err, &callers):
		p := web.NewProblem(callersConflict, "%s; nothing was changed", callers.Detail)
		p.Field = callers.Field
		return p
	case errors.Is(err, store.ErrAnyCaller):
		return web.NewProblem(anyCallerRefused, "the submitter's callers are \"*\", which counts for nobody while the issuer is open: an operator names the callers (PUT /admin/v1/submitters/{submitter}/callers), or sets auth.openIssuer to false where strangers can have no token."+storedNothing)
	case errors.Is(err, store.ErrUnknownSubmitter):
		return web.NewProblem(unknownSubmitter, "the submitter is not registered, or not yours to use")
	case errors.As(err, &recorded):
		return web.NewProblem(requestRecorded, "%s; do not post it again under any requestId", recordedWords(recorded))
	case errors.Is(err, store.ErrRequestConflict):
		return web.NewProblem(requestIDConflict, "this requestId of the submitter belongs to another payload, another validUntil or another caller: post a new intent under a new requestId")
	case errors.Is(err, store.ErrProtected):
		return web.NewProblem(submitterProtected, "the submitter is in PROTECT until an operator releases it."+storedNothing)
	case errors.Is(err, store.ErrSuspended):
		return web.NewProblem(web.Forbidden, "an operator has suspended the submitter."+storedNothing)
	case errors.Is(err, store.ErrQueueFull):
		p := web.NewProblem(queueFull, "too many intents wait for this submitter."+storedNothing)
		p.RetryAfter = queueRetryAfter
		return p
	case errors.Is(err, store.ErrMoved):
		return web.UnavailableBecause(err, "the submitter's state changed meanwhile; this attempt stored nothing: try again")
	case errors.Is(err, store.ErrNoMAC):
		return web.UnavailableBecause(err, "Cloud KMS, which makes the MAC of an intent, gave no answer; nothing was stored: try again")
	case errors.Is(err, store.ErrInDoubt):
		return web.UnavailableBecause(err, "PROTECT: whether this was ever made, or what came of it, is not known until an operator has reconciled it")
	case errors.Is(err, store.ErrIsAuthority):
		return web.NewProblem(tooLate, "the database is the one written last; there is nothing to accept")
	case errors.Is(err, store.ErrForeign):
		return web.NewProblem(tooLate, "the database is not the one written last, and no operator has accepted it: POST /admin/v1/authority/accept first; nothing was changed")
	case errors.Is(err, store.ErrBeside):
		return web.NewProblem(tooLate, "the transaction is held for a foreign transaction: GET /admin/v1/submitters/{submitter}/foreign shows which; match it or write it off; nothing was changed")
	case errors.Is(err, store.ErrNoHold):
		return web.NewProblem(tooLate, "no foreign transaction with that nonce waits for a decision: GET /admin/v1/submitters/{submitter}/foreign lists those that do; nothing was changed")
	case errors.Is(err, store.ErrProofUsed):
		return web.NewProblem(proofUsed, "the foreign transaction proves that another payout was paid, and one transaction is one request's: write it off (POST /admin/v1/submitters/{submitter}/foreign/write-off), and what is held for it goes on; nothing was changed")
	case errors.Is(err, store.ErrNoSuchIntent):
		return web.FieldProblem("through", "names no intent of this submitter: want the txId of the newest held intent that you have seen; nothing was changed")
	case errors.Is(err, store.ErrNotMatching):
		return web.FieldProblem("txId", "names an intent that is not held for that nonce, or that calls something else: GET /admin/v1/submitters/{submitter}/foreign shows the one that is held; nothing was changed")
	case errors.Is(err, store.ErrNotHeld):
		return web.NewProblem(tooLate, "the transaction is not held: it waits in the queue, has a nonce or is final; nothing was changed")
	case errors.Is(err, store.ErrNumbersAhead):
		return web.NewProblem(tooLate, "%v, as after a dump was loaded into another cluster: the check of conservation would count these rows again and again. Let the cluster number that many transactions first: docs/transfers.md says how (What was restored). Nothing was accepted", err)
	case errors.Is(err, store.ErrNotFound):
		return web.NewProblem(web.NotFound, "no such transaction")
	case errors.Is(err, store.ErrCoordinators):
		return web.NewProblem(web.Forbidden, "it is a transfer's payout, which the coordinator alone cancels, and nobody sends while its cancel waits: POST /admin/v1/transfers/{req_id}/resolve has it given up; nothing was changed")
	case errors.Is(err, store.ErrTooLate):
		return web.NewProblem(tooLate, "nothing can be decided about the transaction: it is final, in the queue, or has no bytes to replace or send again")
	case errors.Is(err, store.ErrRegisteredOtherwise):
		return web.NewProblem(submitterExists, "the submitter is registered with other terms: GET /admin/v1/submitters/{submitter} shows them")
	}
	return err
}

// recordedWords describes the stored outcome of a request that the database had lost.
func recordedWords(r store.RequestRecordedError) string {
	if r.TxHash == "" {
		return "an operator stated that this request was carried out on the chain, and no node shows its transaction: it is transaction " + r.TxID + " here"
	}
	return "the chain has this request as " + r.TxHash + ": it is transaction " + r.TxID + " here"
}

// payloadProblem names the payload's field as the caller wrote it.
func payloadProblem(f *chain.FieldError) error {
	codes := map[string]web.Code{
		chain.CodeInvalidJSON: web.InvalidJSON, chain.CodeInvalidField: web.InvalidField, chain.CodeUnsupportedField: web.UnsupportedField,
	}
	p := web.NewProblem(codes[f.Code], "%s", f.Problem)
	p.Field = f.Field
	return p
}

// submitter reads the submitter that a caller named.
func (a *App) submitter(field, text string) (txmanager.Submitter, error) {
	if text == "" {
		return "", web.FieldProblem(field, "is required: an account such as eip155:%d:0x… or 0x…", a.config.Chain.ID)
	}
	s, err := txmanager.ParseSubmitter(text, a.config.Chain.ID)
	if err != nil {
		return "", web.FieldProblem(field, "is no account: want eip155:<chainId>:0x<40 hex digits>, or 0x<40 hex digits> on chain %d", a.config.Chain.ID)
	}
	return s, nil
}

// requestID checks the caller's key: 1 to 128 bytes, compared byte for byte.
func requestID(field, text string) error {
	const most = 128
	switch {
	case text == "":
		return web.FieldProblem(field, "is required: 1 to %d bytes, your own key for this intent", most)
	case len(text) > most:
		return web.FieldProblem(field, "is %d bytes long: at most %d", len(text), most)
	}
	for _, r := range text {
		if r < ' ' || r == 0x7f {
			return web.FieldProblem(field, "has the control character %s: use printable text", fmt.Sprintf("%U", r))
		}
	}
	return nil
}

// unprintable refuses a requestId that a reader could confuse with another, or that breaks a line. It
// refuses control and format characters, such as those that change the writing direction, and
// separators of lines or paragraphs. Requests that an earlier release stored under such an id are
// still found.
func unprintable(field, text string) error {
	for _, r := range text {
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return web.FieldProblem(field, "has the character %U, which is not printed: use printable text", r)
		}
	}
	return nil
}

// newRequestID is [requestID] for an intent to be stored. It also refuses [txmanager.NoRequest], by
// which a release says that a transaction was no request.
func newRequestID(field, text string) error {
	if isNone(text) {
		return web.FieldProblem(field, "is %q, which a release from PROTECT takes for no request: choose another", text)
	}
	return requestID(field, text)
}

// isNone reports whether text is [txmanager.NoRequest] in any letter case.
func isNone(text string) bool { return strings.EqualFold(strings.TrimSpace(text), txmanager.NoRequest) }

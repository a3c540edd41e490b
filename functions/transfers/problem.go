package transfers

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	"github.com/fencepost/fencepost/shared/store"
	checks "github.com/fencepost/fencepost/shared/store/conservation"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

// The codes of several errors of transfers. Others stand in the list of answers, and the reasons of package transfer are codes too.
var (
	systemError     = web.Code{Name: string(transfer.SystemError), Status: http.StatusServiceUnavailable}
	evidenceDiffers = web.Code{Name: "EVIDENCE_DIFFERS", Status: http.StatusConflict}
	serviceLimit    = web.Code{Name: "SERVICE_LIMIT_EXCEEDED", Status: http.StatusTooManyRequests}
)

// refusal is the text and field that a caller sees for a reason.
type refusal struct {
	field string // the request's field at fault; "": none
	say   string
}

// refusals covers both cases: nothing was stored, or the transfer has failed.
var refusals = map[transfer.Reason]refusal{
	transfer.SameAccount:            {"to", "is the same account as from"},
	transfer.InvalidAccountType:     {"", "from or to is not an account type; send FUNDING and SPOT"},
	transfer.UnsupportedAccountType: {"", "from or to is an account type that is not served yet: want FUNDING and SPOT"},
	transfer.InvalidAsset:           {"asset", "is not known"},
	transfer.AssetSuspended:         {"asset", "is suspended at the moment"},
	transfer.TransferNotAllowed:     {"asset", "cannot be transferred this way"},
	transfer.InvalidAmount:          {"amount", "is not an amount; send a decimal number above 0 as a string, such as \"12.5\""},
	transfer.PrecisionOverflow:      {"amount", "has more decimals than the asset"},
	transfer.AmountTooSmall:         {"amount", "is below the asset's minimum for one transfer; send more"},
	transfer.AmountTooLarge:         {"amount", "is above the asset's maximum for one transfer; send less, in several transfers"},
	transfer.Overflow:               {"amount", "is more than an account can hold"},
	transfer.InvalidAddress:         {"address", "is no address that can be paid on the asset's chain"},
	transfer.RateLimitExceeded:      {"", "too many transfers in a second"},
	transfer.DailyLimitExceeded:     {"", "too many transfers in 24 hours"},
	transfer.DailyAmountExceeded:    {"amount", "exceeds the amount of the asset that can still be transferred in 24 hours"},
	transfer.DailyPayoutExceeded:    {"amount", "exceeds the amount of the asset that can still be paid out in 24 hours; send at most the amount in left"},
	transfer.AddressNotListed:       {"address", "is not on the list of your addresses: add it by POST /api/v1/payout_address, and wait until usable_from"},
	transfer.AddressNotYetUsable:    {"address", "was added lately, and cannot be paid before usable_from: ask again then"},
	transfer.SourceAccountNotFound:  {"", "the account that the money should leave does not exist"},
	transfer.TargetAccountNotFound:  {"", "the account that the money should go to does not exist"},
	transfer.AccountFrozen:          {"", "the account is frozen"},
	transfer.AccountDisabled:        {"", "the account is disabled"},
	transfer.InsufficientBalance:    {"", "the balance is too low"},
	transfer.Expired:                {"", "it could not be begun in time"},
	transfer.Cancelled:              {"", "an operator has cancelled it before it began"},
	transfer.ResolvedByOperator:     {"", "an operator has ended it"},
	payout.Rejected:                 {"", "the payment was refused before it was sent"},
	payout.Cancelled:                {"", "the payment was cancelled before it was sent"},
	payout.Reverted:                 {"", "the chain has refused the payment"},
	payout.Replaced:                 {"", "the payment was cancelled"},
	payout.Displaced:                {"", "the payment could not be made"},
	payout.NotPaid:                  {"", "the payment did not reach its receiver"},
	payout.Failed:                   {"", "the payment could not be made"},
}

// retryAfterLimit gives, for each limit, the time after which a caller can find room again.
var retryAfterLimit = map[transfer.Reason]time.Duration{
	transfer.RateLimitExceeded: time.Second, transfer.DailyLimitExceeded: time.Hour, transfer.DailyAmountExceeded: time.Hour,
	transfer.DailyPayoutExceeded: time.Hour,
}

// answers lists the errors of transfers. The first one that an error wraps counts.
var answers = []serve.Answer{
	{Err: transfer.ErrNotFound, Code: web.NotFound, Text: "no such transfer"},
	{Err: transfer.ErrCIDConflict, Code: web.Code{Name: string(transfer.CIDConflict), Status: http.StatusConflict}, Field: "cid",
		Text: "was used for another request of yours: a new request needs a new cid"},
	{Err: transfer.ErrHalted, Code: systemError, Retry: time.Minute,
		Text: "new transfers are halted until an operator resumes them; nothing was stored: try again later"},
	{Err: transfer.ErrForeign, Code: systemError, Retry: time.Minute,
		Text: "the service has been restored, and an operator has not accepted it yet: its transfers are in doubt until then"},
	{Err: transfer.ErrProtected, Code: systemError, Retry: time.Minute,
		Text: "payouts of this asset are halted until an operator resumes them; nothing was stored: try again later"},
	{Err: transfer.ErrRetired, Code: serve.SubmitterRetired,
		Text: "the account that pays this asset out is retired for ever; nothing was stored: an operator must give the asset another payer"},
	{Err: transfer.ErrMoved, Code: systemError, Retry: time.Second, Text: "the cause is gone; nothing was stored: try again"},
	{Err: transfer.ErrTooLate, Code: serve.TooLate,
		Text: "only a transfer in INIT can be cancelled, and this one has begun; nothing was changed"},
	{Err: transfer.ErrRestored, Code: serve.TooLate,
		Text: "the database was restored after this transfer was accepted, so money may have moved meanwhile: the transfer continues to its end; nothing was changed"},
	{Err: transfer.ErrNothingToResolve, Code: web.Code{Name: "NOTHING_TO_RESOLVE", Status: http.StatusConflict},
		Text: "the transfer does not wait for the answer to that operation; nothing was changed: GET …/why shows what it waits for"},
	{Err: store.ErrStatementStands, Code: web.Code{Name: "STATEMENT_STANDS", Status: http.StatusConflict},
		Text: "this payout already has a statement; nothing was recorded; GET …/why shows the statement; withdraw it first"},
	{Err: store.ErrNoStatement, Code: web.Code{Name: "NO_STATEMENT", Status: http.StatusConflict},
		Text: "no statement about this payout can be withdrawn: there is none, or it has taken effect; nothing was changed"},
	{Err: payout.ErrInDoubt, Code: systemError, Retry: time.Minute,
		Text: "the database is not the one written last: POST /admin/v1/database/accept before you state the outcome of its payouts"},
	{Err: transfer.ErrForgotten, Code: web.Code{Name: "BEYOND_HORIZON", Status: http.StatusConflict},
		Text: "the trading core may have forgotten this operation, so it refuses nothing: find out whether it was applied, and resolve again with outcome applied or not_applied, and with the line of the core's journal if there is one"},
	{Err: transfer.ErrNotForgotten, Code: web.Code{Name: "NOT_FORGOTTEN", Status: http.StatusConflict},
		Text: "the ledger has not answered BEYOND_HORIZON for this operation; nothing was changed: send the call without outcome and line, and give them once the answer is BEYOND_HORIZON"},
	{Err: transfer.ErrEvidence, Code: evidenceDiffers,
		Text: "the journals do not prove the outcome, or have no such line; nothing was changed: read the core's journal, and GET /admin/v1/conservation"},
	{Err: checks.ErrNoFinding, Code: web.NotFound,
		Text: "no open finding BALANCE_DIFFERS has that number: GET /admin/v1/conservation shows the open ones"},
	{Err: checks.ErrAdjusted, Code: serve.TooLate,
		Text: "the finding has its adjustment; nothing was moved: POST /admin/v1/conservation/check shows whether the balance still differs"},
	{Err: checks.ErrMoved, Code: web.Code{Name: "ACCOUNT_MOVED", Status: http.StatusConflict},
		Text: "the account's balance has changed since the last check; nothing was moved: POST /admin/v1/conservation/check, then adjust again"},
	{Err: checks.ErrOutOfRange, Code: web.Code{Name: "OUT_OF_RANGE", Status: http.StatusConflict},
		Text: "the balance would be below zero or above 2^64-1 units, or there is no account; nothing was moved: the other move may be possible"},
	{Err: checks.ErrNoCheck, Code: evidenceDiffers,
		Text: "no check of conservation has ended, so nothing is proved; nothing was changed: POST /admin/v1/conservation/check with full true, then resolve again"},
	{Err: transfers.ErrAddressesBlocked, Code: web.Code{Name: "ADDRESSES_BLOCKED", Status: http.StatusForbidden},
		Text: "an operator has blocked new addresses of yours; nothing was stored: ask the service's support"},
	{Err: transfers.ErrTooManyAddresses, Code: web.Code{Name: "TOO_MANY_ADDRESSES", Status: http.StatusTooManyRequests}, Retry: time.Hour,
		Text: "100 addresses are on your list, or were added in 24 hours; nothing was stored: remove one that you do not use, or try again tomorrow"},
	{Err: transfers.ErrNoAddress, Code: web.NotFound, Text: "no such address; GET /api/v1/payout_address lists yours"},
	{Err: transfers.ErrNotBlocked, Code: serve.TooLate, Text: "no block of the user's addresses is open; nothing was changed"},
	{Err: transfers.ErrNothingToAcknowledge, Code: serve.TooLate,
		Text: "only a transfer in TARGET_PENDING or COMPENSATING has an alert to acknowledge; nothing was recorded"},
	{Err: transfers.ErrUntil, Code: web.InvalidField, Field: "until", Text: "must be in the future and at most 30 days ahead"},
	{Err: transfer.ErrActConflict, Code: web.Code{Name: "ID_CONFLICT", Status: http.StatusConflict}, Field: "id",
		Text: "was used for another deposit or withdrawal; nothing was booked: send the same user, asset, account and amount as before, or a new id"},
	{Err: transfers.ErrAssetDiffers, Code: web.Code{Name: "ASSET_DIFFERS", Status: http.StatusConflict},
		Text: "the asset has another assetId or precision, or the assetId is another asset's; these never change; nothing was changed: GET /admin/v1/assets shows both"},
	{Err: transfers.ErrTermsFixed, Code: web.Code{Name: "ASSET_TERMS_FIXED", Status: http.StatusConflict}, Field: "payout",
		Text: "differs in chain, token or decimals, and the asset has entries; nothing was changed: make a new asset for another chain or token"},
	{Err: transfers.ErrPayerIsPaying, Code: web.Code{Name: "PAYER_IS_PAYING", Status: http.StatusConflict}, Field: "payout",
		Text: "names another payer, and payouts of the asset are open; nothing was changed: suspend the asset, wait until they have ended, and call again"},
	serve.NoSuchCursor,
	{Err: transfers.ErrNotHalted, Code: serve.TooLate, Text: "no halt of that number is open; nothing was changed"},
}

// Problem returns what a caller may see of an error of transfers. An unknown error becomes
// SYSTEM_ERROR.
func Problem(err error) *web.Problem {
	if p, ok := errors.AsType[*web.Problem](err); ok {
		if p.Code == web.Unavailable {
			p.Code = systemError
		}
		return p
	}
	if address, ok := errors.AsType[payout.AddressError](err); ok {
		return addressProblem(address.Problem)
	}
	if refused, ok := errors.AsType[transfer.RefusedError](err); ok {
		p := refusedProblem(refused.Reason)
		p.Members = refusalMembers(refused)
		return p
	}
	if limit, ok := errors.AsType[transfer.ServiceLimitError](err); ok {
		return &web.Problem{Code: serviceLimit, Field: "amount", RetryAfter: time.Hour, Members: map[string]any{"left": limit.Left},
			Detail: "is more than the deposit service can still book of the asset today (UTC); nothing was booked: an operator can book it, or raise dailyServiceDeposits of the asset"}
	}
	if in, ok := errors.AsType[transfer.InJournalError](err); ok {
		return web.NewProblem(evidenceDiffers, "line %d of the core's journal has this id; nothing was changed: send that line in place of outcome", in.Line)
	}
	if unread, ok := errors.AsType[transfer.UnreadError](err); ok {
		return web.NewProblem(evidenceDiffers, "lines up to %d of %d of the core's journal do not have this id, and the others were not read in time; nothing was changed: send the same again, and it reads on from there",
			unread.Upto, unread.Last)
	}
	if store.IsMoving(err) || store.IsProposalGone(err) || errors.Is(err, store.ErrTooManyProposals) {
		return serve.Problem(err).(*web.Problem)
	}
	if p := serve.Find(answers, err); p != nil {
		return p
	}
	return &web.Problem{Code: systemError, RetryAfter: time.Second, Cause: err, Detail: "the service cannot answer at the moment; try again"}
}

// refusalMembers returns the members that a caller can act on, in addition to the code.
func refusalMembers(refused transfer.RefusedError) map[string]any {
	switch refused.Reason {
	case transfer.DailyPayoutExceeded:
		return map[string]any{"left": refused.Left}
	case transfer.AddressNotYetUsable:
		return map[string]any{"usable_from": refused.UsableFrom.UTC()}
	}
	return nil
}

// refusedProblem returns the problem for a request of which nothing was stored.
func refusedProblem(reason transfer.Reason) *web.Problem {
	r := refusals[reason]
	p := &web.Problem{Code: web.Code{Name: string(reason), Status: http.StatusBadRequest}, Field: r.field, Detail: r.say}
	if after, ok := retryAfterLimit[reason]; ok {
		p.Code.Status, p.RetryAfter = http.StatusTooManyRequests, after
	}
	return p
}

// notCreated returns the problem for a post without a transfer to show. If it is unknown whether the
// transfer was stored, the problem contains the req_id by which the caller can ask.
func notCreated(reqID string, err error) error {
	p := Problem(err)
	if p.Code != systemError || nothingStored(err) {
		return p
	}
	p.Detail = "whether the transfer was stored is not known: post it again with the same cid, or ask for req_id, before you make another. Without a cid, do not post it again: ask for req_id first"
	p.Members = map[string]any{"req_id": reqID}
	return p
}

// nothingStored reports whether a create has certainly stored nothing.
func nothingStored(err error) bool {
	known := []error{transfer.ErrHalted, transfer.ErrForeign, transfer.ErrProtected, transfer.ErrRetired, transfer.ErrMoved}
	return slices.ContainsFunc(known, func(one error) bool { return errors.Is(err, one) })
}

// failureText tells the user why a transfer failed and where the money is.
func failureText(t transfer.Transfer) string {
	where := "nothing was moved"
	if t.State == transfer.RolledBack {
		where = "the money is back where it came from"
	}
	return cmp.Or(refusals[t.Reason].inWords(), string(t.Reason)) + ": " + where
}

func (r refusal) inWords() string {
	if r.field == "" {
		return r.say
	}
	return r.field + " " + r.say
}

// failedProblem returns the problem for a stored transfer that has failed.
func failedProblem(t transfer.Transfer, out client.TransferResult) *web.Problem {
	return &web.Problem{
		Code: web.Code{Name: string(t.Reason), Status: http.StatusUnprocessableEntity}, Detail: out.Message,
		Members: map[string]any{
			"transfer_id": out.TransferID, "req_id": out.ReqID, "from": out.From, "to": out.To, "state": out.State, "message": out.Message,
		},
	}
}

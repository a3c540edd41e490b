package transfer

import (
	"regexp"
	"time"
)

// The reasons to refuse a request before a transfer is created, or to answer it with another
// transfer: codes of the API. ledger.go has the ledgers' reasons.
const (
	SameAccount         Reason = "SAME_ACCOUNT"
	InvalidAccountType  Reason = "INVALID_ACCOUNT_TYPE"
	InvalidAddress      Reason = "INVALID_ADDRESS"
	PrecisionOverflow   Reason = "PRECISION_OVERFLOW"
	AmountTooSmall      Reason = "AMOUNT_TOO_SMALL"
	AmountTooLarge      Reason = "AMOUNT_TOO_LARGE"
	AssetSuspended      Reason = "ASSET_SUSPENDED"
	TransferNotAllowed  Reason = "TRANSFER_NOT_ALLOWED"
	RateLimitExceeded   Reason = "RATE_LIMIT_EXCEEDED"
	DailyLimitExceeded  Reason = "DAILY_LIMIT_EXCEEDED"
	DailyAmountExceeded Reason = "DAILY_AMOUNT_EXCEEDED"
	DailyPayoutExceeded Reason = "DAILY_PAYOUT_EXCEEDED"

	AddressNotListed    Reason = "ADDRESS_NOT_LISTED"
	AddressNotYetUsable Reason = "ADDRESS_NOT_YET_USABLE"

	DuplicateRequest Reason = "DUPLICATE_REQUEST" // the answer is the stored transfer's
	CIDConflict      Reason = "CID_CONFLICT"
	SystemError      Reason = "SYSTEM_ERROR" // an internal error; the caller should repeat the same request
)

// RefusedError reports a refused request; nothing was stored.
type RefusedError struct {
	Reason     Reason
	Left       string    // for [DailyPayoutExceeded]: the amount of the asset that can still be paid out, as a decimal number
	UsableFrom time.Time // for [AddressNotYetUsable]: when payouts to the address become possible
}

func (e RefusedError) Error() string { return "refused: " + string(e.Reason) }

// wellFormed is a reason that the row's CHECK accepts.
var wellFormed = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,63}$`)

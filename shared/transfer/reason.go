package transfer

import "time"

// The reasons for which a request is refused before there is a transfer, or is
// answered by another: codes of the API. Those of ledgers stand in ledger.go.
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

	DuplicateRequest Reason = "DUPLICATE_REQUEST" // the answer is the stored one's
	CIDConflict      Reason = "CID_CONFLICT"
	SystemError      Reason = "SYSTEM_ERROR" // internal: the same request again is the advice
)

// ErrRefused is a request that is refused; nothing was stored.
type ErrRefused struct {
	Reason     Reason
	Left       string    // with [DailyPayoutExceeded]: how much of the asset can still be paid out, as a decimal number
	UsableFrom time.Time // with [AddressNotYetUsable]: when the address can be paid
}

// Error is the reason.
func (e ErrRefused) Error() string { return "refused: " + string(e.Reason) }

// wellFormed says whether the reason is a code, as the row demands: A-Z, 0-9 and _,
// at most 64 of them.
func (r Reason) wellFormed() bool {
	for i, c := range r {
		upper := 'A' <= c && c <= 'Z'
		if !upper && (i == 0 || c != '_' && (c < '0' || c > '9')) {
			return false
		}
	}
	return 0 < len(r) && len(r) <= 64
}

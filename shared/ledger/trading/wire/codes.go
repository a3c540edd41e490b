package wire

import (
	"net/http"

	"github.com/fencepost/fencepost/shared/web"
)

// The codes of the core's problems, beside those of [web]. None of them means that an operation was
// refused: after each the result is still open.
var (
	Halted          = web.Code{Name: "HALTED", Status: http.StatusServiceUnavailable}  // no answers until an operator has resolved the halt
	Contradiction   = web.Code{Name: "CONTRADICTION", Status: http.StatusConflict}     // other fields are stored under the key
	BeyondHorizon   = web.Code{Name: "BEYOND_HORIZON", Status: http.StatusConflict}    // too old: the key may have been forgotten
	NotForgotten    = web.Code{Name: "NOT_FORGOTTEN", Status: http.StatusConflict}     // of a record: the operation still has its answer
	EvidenceDiffers = web.Code{Name: "EVIDENCE_DIFFERS", Status: http.StatusConflict}  // the line that a record names has other content
	AccountMoved    = web.Code{Name: "ACCOUNT_MOVED", Status: http.StatusConflict}     // of an adjustment: the balance has changed
	OutOfRange      = web.Code{Name: "OUT_OF_RANGE", Status: http.StatusConflict}      // an adjustment that would leave the account's range
	CreatedAhead    = web.Code{Name: "CREATED_AHEAD", Status: http.StatusConflict}     // created after now, by the core's clock
	NoWithdrawal    = web.Code{Name: "NO_WITHDRAWAL", Status: http.StatusConflict}     // there is nothing to refund
	RefundOverflow  = web.Code{Name: "REFUND_OVERFLOW", Status: http.StatusConflict}   // the account cannot hold the refund yet
	NothingStored   = web.Code{Name: "NOTHING_STORED", Status: http.StatusConflict}    // of a refund, which cannot be resolved
	ViewGone        = web.Code{Name: "VIEW_GONE", Status: http.StatusGone}             // begin again with the first page
	AccountNotFound = web.Code{Name: "ACCOUNT_NOT_FOUND", Status: http.StatusNotFound} // no deposit has created it
	Busy            = web.Code{Name: "BUSY", Status: http.StatusServiceUnavailable}    // too many requests wait already; nothing was done
)

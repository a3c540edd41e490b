// Package wire is the protocol between a ledger's client and the trading core: paths, bodies and
// codes of version 1. docs/ubscore.md describes them with examples. Both ends import it, so that
// their formats cannot differ. It only converts values to bodies and back, and rejects anything
// else.
package wire

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

// The paths. A change that an old client would misread needs a new version.
const (
	OperationsPath = "/v1/operations"         // POST Operation: apply it once
	ResolvePath    = "/v1/operations:resolve" // POST Operation: return the stored answer, or refuse it permanently
	RecordPath     = "/v1/operations:record"  // POST Record: the result of a forgotten key
	AdjustPath     = "/v1/adjustments"        // POST Adjustment
	StatusPath     = "/v1/accounts:status"    // POST AccountStatus
	AssetsPath     = "/v1/assets"             // POST Asset
	JournalPath    = "/v1/journal"            // GET ?after=&limit=: JournalPage
	BalancesPath   = "/v1/balances"           // GET ?at=&after=&limit=: BalancesPage; GET /{userId}/{assetId}: BalanceOfOne
)

// The operations that move no money. They have lines in the journal, so that its sequence has no
// gaps.
const (
	SetStatus transfer.Op = "account_status" // an account's status was set
	AddAsset  transfer.Op = "asset"          // an asset was added
	Floor     transfer.Op = "floor"          // keys created before createdAt were forgotten

	// An operator's statement about an operation whose key was forgotten.
	RecordedWithdraw transfer.Op = "recorded_withdraw"
	RecordedDeposit  transfer.Op = "recorded_deposit"
	RecordedRefund   transfer.Op = "recorded_refund"
)

// The outcomes of an operation.
const (
	Applied     = "applied"
	RefusedEver = "refused"
)

// The statuses of an account.
const (
	Active   = "ACTIVE"
	Frozen   = "FROZEN"   // no debits; deposits and refunds are accepted
	Disabled = "DISABLED" // no debits and no credits but refunds
)

// Limits of both ends.
const (
	MaxReqID    = 128     // bytes, all of them printable ASCII
	MaxBody     = 4 << 10 // bytes of a request
	MaxAnswer   = 8 << 20 // bytes of an answer
	MaxPage     = 10_000  // lines or accounts in one answer
	DefaultPage = 1_000   // if the caller gives no limit
	MaxReason   = 64      // bytes of a refusal's reason
	resolution  = time.Microsecond
	timeLayout  = "2006-01-02T15:04:05.000000Z07:00"
)

// Operation is the body of a request to move money, or to resolve such a request.
type Operation struct {
	Op        transfer.Op `json:"op"`
	ReqID     string      `json:"reqId"`
	UserID    *int64      `json:"userId"`
	AssetID   *int32      `json:"assetId"`
	Units     string      `json:"units"`     // decimal, of a u64
	CreatedAt string      `json:"createdAt"` // of the transfer; RFC 3339, microseconds at most
}

// NotApplied is the outcome of a Record for an operation that was not applied and never will be. A
// refund is an exception: the core applies it with the record.
const NotApplied = "not_applied"

// Record is the body of a request to record the result of an operation whose key the core may have
// forgotten.
type Record struct {
	Operation        // withdraw, deposit or refund
	Outcome   string `json:"outcome"`        // applied or not_applied
	Line      uint64 `json:"line,omitempty"` // of the journal line that proves it; none: the caller has other evidence
}

// Adjustment is the body of a request to adjust an account whose balance is not the sum of its
// journal. It applies once for a reqId, which names the finding.
type Adjustment struct {
	Op        transfer.Op `json:"op"` // journal_credit, journal_debit, balance_credit or balance_debit
	ReqID     string      `json:"reqId"`
	UserID    *int64      `json:"userId"`
	AssetID   *int32      `json:"assetId"`
	Units     string      `json:"units"`
	Balance   string      `json:"balance"` // that was found; if it has changed, the answer is ACCOUNT_MOVED
	CreatedAt string      `json:"createdAt"`
}

// AccountStatus is the body of a request to set an account's status.
type AccountStatus struct {
	ReqID     string `json:"reqId"`
	UserID    *int64 `json:"userId"`
	AssetID   *int32 `json:"assetId"`
	Status    string `json:"status"`
	CreatedAt string `json:"createdAt"`
}

// Asset is the body of a request to add an asset.
type Asset struct {
	ReqID     string `json:"reqId"`
	AssetID   *int32 `json:"assetId"`
	Precision *uint8 `json:"precision"` // decimals, 0 to 8
	CreatedAt string `json:"createdAt"`
}

// Answer is the stored answer for a key. It comes with status 200 only, and only once it is
// durable. Every other status leaves the result of the operation open.
type Answer struct {
	Op      transfer.Op     `json:"op"`    // the request's
	ReqID   string          `json:"reqId"` // the request's
	Outcome string          `json:"outcome"`
	Reason  transfer.Reason `json:"reason,omitempty"` // of a refusal
	Seq     uint64          `json:"seq"`              // its line in the journal
}

// Entry is one line of the journal.
type Entry struct {
	Seq       uint64          `json:"seq"`
	Op        transfer.Op     `json:"op"`
	ReqID     string          `json:"reqId"`
	UserID    int64           `json:"userId"`
	AssetID   int32           `json:"assetId"`
	Units     string          `json:"units"`
	Status    string          `json:"status,omitempty"`    // of account_status
	Precision *uint8          `json:"precision,omitempty"` // of asset
	CreatedAt string          `json:"createdAt"`
	At        string          `json:"at"` // by the core's clock
	Outcome   string          `json:"outcome"`
	Reason    transfer.Reason `json:"reason,omitempty"`
}

// JournalPage holds the lines after a given line. No line is missing, and each is durable. It may
// have fewer lines than requested, so that it fits [MaxAnswer]; there are more as long as its last
// line is below Last. An empty page is the end.
type JournalPage struct {
	Entries []Entry `json:"entries"`
	Last    uint64  `json:"last"` // the last durable line
}

// Balance is one account.
type Balance struct {
	UserID  int64  `json:"userId"`
	AssetID int32  `json:"assetId"`
	Units   string `json:"units"`
	Status  string `json:"status"`
}

// BalancesPage is a part of all accounts, by user and asset, exactly as they were after line Seq.
type BalancesPage struct {
	Seq      uint64    `json:"seq"`
	Accounts []Balance `json:"accounts"`
	Next     string    `json:"next,omitempty"` // the after of the next page; none: this is the last
}

// BalanceOfOne is one account after line Seq.
type BalanceOfOne struct {
	Seq     uint64  `json:"seq"`
	Account Balance `json:"account"`
}

// Moves reports whether the operation moves money by a request.
func Moves(op transfer.Op) bool {
	return op.Counts() && !op.Adjusts()
}

// FieldError names an invalid member of a body and describes the expected value.
type FieldError struct {
	Field  string
	Detail string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Detail }

func wrong(field, format string, args ...any) error {
	return &FieldError{Field: field, Detail: fmt.Sprintf(format, args...)}
}

// FormatUnits formats units as bodies have them.
func FormatUnits(units uint64) string { return strconv.FormatUint(units, 10) }

// ParseUnits is the inverse of [FormatUnits]. It rejects a sign and leading zeros.
func ParseUnits(text string) (uint64, error) {
	units, err := strconv.ParseUint(text, 10, 64)
	if err != nil || FormatUnits(units) != text {
		return 0, wrong("units", "want a whole number from 0 to 2^64-1, in decimal digits without a leading zero")
	}
	return units, nil
}

// FormatTime formats t as bodies have it, truncated to microseconds.
func FormatTime(t time.Time) string { return t.UTC().Truncate(resolution).Format(timeLayout) }

// ParseTime reads a time in RFC 3339, no finer than a microsecond.
func ParseTime(field, text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || !t.Equal(t.Truncate(resolution)) || t.Year() < 1970 || t.Year() > 9999 {
		return time.Time{}, wrong(field, "want a time as in RFC 3339, such as 2026-01-02T15:04:05.123456Z, no finer than a microsecond")
	}
	return t.UTC(), nil
}

// CheckReqID returns why a request's id is invalid; nil: it is valid. Ids are compared byte by
// byte, so they only have bytes that every encoding keeps.
func CheckReqID(id string) error {
	if id == "" || len(id) > MaxReqID {
		return wrong("reqId", "want 1 to %d bytes", MaxReqID)
	}
	if strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return wrong("reqId", "want printable ASCII without spaces")
	}
	return nil
}

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

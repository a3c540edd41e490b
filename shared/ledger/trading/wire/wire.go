// Package wire is the protocol between a ledger's client and the trading core:
// paths, bodies and codes of version 1, as docs/ubscore.md tells them with
// examples. Both ends import it, so that neither can drift; it holds no
// behaviour but turning values into bodies and back, refusing what is not
// exactly a value.
package wire

import (
	"fmt"
	"strconv"
	"time"

	"github.com/fencepost/fencepost/shared/transfer"
)

// The paths. A change that an old client would misread gets another version.
const (
	OperationsPath = "/v1/operations"         // POST Operation: do it, once
	ResolvePath    = "/v1/operations:resolve" // POST Operation: what is stored, or refused for ever
	RecordPath     = "/v1/operations:record"  // POST Record: what became of a forgotten key
	AdjustPath     = "/v1/adjustments"        // POST Adjustment
	StatusPath     = "/v1/accounts:status"    // POST AccountStatus
	AssetsPath     = "/v1/assets"             // POST Asset
	JournalPath    = "/v1/journal"            // GET ?after=&limit=: JournalPage
	BalancesPath   = "/v1/balances"           // GET ?at=&after=&limit=: BalancesPage; GET /{userId}/{assetId}: BalanceOfOne
)

// The operations that move no money. They have their lines in the journal, so
// that its sequence has no holes.
const (
	SetStatus transfer.Op = "account_status" // an account's status was set
	AddAsset  transfer.Op = "asset"          // an asset was made known
	Floor     transfer.Op = "floor"          // keys created before createdAt were forgotten

	// What an operator said became of an operation whose key was forgotten.
	RecordedWithdraw transfer.Op = "recorded_withdraw"
	RecordedDeposit  transfer.Op = "recorded_deposit"
	RecordedRefund   transfer.Op = "recorded_refund"
)

// What an answer says became of an operation.
const (
	Applied     = "applied"
	RefusedEver = "refused"
)

// The statuses of an account.
const (
	Active   = "ACTIVE"
	Frozen   = "FROZEN"   // nothing goes out; deposits and refunds are taken
	Disabled = "DISABLED" // nothing goes out or in, refunds excepted
)

// Bounds that both ends keep.
const (
	MaxReqID    = 128     // bytes, all of them printable ASCII
	MaxBody     = 4 << 10 // bytes of a request
	MaxAnswer   = 8 << 20 // bytes of an answer
	MaxPage     = 10_000  // lines or accounts in one answer
	DefaultPage = 1_000   // where the caller does not say
	MaxReason   = 64      // bytes of a refusal's reason
	resolution  = time.Microsecond
	timeLayout  = "2006-01-02T15:04:05.000000Z07:00"
)

// Operation is the body of a request to move money, or to resolve one.
type Operation struct {
	Op        transfer.Op `json:"op"`
	ReqID     string      `json:"reqId"`
	UserID    *int64      `json:"userId"`
	AssetID   *int32      `json:"assetId"`
	Units     string      `json:"units"`     // decimal, of a u64
	CreatedAt string      `json:"createdAt"` // of the transfer; RFC 3339, microseconds at most
}

// What a Record says became of an operation. What was not applied never will be,
// but for a refund: the core applies that one with the record.
const NotApplied = "not_applied"

// Record is the body of a request to record what became of an operation whose key
// the core may have forgotten.
type Record struct {
	Op        transfer.Op `json:"op"` // withdraw, deposit or refund
	ReqID     string      `json:"reqId"`
	UserID    *int64      `json:"userId"`
	AssetID   *int32      `json:"assetId"`
	Units     string      `json:"units"`
	CreatedAt string      `json:"createdAt"`
	Outcome   string      `json:"outcome"`        // applied or not_applied
	Line      uint64      `json:"line,omitempty"` // of the journal, that proves it; none: the caller has other evidence
}

// Adjustment is the body of a request to adjust an account whose balance is not the
// sum of its journal, once for a reqId, which names the finding.
type Adjustment struct {
	Op        transfer.Op `json:"op"` // journal_credit, journal_debit, balance_credit or balance_debit
	ReqID     string      `json:"reqId"`
	UserID    *int64      `json:"userId"`
	AssetID   *int32      `json:"assetId"`
	Units     string      `json:"units"`
	Balance   string      `json:"balance"` // that was found; another one is ACCOUNT_MOVED
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

// Asset is the body of a request to make an asset known.
type Asset struct {
	ReqID     string `json:"reqId"`
	AssetID   *int32 `json:"assetId"`
	Precision *uint8 `json:"precision"` // decimals, 0 to 8
	CreatedAt string `json:"createdAt"`
}

// Answer says what is stored under a key. It is given with status 200 only, and
// only for what is durable: every other status leaves open what became of the
// operation.
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

// JournalPage is what follows a line: no line is left out, and none is shown that
// is not durable. It may have fewer lines than were asked for, so that it fits
// [MaxAnswer]: there are more as long as its last line is below Last. An empty
// page is the end.
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

// BalancesPage is a part of all accounts, by user and asset, as they stood after
// exactly the line Seq.
type BalancesPage struct {
	Seq      uint64    `json:"seq"`
	Accounts []Balance `json:"accounts"`
	Next     string    `json:"next,omitempty"` // the after of the next page; none: this was the last
}

// BalanceOfOne is one account after the line Seq.
type BalanceOfOne struct {
	Seq     uint64  `json:"seq"`
	Account Balance `json:"account"`
}

// Moves says whether the operation moves money by a request of its own.
func Moves(op transfer.Op) bool {
	switch op {
	case transfer.Withdraw, transfer.Deposit, transfer.Refund, transfer.OutsideDeposit, transfer.OutsideWithdrawal:
		return true
	}
	return false
}

// FieldError says which member of a body is not right, and what would be.
type FieldError struct {
	Field  string
	Detail string
}

// Error is both.
func (e *FieldError) Error() string { return e.Field + ": " + e.Detail }

func wrong(field, format string, args ...any) error {
	return &FieldError{Field: field, Detail: fmt.Sprintf(format, args...)}
}

// FormatUnits is units as bodies have them.
func FormatUnits(units uint64) string { return strconv.FormatUint(units, 10) }

// ParseUnits is the inverse of [FormatUnits], and takes nothing else: no sign, no
// leading zero.
func ParseUnits(text string) (uint64, error) {
	units, err := strconv.ParseUint(text, 10, 64)
	if err != nil || FormatUnits(units) != text {
		return 0, wrong("units", "want a whole number from 0 to 2^64-1, in decimal digits without a leading zero")
	}
	return units, nil
}

// FormatTime is t as bodies have it. What is finer than a microsecond is cut off.
func FormatTime(t time.Time) string { return t.UTC().Truncate(resolution).Format(timeLayout) }

// ParseTime reads a time as RFC 3339 has it, no finer than a microsecond.
func ParseTime(field, text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || !t.Equal(t.Truncate(resolution)) || t.Year() < 1970 || t.Year() > 9999 {
		return time.Time{}, wrong(field, "want a time as in RFC 3339, such as 2026-01-02T15:04:05.123456Z, no finer than a microsecond")
	}
	return t.UTC(), nil
}

// CheckReqID says what is wrong with a request's id; nil: nothing is. An id is
// compared byte for byte, so it has only bytes that no one re-codes.
func CheckReqID(id string) error {
	if id == "" || len(id) > MaxReqID {
		return wrong("reqId", "want 1 to %d bytes", MaxReqID)
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return wrong("reqId", "want printable ASCII without spaces")
		}
	}
	return nil
}
